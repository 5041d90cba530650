"""Topologies that are fixed by their parameters: small functions from n to a graph.

Node j sends to node i along the edge (j, i). Every function accepts n = 1, the single node.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.checks import whole
from digrad.base.errors import ParameterError, lookup
from digrad.networks.digraph import Digraph, Nodes, check_links, size_of
from digrad.networks.network import Network
from digrad.networks.weights import tree_weights

Links = NDArray[np.int64]  # (links, 2): sender, receiver


def directed_ring(n: int) -> Digraph:
    """Node i sends to i + 1 (mod n): the sparsest strongly connected graph.

    >>> directed_ring(3).edges.tolist()
    [[0, 1], [1, 2], [2, 0]]
    """
    return _circulant(n, [1])


def undirected_ring(n: int) -> Digraph:
    """Node i exchanges with i - 1 and i + 1 (mod n)."""
    return _circulant(n, [1, -1])


def path(n: int) -> Digraph:
    """Node i exchanges with i + 1, without closing the ring: the slowest to mix."""
    nodes = _nodes(n, 2, "a path")
    return Digraph(n, _links(nodes[:-1], nodes[1:])).both_ways()


def star(n: int) -> Digraph:
    """Node 0 exchanges with every other node."""
    others = _nodes(n, 2, "a star")[1:]
    return Digraph(n, _links(np.zeros_like(others), others)).both_ways()


def complete(n: int) -> Digraph:
    """Everybody sends to everybody."""
    return Digraph(n, _all_pairs(_nodes(n, size_of(n) - 1, "a complete graph")))


def grid(n: int, rows: int = 0) -> Digraph:
    """A rectangle of nodes, each exchanging with its neighbours left, right, above and below.

    Args:
        n: number of nodes.
        rows: number of rows; 0 takes the divisor of n nearest below its square root.
    """
    cell = _nodes(n, 4, "a grid").reshape(_sides(n, rows))
    pairs = [
        np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], axis=1),
        np.stack([cell[:-1].ravel(), cell[1:].ravel()], axis=1),
    ]
    return Digraph(n, np.concatenate(pairs)).both_ways()


def torus(n: int, rows: int = 0) -> Digraph:
    """A grid whose opposite sides are joined: every node has four neighbours.

    Args:
        n: number of nodes.
        rows: number of rows; 0 takes the divisor of n nearest below its square root.
    """
    cell = _nodes(n, 4, "a torus").reshape(_sides(n, rows))
    moved = [np.roll(cell, 1, axis=axis).ravel() for axis in (0, 1)]
    pairs = [np.stack([cell.ravel(), to], axis=1) for to in moved]
    return Digraph(n, np.concatenate(pairs)).both_ways()


def hypercube(n: int) -> Digraph:
    """Nodes whose numbers differ in one binary digit exchange; n is a power of two."""
    n = size_of(n)
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise ParameterError(
            f"a hypercube has 2^k nodes, got n = {n}", hint=f"take n = {below} or {2 * below}"
        )
    flips = [1 << k for k in range(n.bit_length() - 1)]
    nodes = _nodes(n, len(flips), "a hypercube")
    return Digraph(n, _joined([_links(nodes, nodes ^ flip) for flip in flips]))


def exponential(n: int) -> Digraph:
    """Node i sends to i + 1, i + 2, i + 4, ... (mod n).

    Every in- and out-degree is ⌈log₂ n⌉, so uniform weights are doubly stochastic
    although the graph is directed.

    >>> exponential(4).edges.tolist()[:2]
    [[0, 1], [0, 2]]

    References:
        Ying et al., Exponential Graph is Provably Efficient for Decentralized Deep
        Training, NeurIPS 2021.
    """
    return _circulant(n, [2**k for k in range((size_of(n) - 1).bit_length())])


def multi_sub_ring(n: int, layout: str = "flower", sub_ring_size: int = 4) -> Digraph:
    """Directed rings joined into one graph; the paper's second network (section 5).

    The paper shows but does not define it, and no reading gives its nπ ≈ 1.35 at n = 20
    exactly: ``flower`` gives 1.323, ``nested`` 1.358, ``clique-heads`` 1.333.

    Args:
        n: number of nodes.
        layout: ``flower``: rings that share node 0; ``nested``: one ring with chords
            2, 4, 8, ... -> 0 that close smaller rings; ``clique-heads``: separate rings
            whose first nodes all exchange with each other.
        sub_ring_size: nodes in a ring, node 0 included; the last one takes what is left.
    """
    nodes = _nodes(n, 3, "a multi-sub-ring")
    size = whole(sub_ring_size, "sub_ring_size", least=2, hint="a ring needs two nodes")
    return Digraph(n, lookup(_LAYOUTS, layout, "layout")(nodes, size))


def _flower(nodes: Nodes, size: int) -> Links:
    """Rings that share node 0: the first of each follows it, the last leads back."""
    petals = nodes[1:]
    first, last = (petals - 1) % (size - 1) == 0, petals % (size - 1) == 0
    last[-1:] = True  # it closes the ring that is not full
    inner = petals[~last]
    hub = np.zeros_like(petals)
    back = _links(petals[last], hub[last])
    return _joined([_links(hub[first], petals[first]), _links(inner, inner + 1), back])


def _nested(nodes: Nodes, size: int) -> Links:
    """One ring, and chords 2, 4, 8, ... -> 0 that close smaller ones."""
    del size
    chords = 1 << np.arange(1, len(nodes).bit_length())
    chords = chords[chords < len(nodes)]
    return _joined([_links(nodes, np.roll(nodes, -1)), _links(chords, np.zeros_like(chords))])


def _clique_heads(nodes: Nodes, size: int) -> Links:
    """Separate rings whose first nodes all exchange with each other."""
    heads = nodes[::size]
    check_links(len(heads) ** 2.0, "a clique of the first nodes of the rings")
    ends = np.minimum(heads + size, len(nodes)) - 1
    inner = np.setdiff1d(nodes, ends)
    return _joined([_links(inner, inner + 1), _links(ends, heads), _all_pairs(heads)])


_LAYOUTS = {"flower": _flower, "nested": _nested, "clique-heads": _clique_heads}


def binary_tree(n: int, branching: int = 2) -> Network:
    """B-ary tree pair with zero-one weights: models flow down, trackers flow up.

    Node 0 is the root and its only self-loop; the parent of i is ⌊(i - 1)/B⌋. Every node
    talks to at most B + 1 others, and nπ = n.

    Args:
        n: number of nodes.
        branching: children of a node, B.

    References:
        You & Pu, B-ary Tree Push-Pull Method is Provably Efficient for Decentralized
        Learning on Heterogeneous Data, NeurIPS 2024.
    """
    nodes = _nodes(n, 2, "a tree")
    R = tree_weights(np.maximum((nodes - 1) // whole(branching, "branching", least=1), 0), root=0)
    return Network(R, csr_array(R.T))


def _nodes(n: int, degree: int, what: str) -> Nodes:
    """Return the nodes of a graph in which each sends to so many, if there is room for it."""
    check_links(1.0 * size_of(n) * degree, f"{what} of {n:,} nodes")
    return np.arange(n)


def _links(senders: Nodes, receivers: Nodes) -> Links:
    return np.stack([senders, receivers], axis=1)


def _joined(parts: Sequence[Links]) -> Links:
    return np.concatenate([np.zeros((0, 2), np.int64), *parts])


def _all_pairs(nodes: Nodes) -> Links:
    """Link each of these nodes to each of the others."""
    senders, receivers = np.repeat(nodes, len(nodes)), np.tile(nodes, len(nodes))
    others = senders != receivers
    return _links(senders[others], receivers[others])


def _circulant(n: int, hops: list[int]) -> Digraph:
    nodes = _nodes(n, len(hops), "a circulant graph")
    return Digraph(n, _joined([_links(nodes, (nodes + hop) % n) for hop in hops]))


def _sides(n: int, rows: int) -> tuple[int, int]:
    n = size_of(n)
    usual = max(k for k in range(1, int(n**0.5) + 1) if n % k == 0)
    hint = f"rows must divide n: for example rows = {usual}, which 0 stands for"
    rows = whole(rows, "rows", hint=hint) or usual
    if n % rows:
        raise ParameterError(f"{n} nodes do not fill {rows} rows", hint=hint)
    return rows, n // rows
