"""Connectivity of the graph a weight matrix induces: parts, roots, period.

Throughout, W[i, j] > 0 is the edge j -> i: row i is what i receives.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.networks.digraph import Nodes


def strong_parts(W: csr_array) -> list[Nodes]:
    """Return the strongly connected parts, largest first (ties: smallest node first)."""
    _, labels = strong_labels(W)
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return sorted(parts, key=lambda part: (-len(part), int(part[0])))


def source_parts(W: csr_array) -> list[Nodes]:
    """Return the strongly connected parts that receive nothing from outside themselves."""
    count, labels = strong_labels(W)
    entries = W.tocoo()
    receiver, sender = labels[entries.coords[0]], labels[entries.coords[1]]
    fed = np.zeros(count, dtype=bool)
    fed[receiver[receiver != sender]] = True
    nodes = np.flatnonzero(~fed[labels])
    order = nodes[np.argsort(labels[nodes], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def roots(W: csr_array) -> Nodes:
    """Return the root set R_W: the nodes from which every node can be reached  (section 1.3).

    It is the one strongly connected part without a link from outside; empty when there
    are several such parts, since then no node reaches them all.

    >>> roots(csr_array([[1.0, 0.0], [0.5, 0.5]])).tolist()
    [0]
    """
    sources = source_parts(W)
    return sources[0] if len(sources) == 1 else np.zeros(0, dtype=np.int64)


def period(W: csr_array, part: Nodes) -> int:
    """Return the period of a strongly connected part: the gcd of its cycle lengths.

    A row-stochastic matrix with root set ``part`` is exponentially decaying
    (Definition 2.3) exactly when this is 1: the powers of a periodic one keep turning.

    >>> period(csr_array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]))
    2
    """
    inner = W[part][:, part]
    if inner.diagonal().any():
        return 1
    depth = hops(csr_array(inner.T), np.array([0]))[0].astype(np.int64)
    entries = inner.tocoo()
    return int(np.gcd.reduce(np.abs(depth[entries.coords[1]] + 1 - depth[entries.coords[0]])))


def largest_rooted_part(R: csr_array, C: csr_array) -> Nodes:
    """Return the most nodes among which one reaches all by R, and all reach it by C.

    The part around a node s of the part around r lies within that: r reaches s by R, and s
    reaches r by C, so both together are a part around r. Only nodes outside are tried.
    """
    best = np.zeros(0, dtype=np.int64)
    tried = np.zeros(R.shape[0], dtype=bool)
    for root in range(R.shape[0]):
        if not tried[root]:
            part = _around(R, C, root)
            tried[part] = True
            best = max(best, part, key=len)
    return best


def _around(R: csr_array, C: csr_array, root: int) -> Nodes:
    """Return the nodes that a root reaches by pull links and that reach it by push links."""
    from scipy.sparse.csgraph import breadth_first_order

    part, inside = np.arange(R.shape[0]), root
    while True:
        down, up = csr_array(R[part][:, part].T), csr_array(C[part][:, part])
        reached = [breadth_first_order(W, inside, return_predecessors=False) for W in (down, up)]
        kept = np.intersect1d(*reached)
        if len(kept) == len(part):
            return part
        inside = int(np.searchsorted(kept, inside))
        part = part[kept]


SMALL = 64  # nodes up to which powers of a dense matrix tell who reaches whom


def hops(sends: csr_array, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how far every node is from each source: (sources, nodes), infinite if never reached.

    Small graphs are searched by NumPy, as SciPy's searches import all its linear algebra, which
    takes longer than to analyze a small network.

    Args:
        sends: entry (j, i) is the link from j to i.
        sources: where to start.

    >>> hops(csr_array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), np.array([0, 2]))
    array([[ 0.,  1.,  2.],
           [inf, inf,  0.]])
    """
    if sends.shape[0] > SMALL:
        from scipy.sparse.csgraph import dijkstra

        return np.atleast_2d(dijkstra(sends, unweighted=True, indices=sources))
    links = (sends.toarray() != 0).astype(np.float64)
    depth = np.full((len(sources), len(links)), np.inf)
    new = np.zeros(depth.shape, dtype=bool)
    new[np.arange(len(sources)), sources] = True
    level = 0
    while new.any():
        depth[new] = level
        new = (new @ links > 0) & np.isinf(depth)
        level += 1
    return depth


def strong_labels(W: csr_array) -> tuple[int, NDArray[np.int64]]:
    """Return how many strongly connected parts there are, and the part of every node.

    Parts are numbered by their smallest node.

    >>> strong_labels(csr_array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    (2, array([0, 1, 1]))
    """
    if W.shape[0] > SMALL:
        from scipy.sparse.csgraph import connected_components

        labels = connected_components(W, directed=True, connection="strong")[1]
    else:
        reached = np.isfinite(hops(W, np.arange(W.shape[0])))
        labels = np.argmax(reached & reached.T, axis=1)  # each node's smallest companion
    _, first, places = np.unique(labels, return_index=True, return_inverse=True)
    return len(first), np.argsort(np.argsort(first))[places]
