"""Topologies that are fixed by their parameters: small functions from n to a graph.

Node j sends to node i along the edge (j, i). Every function accepts n = 1, the single node.
"""

from itertools import combinations

import numpy as np
from scipy.sparse import csr_array

from digrad.base.errors import ParameterError, message
from digrad.networks.digraph import Digraph
from digrad.networks.network import Network
from digrad.networks.trees import tree_weights

LARGEST_COMPLETE = 5000  # 25 million links, about two GB on the way


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
    return Digraph(n, [(i, i + 1) for i in range(n - 1)]).both_ways()


def star(n: int) -> Digraph:
    """Node 0 exchanges with every other node."""
    return Digraph(n, [(0, i) for i in range(1, n)]).both_ways()


def complete(n: int) -> Digraph:
    """Everybody sends to everybody."""
    if n > LARGEST_COMPLETE:
        raise ParameterError(
            message(
                f"a complete graph with n = {n:,} has {n * (n - 1):.1g} links",
                hint=f"take n up to {LARGEST_COMPLETE:,}, or another topology",
            )
        )
    Digraph(n, [])  # refuses n < 1 in its own words
    return Digraph(n, np.argwhere(~np.eye(n, dtype=bool)))


def grid(n: int, rows: int = 0) -> Digraph:
    """A rectangle of nodes, each exchanging with its neighbours left, right, above and below.

    Args:
        n: number of nodes.
        rows: number of rows; 0 takes the divisor of n nearest below its square root.
    """
    rows, columns = _sides(n, rows)
    cell = np.arange(n).reshape(rows, columns)
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
    rows, columns = _sides(n, rows)
    cell = np.arange(n).reshape(rows, columns)
    moved = [np.roll(cell, 1, axis=axis).ravel() for axis in (0, 1)]
    pairs = [np.stack([cell.ravel(), to], axis=1) for to in moved]
    return Digraph(n, np.concatenate(pairs)).both_ways()


def hypercube(n: int) -> Digraph:
    """Nodes whose numbers differ in one binary digit exchange; n is a power of two."""
    if n < 1 or n & (n - 1):
        below = 1 << max(n.bit_length() - 1, 0)
        raise ParameterError(
            message(
                f"a hypercube has 2^k nodes, got n = {n}", hint=f"take n = {below} or {2 * below}"
            )
        )
    flips = [1 << k for k in range(n.bit_length() - 1)]
    return Digraph(n, [(i, i ^ flip) for i in range(n) for flip in flips])


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
    return _circulant(n, [2**k for k in range((n - 1).bit_length())])


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
    if sub_ring_size < 2:
        raise ParameterError(f"a sub-ring needs at least 2 nodes, got {sub_ring_size}")
    if layout == "flower":
        petals = range(1, n, sub_ring_size - 1)
        rings = [[0, *range(k, min(k + sub_ring_size - 1, n))] for k in petals]
        return Digraph(n, [edge for ring in rings for edge in _cycle(ring)])
    if layout == "nested":
        chords = [2**k for k in range(1, n.bit_length()) if 2**k < n]
        return Digraph(n, _cycle(range(n)) + [(k, 0) for k in chords])
    if layout == "clique-heads":
        heads = range(0, n, sub_ring_size)
        rings = [list(range(k, min(k + sub_ring_size, n))) for k in heads]
        edges = [edge for ring in rings for edge in _cycle(ring)]
        return Digraph(n, edges + [e for a, b in combinations(heads, 2) for e in ((a, b), (b, a))])
    raise ParameterError(
        message(f"unknown layout {layout!r}", hint="one of: flower, nested, clique-heads")
    )


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
    if branching < 1:
        raise ParameterError(f"a tree needs branching at least 1, got {branching}")
    Digraph(n, [])  # refuses n < 1 in its own words
    R = tree_weights(np.maximum((np.arange(n) - 1) // branching, 0), root=0)
    return Network(R, csr_array(R.T))


def _circulant(n: int, hops: list[int]) -> Digraph:
    return Digraph(n, [(i, (i + hop) % n) for i in range(n) for hop in hops])


def _cycle(ring: "list[int] | range") -> list[tuple[int, int]]:
    return [(ring[k], ring[(k + 1) % len(ring)]) for k in range(len(ring))]


def _sides(n: int, rows: int) -> tuple[int, int]:
    Digraph(n, [])
    if rows == 0:
        rows = max(k for k in range(1, int(n**0.5) + 1) if n % k == 0)
    if rows < 1 or n % rows:
        raise ParameterError(
            message(f"{n} nodes do not fill {rows} rows", hint="rows must divide n")
        )
    return rows, n // rows
