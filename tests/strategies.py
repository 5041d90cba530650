"""Random graphs and weights for hypothesis, small enough to check by brute force.

Weights come from bytes: quick to draw, and they shrink to equal weights on few links.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from digrad.networks.digraph import Digraph
from digrad.networks.network import Network

Draw = Callable[..., object]
Matrix = NDArray[np.float64]
Links = NDArray[np.bool_]  # [i, j]: j sends to i, as in a weight matrix


class Pair(NamedTuple):
    """A pull and a push matrix, and the roots they were built to have."""

    R: Matrix
    C: Matrix
    pull_roots: list[int]
    push_roots: list[int]


def reachability(W: Matrix | Links) -> Links:
    """Return [i, j]: whether i can be reached from j, by powers of I + W; the naive way."""
    step = np.eye(len(W)) + (np.asarray(W) > 0)
    return np.linalg.matrix_power(step, len(W)) > 0


def links_of(graph: Digraph) -> Links:
    """Return [i, j]: whether j sends to i, one edge at a time."""
    links = np.zeros((graph.n, graph.n), dtype=bool)
    for j, i in graph.edges.tolist():
        links[i, j] = True
    return links


@st.composite
def digraphs(draw: Draw, min_n: int = 1, max_n: int = 9) -> Digraph:
    """Any directed graph: empty, sparse or dense, in one part or in several."""
    n = draw(st.integers(min_n, max_n))
    return Digraph(n, np.argwhere(_some_links(draw, n)))


@st.composite
def strongly_connected(draw: Draw, min_n: int = 1, max_n: int = 9) -> Digraph:
    """Any strongly connected graph: ears grown from one node, in any order of nodes.

    Every such graph has an ear decomposition, so nothing is left out (as a cycle through
    all nodes with more links would leave out the star).
    """
    n = draw(st.integers(min_n, max_n))
    return Digraph(n, np.argwhere(_strong_links(draw, n).T))


@st.composite
def common_root_pairs(draw: Draw, min_n: int = 2, max_n: int = 9) -> Pair:
    """Weights with a common root of which neither graph is strongly connected."""
    n = draw(st.integers(min_n, max_n))
    first, second = (draw(st.permutations(range(n))) for _ in range(2))
    second.remove(first[0])
    second.insert(0, first[0])  # the first nodes of both orders are roots
    return _pair(draw, first, second, *(draw(st.integers(1, n - 1)) for _ in range(2)))


@st.composite
def no_common_root(draw: Draw, max_n: int = 9) -> Pair:
    """Stochastic weights with roots on both sides but none in common, or without roots."""
    n = draw(st.integers(2, max_n))
    order = draw(st.permutations(range(n)))
    size = draw(st.integers(1, n - 1))
    pair = _pair(draw, order, order[::-1], size, draw(st.integers(1, n - size)))
    if not draw(st.booleans()):
        return pair
    lonely = order[size]  # listens to nobody, nor does the first core listen to it
    R = pair.R.copy()
    R[lonely] = np.eye(n)[lonely]
    return pair._replace(R=R, pull_roots=[])


@st.composite
def periodic(draw: Draw) -> tuple[Matrix, Matrix, str]:
    """(R, C, name): the powers of the matrix named turn for ever; the other one is fine.

    Nodes of class k (mod d) send to class k + 1 only, as in a ring or a bipartite graph;
    a follower that keeps a share of its own data changes nothing.
    """
    d = draw(st.integers(2, 4))
    n = d * draw(st.integers(1, 8 // d))
    nodes = np.arange(n)
    ring = nodes[:, None] == (nodes + 1) % n
    steps = nodes[:, None] % d == (nodes + 1) % d
    links = np.zeros((n + 1, n + 1), dtype=bool)
    links[:n, :n] = (_some_links(draw, n) & steps) | ring
    links[n, [draw(st.integers(0, n - 1)), n]] = True
    followed = draw(st.booleans())
    turning = _row_stochastic(draw, links if followed else links[:n, :n])
    order = draw(st.permutations(range(len(turning))))
    turning = turning[np.ix_(order, order)]
    average = np.full_like(turning, 1 / len(turning))
    return (turning, average, "R") if draw(st.booleans()) else (average, turning.T, "C")


@st.composite
def stochastic_networks(draw: Draw, max_n: int = 9) -> Network:
    """Valid networks of 1 .. ``max_n`` nodes, strongly connected or not, any weights."""
    n = draw(st.integers(1, max_n))
    if n > 1 and draw(st.booleans()):
        pair = draw(common_root_pairs(min_n=n, max_n=n))
        return Network(pair.R, pair.C)
    R, C_T = (
        _row_stochastic(draw, _with_self_loops(draw, _strong_links(draw, n), [0])) for _ in "RC"
    )
    return Network(R, C_T.T)


def _pair(draw: Draw, first: list[int], second: list[int], sizes: int, others: int) -> Pair:
    R = _rooted(draw, first, sizes)
    C = _rooted(draw, second, others).T
    return Pair(R, C, sorted(first[:sizes]), sorted(second[:others]))


def _rooted(draw: Draw, order: list[int], size: int) -> Matrix:
    """Return row-stochastic weights whose roots are the first ``size`` nodes of an order."""
    n = len(order)
    links = _some_links(draw, n)
    links[:size] = False  # nobody outside feeds the core
    links[:size, :size] = _strong_links(draw, size)
    for i in range(size, n):
        links[i, draw(st.integers(0, i - 1))] = True
    place = np.argsort(order)
    links = _with_self_loops(draw, links, [0])[np.ix_(place, place)]
    return _row_stochastic(draw, links)


def _some_links(draw: Draw, n: int) -> Links:
    threshold = draw(st.sampled_from([230, 190, 128, 60]))
    return (_bytes(draw, n) > threshold) & ~np.eye(n, dtype=bool)


def _strong_links(draw: Draw, n: int) -> Links:
    links, grown = _some_links(draw, n), 1
    if not draw(st.booleans()):
        links[:] = False
    while grown < n:
        size = draw(st.integers(1, n - grown))
        start, end = (draw(st.integers(0, grown - 1)) for _ in range(2))
        ear = [start, *range(grown, grown + size), end]
        links[ear[1:], ear[:-1]] = True
        grown += size
    order = draw(st.permutations(range(n)))
    return links[np.ix_(order, order)]


def _with_self_loops(draw: Draw, links: Links, needed: list[int]) -> Links:
    """Give some nodes a share of their own data, the needed ones surely: no period then."""
    loops = np.diag(_bytes(draw, len(links))) > 100
    loops[needed] = True
    return links | np.diag(loops)


def _row_stochastic(draw: Draw, links: Links) -> Matrix:
    weights = np.where(links, 1.0 + _bytes(draw, len(links)), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _bytes(draw: Draw, n: int) -> NDArray[np.uint8]:
    drawn = draw(st.binary(min_size=n * n, max_size=n * n))
    return np.frombuffer(drawn, dtype=np.uint8).reshape(n, n)
