"""digrad: decentralized learning over directed networks."""

__version__ = "0.1.0"
