"""Zero-one weights on spanning trees: the networks of BTPP and STPP."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.errors import NetworkError, message, param
from digrad.networks.digraph import Digraph, Nodes
from digrad.networks.structure import hops, roots

MOST_ROOTS = 2000  # candidates whose trees are measured; each costs one search of the graph
MOST_VISITS = 100_000_000  # nodes and links that all searches visit: some ten seconds
AT_ONCE = 1 << 23  # depths held at a time: 64 MB


def tree_weights(parent: NDArray[np.int64], root: int) -> csr_array:
    """Return T with T[root, root] = 1 and T[i, parent(i)] = 1: everybody copies its parent.

    The root has the only self-loop. As R it hands models down the tree; its transpose,
    as C, hands whole trackers up.

    >>> tree_weights(np.array([0, 0, 0]), root=0).toarray().tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    n = len(parent)
    senders = parent.copy()
    senders[root] = root
    return csr_array((np.ones(n), (np.arange(n), senders)), shape=(n, n))


def breadth_first_parents(graph: Digraph, root: int) -> tuple[Nodes, Nodes]:
    """Return each node's parent in a shortest-path tree from the root, and its depth.

    Among several possible parents the smallest number wins.
    """
    depth = _depths(graph, np.array([root]))[0]
    if np.isinf(depth).any():
        lost = int(np.flatnonzero(np.isinf(depth))[0])
        raise NetworkError(
            f"node {graph.name(lost)} cannot be reached from root {graph.name(root)}"
        )
    parent = np.full(graph.n, graph.n)
    forward = depth[graph.senders] + 1 == depth[graph.receivers]
    np.minimum.at(parent, graph.receivers[forward], graph.senders[forward])
    parent[root] = root
    return parent, depth.astype(np.int64)


def best_root(pull: Digraph, push: Digraph) -> int:
    """Return the common root whose two trees are least deep together; ties to the smallest.

    With more than ``MOST_ROOTS`` common roots, or in graphs so large that searching from them
    all takes long, fewer, evenly spread ones are tried.
    """
    common = np.intersect1d(roots(pull.adjacency()), roots(push.reverse().adjacency()))
    if not len(common):
        raise NetworkError(
            message(
                "the two graphs have no common root, so no pair of spanning trees (Assumption 2.1)",
                hint="one strongly connected graph for both is always enough; "
                f"{param('largest_component', True)} keeps the largest such part of a graph",
            )
        )
    visits = 2 * pull.n + len(pull.edges) + len(push.edges)
    most = max(1, min(MOST_ROOTS, MOST_VISITS // visits))
    if len(common) > most:
        common = common[np.linspace(0, len(common) - 1, most).astype(np.int64)]
    return int(common[np.argmin(_deepest(pull, common) + _deepest(push.reverse(), common))])


def spanning_tree_weights(
    pull: Digraph, push: Digraph, root: int | None = None
) -> tuple[csr_array, csr_array]:
    """Zero-one weights on breadth-first trees: models flow from the best root, trackers to it.

    References:
        You & Pu, Distributed Learning over Arbitrary Topology: Linear Speed-Up with
        Polynomial Transient Time, 2025 (STPP).
    """
    chosen = best_root(pull, push) if root is None else root
    down, _ = breadth_first_parents(pull, chosen)
    up, _ = breadth_first_parents(push.reverse(), chosen)
    return tree_weights(down, chosen), csr_array(tree_weights(up, chosen).T)


def _deepest(graph: Digraph, sources: Nodes) -> NDArray[np.float64]:
    """Return how deep the tree from each source is."""
    parts = np.array_split(sources, -(-len(sources) * graph.n // AT_ONCE))
    return np.concatenate([_depths(graph, part).max(axis=1) for part in parts if len(part)])


def _depths(graph: Digraph, sources: Nodes) -> NDArray[np.float64]:
    return hops(csr_array(graph.adjacency().T), sources)  # entry (j, i): the edge j -> i
