"""Nodes that are joined by their links alone: authenticated, encrypted, one connection each.

Who is a member and how to reach it, connections and what travels on them, the engine on top, the
hub that decides who takes part. No algorithms and no optimizer. Read ``membership`` first: it is
the file that all nodes share; ``engine`` is a mixer like the simulator.
"""

from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name == "peers":  # imported when first used, as it takes PyTorch
        from digrad_peers.participation import peers

        return peers
    raise AttributeError(f"module 'digrad_peers' has no attribute {name!r}")
