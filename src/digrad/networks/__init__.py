"""Who can talk to whom, and with which weights.

Graphs, topologies, weights, files; no eigenvalues, no tensors. Read ``network`` first: a
``Network`` is valid by construction, whatever it came from.
"""

from digrad.networks.digraph import Digraph
from digrad.networks.files import load, save
from digrad.networks.network import Network
from digrad.networks.random_topologies import (
    equitopo,
    erdos_renyi,
    random_regular,
    small_world,
    stochastic_block,
)
from digrad.networks.registry import TOPOLOGIES, as_network, build, spanning_tree
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
    "TOPOLOGIES",
    "WEIGHTS",
    "Digraph",
    "Network",
    "as_network",
    "binary_tree",
    "build",
    "complete",
    "directed_ring",
    "equitopo",
    "erdos_renyi",
    "exponential",
    "grid",
    "hypercube",
    "load",
    "multi_sub_ring",
    "path",
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
