"""Who can talk to whom, and with which weights.

Graphs, topologies, weights, files; no eigenvalues, no tensors. Read ``network`` first: a
``Network`` is valid by construction, whatever it came from.
"""

from digrad.networks.changing import build_any
from digrad.networks.digraph import Digraph
from digrad.networks.files import load, save
from digrad.networks.network import Network, Slot
from digrad.networks.random_topologies import (
    equitopo,
    erdos_renyi,
    random_regular,
    small_world,
    stochastic_block,
)
from digrad.networks.registry import (
    TIMETABLES,
    TOPOLOGIES,
    AnyNetwork,
    as_any,
    as_network,
    build,
    spanning_tree,
)
from digrad.networks.timetable import Timetable
from digrad.networks.timetables import base_graph, one_peer_exponential, random_one_peer
from digrad.networks.topologies import (
    binary_tree,
    complete,
    directed_ring,
    exponential,
    grid,
    hypercube,
    multi_sub_ring,
    path,
    star,
    torus,
    undirected_ring,
)
from digrad.networks.weights import WEIGHTS, weigh

__all__ = [
    "TIMETABLES",
    "TOPOLOGIES",
    "WEIGHTS",
    "AnyNetwork",
    "Digraph",
    "Network",
    "Slot",
    "Timetable",
    "as_any",
    "as_network",
    "base_graph",
    "binary_tree",
    "build",
    "build_any",
    "complete",
    "directed_ring",
    "equitopo",
    "erdos_renyi",
    "exponential",
    "grid",
    "hypercube",
    "load",
    "multi_sub_ring",
    "one_peer_exponential",
    "path",
    "random_one_peer",
    "random_regular",
    "save",
    "small_world",
    "spanning_tree",
    "star",
    "stochastic_block",
    "torus",
    "undirected_ring",
    "weigh",
]
