"""Who reaches whom, and in how many hops.

SciPy searches graphs of any size, but its searches bring all its linear algebra along, and that
takes longer to import than a small network to be analyzed: small ones are searched by NumPy.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

SMALL = 64  # nodes up to which powers of a dense matrix tell who reaches whom


def hops(sends: csr_array, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how far every node is from each source: (sources, nodes), infinite if never reached.

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
