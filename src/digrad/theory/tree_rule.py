"""When M2~ may be taken as 0: the rule of Lemma 3.12 for spanning trees, and its test."""

from typing import Literal

import numpy as np
from scipy.sparse import csr_array, eye_array

from digrad.networks.digraph import Nodes
from digrad.networks.network import Network

TreeRule = Literal["auto", "paper", "never"]
LARGEST_TESTED = 3000


def is_tree_pair(net: Network) -> bool:
    """Whether R and C are zero-one matrices of two spanning trees with a common root."""
    zero_one = bool((net.R.data == 1).all() and (net.C.data == 1).all())
    return zero_one and len(net.pull_roots) == len(net.push_roots) == 1


def push_depths(net: Network) -> Nodes:
    """Return how many pushes it takes from each node to the root of a tree pair."""
    depth = np.full(net.n, -1)
    root, reached, d = int(net.roots[0]), np.zeros(net.n), 0
    reached[root] = 1.0
    while (depth < 0).any():
        depth[(reached > 0) & (depth < 0)] = d
        reached, d = net.C.T @ reached, d + 1
    return depth


def noise_arrives_first(
    net: Network, rule: TreeRule = "auto", tracker: Literal["atc", "cta"] = "atc"
) -> bool:
    """Whether the tree rule M2~ = 0 applies.

    ``paper``: to every zero-one tree pair. ``auto``: only where the noise of a gradient
    reaches the root's tracker before it has influenced the root's model by any other way,
    which is what the paper's proof uses and which fails for some pairs of different trees
    under the tracker C(Y + G⁺ - G) (docs/errata.md, E-9).
    """
    if rule == "never" or not is_tree_pair(net):
        return False
    if rule == "paper":
        return True
    return net.n <= LARGEST_TESTED and not _overtaken(net, tracker == "cta")


def _overtaken(net: Network, cta: bool) -> bool:
    """Follow where the noise of every node can be, one column per node.

    DX, DY, DG mark the models, trackers and last gradients that it has touched. A node at
    push depth d is checked when its noise arrives at the root's tracker.
    """
    depth, root = push_depths(net), int(net.roots[0])
    start = eye_array(net.n, format="csr")
    DX = csr_array((net.n, net.n))
    DY, DG = (start if cta else net.C @ start), start
    for steps in range(1, int(depth.max()) + (1 if cta else 0)):
        DX = _marks(net.R @ _marks(DX + DY))
        DY = _marks(net.C @ DY + DX + DG if cta else net.C @ _marks(DY + DX + DG))
        DG = DX
        due = (depth == (steps if cta else steps + 1)) & (depth >= 2)
        if DX[[root]].toarray()[0][due].any():
            return True
    return False


def _marks(A: csr_array) -> csr_array:
    A = csr_array(A)
    A.data = np.ones_like(A.data)
    return A
