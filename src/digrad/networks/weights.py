"""Weights: from who can talk to whom to how much each message counts.

Every scheme takes the pull and the push graph and returns (R, C).
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

from digrad.base.checks import kind_of
from digrad.base.errors import NetworkError, ParameterError, lookup, param
from digrad.base.machine import check_memory
from digrad.networks.digraph import Digraph, Nodes
from digrad.networks.network import WEIGHT_BYTES, Network, list_names, support, weight_matrix
from digrad.networks.structure import hops, roots, strong_parts

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
            "the two graphs have no common root, so no pair of spanning trees (Assumption 2.1)",
            hint="one strongly connected graph for both is always enough; "
            f"{param('largest_component', True)} keeps the largest such part of a graph",
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


Pair = tuple[csr_array, csr_array]
PushGraph = Literal["same", "reverse"]
ENTRY_BYTES = 24  # that an entry of a sparse system takes once it is solved


def average_in(graph: Digraph, self_weight: float = 1.0) -> csr_array:
    """R[i, j] = 1/(1 + in-degree of i) on the links into i and on the diagonal  (section 5)."""
    rows = 1.0 / (self_weight + graph.in_degrees.astype(np.float64))
    return _scaled(graph, rows=rows, self_weight=self_weight)


def average_out(graph: Digraph, self_weight: float = 1.0) -> csr_array:
    """C[i, j] = 1/(1 + out-degree of j) on the links out of j and on the diagonal  (section 5)."""
    columns = 1.0 / (self_weight + graph.out_degrees.astype(np.float64))
    return _scaled(graph, columns=columns, self_weight=self_weight)


def uniform(pull: Digraph, push: Digraph, self_weight: float = 1.0) -> Pair:
    """Average over the in-neighbours, split evenly over the out-neighbours: the paper's weights.

    ``self_weight`` is how many neighbours a node's own share counts as: k/(k + degree).

    >>> R, C = uniform(Digraph(2, [(0, 1)]), Digraph(2, [(0, 1)]))
    >>> R.toarray().tolist(), C.toarray().tolist()
    ([[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.0], [0.5, 1.0]])
    """
    if not self_weight > 0:
        raise ParameterError(f"the self weight must be above 0, got {self_weight}")
    return average_in(pull, self_weight), average_out(push, self_weight)


def lazy(pull: Digraph, push: Digraph) -> Pair:
    """Uniform weights averaged with the identity: (I + R)/2, (I + C)/2.

    On a symmetric graph with doubly stochastic weights this makes them positive
    semidefinite (case 3 of Corollary 4.1).
    """
    half = eye_array(pull.n, format="csr") / 2
    R, C = uniform(pull, push)
    return csr_array(R / 2 + half), csr_array(C / 2 + half)


def metropolis(pull: Digraph, push: Digraph) -> Pair:
    """W[i, j] = 1/(1 + max(dᵢ, dⱼ)), the rest on the diagonal: symmetric, doubly stochastic."""
    for graph in (pull, push):
        if not graph.is_symmetric:
            there, back = (g.senders * g.n + g.receivers for g in (graph, graph.reverse()))
            j, i = divmod(int(np.setdiff1d(there, back)[0]), graph.n)
            raise NetworkError(
                "Metropolis weights need every link in both directions, but "
                f"{graph.name(j)} -> {graph.name(i)} has no way back",
                hint=f"use {param('weights', 'doubly-stochastic')}, or uniform",
            )
    return _metropolis(pull), _metropolis(push)


def doubly_stochastic(pull: Digraph, push: Digraph) -> Pair:
    """Scale the links and the diagonal until all rows and columns sum to 1  (Sinkhorn).

    Such weights exist exactly when every link lies on a cycle (Gharesifard & Cortes,
    European Journal of Control 2012), that is, when no link leads out of a strongly
    connected part.
    """
    W = sinkhorn(pull)
    return W, W if push is pull else sinkhorn(push)


WEIGHTS: dict[str, Callable[[Digraph, Digraph], Pair]] = {
    "uniform": uniform,
    "lazy": lazy,
    "metropolis": metropolis,
    "doubly-stochastic": doubly_stochastic,
    "spanning-tree": spanning_tree_weights,
}


def weigh(graph: Digraph, weights: str = "uniform", push_graph: str = "same") -> Network:
    """Build the network of a graph: pull over it, push over the same graph or its reverse.

    ``same`` is what one-way links allow; ``reverse`` is what the paper's text says
    ("let G_R and G_{C^T} be the same") and needs every link to work both ways.

    >>> weigh(Digraph(3, [(0, 1), (1, 2), (2, 0)]))
    Network(n=3, pull edges=3, push edges=3, roots=3)
    """
    kind_of(graph, "graph", Digraph, hint="`networks.load` and the topologies make one")
    scheme = lookup(WEIGHTS, weights, "weights")
    check_memory(
        (len(graph.edges) + graph.n) * WEIGHT_BYTES,
        f"a network of {graph.n:,} nodes and {len(graph.edges):,} links",
        error=NetworkError,
    )
    turn = {"same": lambda: graph, "reverse": graph.reverse}
    R, C = scheme(graph, lookup(turn, push_graph, "push graph")())
    return Network(R, C, graph.names, capacities=graph.capacities, notes=graph.notes)


def sinkhorn(graph: Digraph, tolerance: float = 1e-15) -> csr_array:
    """Return the doubly stochastic scaling D₁ (A + I) D₂ of a graph, to rounding.

    A few sweeps of Sinkhorn's iteration, then Newton's method on the logarithms of the
    scalings, which converges where Sinkhorn's crawls.
    """
    _check_cycles(graph)
    _check_hubs(graph)
    support = csr_array(graph.adjacency() + eye_array(graph.n, format="csr"))
    rows = columns = np.ones(graph.n)
    for _ in range(20):
        rows = 1.0 / (support @ columns)
        columns = 1.0 / (support.T @ rows)
    for _ in range(60):
        W = csr_array(diags_array(rows) @ support @ diags_array(columns))
        error = np.concatenate([np.asarray(W.sum(axis=1)), np.asarray(W.sum(axis=0))]) - 1
        if np.abs(error).max() <= tolerance * np.sqrt(graph.n) * 4:
            return W
        down, across = _newton_step(W, error)
        rows, columns = rows * np.exp(down), columns * np.exp(across)
    raise NetworkError(
        f"doubly stochastic scaling stalled at an error of {np.abs(error).max():.3g}",
        hint=f"use {param('weights', 'uniform')}",
    )


def _newton_step(W: csr_array, error: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import splu

    n = W.shape[0]
    total = np.asarray(W.sum(axis=1))
    # Eliminating the rows leaves the graph Laplacian of W^T D^-1 W in the columns; it is
    # singular along constants (scaling rows up and columns down) on each connected part, so
    # one column of each is pinned.
    schur = diags_array(np.asarray(W.sum(axis=0))) - W.T @ diags_array(1 / total) @ W
    right = -error[n:] + W.T @ (error[:n] / total)
    across = np.zeros(n)
    _, pinned = np.unique(connected_components(W)[1], return_index=True)
    free = np.setdiff1d(np.arange(n), pinned)
    if len(free):
        system = schur.tocsc()[free][:, free]
        _check_memory_of_factors(system)
        # It is symmetric and definite: no pivots, and the ordering for such matrices fills least.
        symmetric = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
        across[free] = splu(system, diag_pivot_thresh=0.0, **symmetric).solve(right[free])
    down = -(error[:n] + W @ across) / total
    size = max(np.abs(down).max(), np.abs(across).max())
    damp = min(1.0, 2.0 / size) if size else 1.0
    return damp * down, damp * across


def _check_hubs(graph: Digraph) -> None:
    """Refuse graphs whose Newton system would fill up: a hub joins all its neighbours."""
    degrees = graph.in_degrees
    filled = float((degrees.astype(np.float64) ** 2).sum())
    hub = f"node {graph.name(int(degrees.argmax()))} has {degrees.max()} in-links"
    check_memory(
        filled * ENTRY_BYTES,
        f"doubly stochastic weights need a system with {filled:.2g} entries, as {hub}, and that",
        hint=_cheaper_weights(),
        error=NetworkError,
    )


def _check_memory_of_factors(system: csr_array) -> None:
    """Refuse a system whose factors may fill up: they stay within its band, once it is narrow."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = system.shape[0]
    order = reverse_cuthill_mckee(system.tocsr(), symmetric_mode=True)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    entries = system.tocoo()
    width = 1 + int(np.abs(np.subtract(*(place[c] for c in entries.coords))).max(initial=0))
    what = f"to solve for the doubly stochastic weights of {n:,} nodes"
    check_memory(1.0 * n * width * ENTRY_BYTES, what, hint=_cheaper_weights(), error=NetworkError)


def _cheaper_weights() -> str:
    return f"use {param('weights', 'metropolis')} where links are two-way, or uniform"


def _check_cycles(graph: Digraph) -> None:
    labels = np.zeros(graph.n, dtype=np.int64)
    for k, part in enumerate(strong_parts(graph.adjacency())):
        labels[part] = k
    leaks = graph.edges[labels[graph.senders] != labels[graph.receivers]]
    if len(leaks):
        j, i = leaks[0].tolist()
        raise NetworkError(
            f"no doubly stochastic weights exist: the link {graph.name(j)} -> "
            f"{graph.name(i)} lies on no cycle, so mass that takes it never returns",
            f"links on no cycle: {len(leaks)}, out of nodes {list_names(graph, leaks[:, 0])}",
            hint=f"use {param('weights', 'uniform')}, or {param('largest_component', True)}",
        )


def _metropolis(graph: Digraph) -> csr_array:
    degrees = graph.in_degrees
    weight = 1.0 / (1 + np.maximum(degrees[graph.senders], degrees[graph.receivers]))
    shape = (graph.n, graph.n)
    off = csr_array((weight, (graph.receivers, graph.senders)), shape=shape)
    return csr_array(off + diags_array(1 - np.asarray(off.sum(axis=1))))


def _scaled(
    graph: Digraph,
    rows: NDArray[np.float64] | None = None,
    columns: NDArray[np.float64] | None = None,
    self_weight: float = 1.0,
) -> csr_array:
    ones = np.ones(graph.n)
    left, right = diags_array(ones if rows is None else rows), ones if columns is None else columns
    support = graph.adjacency() + self_weight * eye_array(graph.n, format="csr")
    return csr_array(left @ support @ diags_array(right))


NOTE = (
    "R was not given: it averages over the links of C. Methods that only push, such as sgp and "
    "push-diging, never use it; for push-pull give both"
)


def pushed_alone(C: Any) -> Network:
    """Complete column-stochastic C by the R that averages over the same links.

    Methods that only push need C alone, strongly connected; then this R is always valid. The
    network's notes say where it comes from.

    >>> pushed_alone([[0.5, 0.3], [0.5, 0.7]]).R.toarray().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    push = weight_matrix(C, "C")
    return Network(average_in(support(push)), push, notes=(NOTE,))
