"""digrad: decentralized learning over directed networks.

import digrad as dg

net = dg.network("multi-sub-ring", n=20)
print(dg.analyze(net))
run = dg.simulate("logistic", net, ["push-pull", "sgp"], lr=[0.1, 0.05], steps=500, seeds=3)
opt = dg.Decentralized(model, "push-pull", "exponential", lr=0.1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from digrad import algorithms, networks, problems, theory
    from digrad.algorithms import Algorithm, Asynchronous
    from digrad.analysis import Analysis
    from digrad.analysis.designs import design
    from digrad.base.errors import DigradError
    from digrad.base.metrics import Metric
    from digrad.clocks import clock
    from digrad.data.shards import NodeSampler, loader, shard
    from digrad.front.networks import analyze, compare, network, timetable
    from digrad.front.run import Run
    from digrad.front.simulate import simulate, tune
    from digrad.networks import Digraph, Network, Timetable
    from digrad.optim import Decentralized, load_checkpoint, processes, save_checkpoint
    from digrad.problems import ModuleProblem, Problem
    from digrad.runs.joining import join
    from digrad.theory import Bracket, Setting
    from digrad_peers.participation import peers

__version__ = "0.2.0"
__all__ = [
    "Algorithm",
    "Analysis",
    "Asynchronous",
    "Bracket",
    "Decentralized",
    "DigradError",
    "Digraph",
    "Metric",
    "ModuleProblem",
    "Network",
    "NodeSampler",
    "Problem",
    "Run",
    "Setting",
    "Timetable",
    "algorithms",
    "analyze",
    "clock",
    "compare",
    "design",
    "join",
    "load_checkpoint",
    "loader",
    "network",
    "networks",
    "peers",
    "problems",
    "processes",
    "save_checkpoint",
    "shard",
    "simulate",
    "theory",
    "timetable",
    "tune",
]

# Names are imported when first used, so that the command line starts at once.
_HOMES = {
    "Algorithm": "algorithms",
    "Analysis": "analysis",
    "Asynchronous": "algorithms",
    "Bracket": "theory",
    "Decentralized": "optim",
    "Digraph": "networks",
    "DigradError": "base.errors",
    "Metric": "base.metrics",
    "ModuleProblem": "problems",
    "Network": "networks",
    "NodeSampler": "data.shards",
    "Problem": "problems",
    "Run": "front.run",
    "Setting": "theory",
    "Timetable": "networks",
    "analyze": "front.networks",
    "clock": "clocks",
    "compare": "front.networks",
    "design": "analysis.designs",
    "join": "runs.joining",
    "load_checkpoint": "optim",
    "loader": "data.shards",
    "network": "front.networks",
    "processes": "optim",
    "save_checkpoint": "optim",
    "shard": "data.shards",
    "simulate": "front.simulate",
    "timetable": "front.networks",
    "tune": "front.simulate",
}


def __getattr__(name: str) -> Any:
    if name in ("algorithms", "networks", "problems", "theory"):
        return import_module(f"digrad.{name}")
    if name == "peers":
        return _peers()
    if name in _HOMES:
        return getattr(import_module(f"digrad.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'digrad' has no attribute {name!r}")


def _peers() -> Any:
    """Return what makes a node of a run of peers; it is in a distribution of its own."""
    try:
        return import_module("digrad_peers").peers
    except ModuleNotFoundError as error:
        if error.name != "digrad_peers":
            raise
        from digrad.base.errors import MissingLibraryError

        what = "dg.peers is in digrad-peers, which is not installed"
        raise MissingLibraryError(what + "\n  hint: pip install digrad-peers") from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
