"""digrad: decentralized learning over directed networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from digrad import networks, optim, theory
    from digrad.algorithms import PushPull
    from digrad.analysis import Analysis, analyze
    from digrad.base.errors import DigradError
    from digrad.networks import Digraph, Network, build, load, weigh
    from digrad.theory import Bracket, Setting, constants, perron

__version__ = "0.1.0"
__all__ = [
    "Analysis",
    "Bracket",
    "DigradError",
    "Digraph",
    "Network",
    "PushPull",
    "Setting",
    "analyze",
    "build",
    "constants",
    "load",
    "networks",
    "optim",
    "perron",
    "theory",
    "weigh",
]

# Names are imported when first used, so that the command line starts at once.
_HOMES = {
    "Analysis": "analysis",
    "PushPull": "algorithms",
    "analyze": "analysis",
    "DigradError": "base.errors",
    "Digraph": "networks",
    "Network": "networks",
    "build": "networks",
    "load": "networks",
    "weigh": "networks",
    "Bracket": "theory",
    "Setting": "theory",
    "constants": "theory",
    "perron": "theory",
}


def __getattr__(name: str) -> Any:
    if name in ("networks", "optim", "theory"):
        return import_module(f"digrad.{name}")
    if name in _HOMES:
        return getattr(import_module(f"digrad.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'digrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
