"""The pair of weight matrices a method runs on, validated once.

Of a ``Slot``, the weights of one step, rows of R and columns of C sum to one, and nothing more
is asked; a ``Network`` has roots and decays.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse

from digrad.base.digests import arrays_digest
from digrad.base.errors import NetworkError, message, param, short_repr
from digrad.base.machine import check_memory
from digrad.networks.capacities import Capacities
from digrad.networks.digraph import LARGEST_N, Digraph, Nodes, check_names
from digrad.networks.structure import period, roots, source_parts

WEIGHT_BYTES = 160  # that a weight takes while a network of it is made
SUM_TOLERANCE = 1e-9  # how far a line may be from 1, as when weights were printed with 10 digits


@dataclass(frozen=True, eq=False, repr=False)
class Slot:
    """Row-stochastic R and column-stochastic C, which may leave nodes without a link.

    One slot of a timetable need not connect anybody; a ``Network`` is one that does.

    >>> Slot([[1, 0], [0.5, 0.5]], [[1, 0], [0, 1]])
    Slot(n=2, pull edges=1, push edges=0)
    """

    R: csr_array
    C: csr_array
    names: tuple[str, ...] | None  # what the nodes are called outside digrad
    title: str  # what tables call it; no part of what it is
    capacities: Capacities | None  # what the links can carry, where that is known
    notes: tuple[str, ...]  # what was left out when it was read

    def __init__(
        self,
        R: Any,
        C: Any,
        names: Iterable[str] | None = None,
        *,
        capacities: Capacities | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        pull, push = weight_matrix(R, "R"), weight_matrix(C, "C")
        if pull.shape != push.shape:
            raise NetworkError(f"R is {_size(pull)} but C is {_size(push)}: both need n rows")
        _check_order(pull, push)
        pull, push = _stochastic(pull, "R", axis=1), _stochastic(push, "C", axis=0)
        fields = {"R": pull, "C": push, "names": check_names(pull.shape[0], names)}
        fields |= {"title": "", "capacities": capacities, "notes": tuple(notes)}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Show sizes, not matrices."""
        pull, push = len(self.pull_graph.edges), len(self.push_graph.edges)
        return f"{type(self).__name__}(n={self.n}, pull edges={pull}, push edges={push})"

    @property
    def n(self) -> int:
        """The number of nodes."""
        return int(self.R.shape[0])

    @property
    def pull_graph(self) -> Digraph:
        """G_R: j -> i where i pulls the model of j."""
        return self._graph(self.R)

    @property
    def push_graph(self) -> Digraph:
        """G_C: j -> i where j pushes part of its tracker to i."""
        return self._graph(self.C)

    def _graph(self, W: csr_array) -> Digraph:
        edges = support(W).edges
        return Digraph(self.n, edges, self.names, capacities=self.capacities, notes=self.notes)

    def name(self, node: int) -> str:
        """Return what a node is called in the network's source; its number if nothing else."""
        return str(node) if self.names is None else self.names[node]

    def called(self, title: str) -> Self:
        """Return the same network under a name for tables and figures."""
        made = copy(self)
        object.__setattr__(made, "title", title)
        return made

    def digest(self) -> str:
        """Return a checksum of R and C, the same on every machine."""
        both = [W.sorted_indices() for W in (self.R, self.C)]
        links = [part.astype("<i8") for W in both for part in (W.indptr, W.indices)]
        return arrays_digest(*links, *(W.data.astype("<f8") for W in both))


def support(W: csr_array) -> Digraph:
    """Return the graph a matrix induces: j -> i where W[i, j] > 0  (section 1.3)."""
    receivers, senders = W.nonzero()
    return Digraph(W.shape[0], np.stack([senders, receivers], axis=1).astype(np.int64))


def _size(W: csr_array) -> str:
    return f"{W.shape[0]} x {W.shape[1]}"


def weight_matrix(W: Any, name: str) -> csr_array:
    """Return a square matrix of weights, or say what is wrong with it."""
    try:
        given: Any = W if issparse(W) else np.asarray(W)
        if given.ndim != 2 or given.dtype.kind not in "biuf":
            raise NetworkError(
                f"{name} must be a matrix of real numbers, got shape {given.shape} "
                f"and type {given.dtype}"
            )
        if max(given.shape) > LARGEST_N:
            raise NetworkError(f"{name} is {_size(given)}: digrad takes at most {LARGEST_N} nodes")
        count = given.nnz if issparse(given) else int(np.count_nonzero(given))
        what = f"a network with {count:,} weights in {name}"
        check_memory(count * WEIGHT_BYTES, what, error=NetworkError)
        matrix = csr_array(given, dtype=np.float64, copy=True)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"{name} is not a matrix of real numbers: {error}") from error
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise NetworkError(f"{name} is {_size(matrix)}: it needs one row and one column per node")
    _check_signs(matrix, name)
    return matrix


def _check_signs(W: csr_array, name: str) -> None:
    wrong = np.flatnonzero(~(np.isfinite(W.data) & (W.data >= 0)))
    if not len(wrong):
        return
    i = int(np.searchsorted(W.indptr, wrong[0], side="right")) - 1
    j, value = int(W.indices[wrong[0]]), W.data[wrong[0]]
    what = "negative" if np.isfinite(value) else "not a finite number"
    raise NetworkError(
        f"{name}[{i}, {j}] = {value:.6g} is {what} (Assumption 2.4)",
        hint="weights are shares: at least 0, each line summing to 1",
    )


def _check_order(R: csr_array, C: csr_array) -> None:
    """Notice that the two matrices were given the wrong way round."""
    with np.errstate(over="ignore"):
        by_row, by_column = (
            [bool(np.allclose(W.sum(axis=axis), 1, rtol=0, atol=SUM_TOLERANCE)) for W in (R, C)]
            for axis in (1, 0)
        )
    if by_column[0] and by_row[1] and not (by_row[0] or by_column[1]):
        raise NetworkError(
            "R is column-stochastic and C is row-stochastic: they look swapped",
            hint="give R first, then C",
        )


def _stochastic(W: csr_array, name: str, *, axis: int) -> csr_array:
    line = ("column", "row")[axis]
    with np.errstate(over="ignore"):  # an overflow shows in the sum that is reported
        sums = np.asarray(W.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        swapped = np.allclose(np.asarray(W.sum(axis=1 - axis)), 1, rtol=0, atol=SUM_TOLERANCE)
        raise NetworkError(
            f"{name} is not {line}-stochastic: {line} {worst} sums to {sums[worst]:.10g} "
            "(Assumption 2.4)",
            hint=f"pass {name}.T" if swapped else f"divide each {line} by its sum",
        )
    # Digits cut off in a file would pass for a leak of mass: restore sums of 1 to rounding.
    longest = int(np.bincount(W.nonzero()[1 - axis]).max())
    if abs(sums[worst] - 1) > max(1e-12, longest * np.finfo(float).eps):
        lines = W.nonzero()[1 - axis]
        W.data = W.data / sums[lines]
    return W


@dataclass(frozen=True, eq=False, repr=False)
class Network(Slot):
    """Row-stochastic R to pull models with, column-stochastic C to push trackers with.

    Construction checks everything the paper asks of the pair: shapes, signs, sums
    (Assumption 2.4), a common root (Assumption 2.1) and exponential decay
    (Definition 2.3). What exists is therefore valid. Matrices may be dense or sparse and
    are kept sparse; W[i, j] is what node i receives from node j.

    >>> Network([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])
    Network(n=2, pull edges=2, push edges=2, roots=2)
    """

    pull_roots: Nodes  # R_R: nodes whose model reaches everybody
    push_roots: Nodes  # R_{C^T}: nodes that every tracker reaches
    roots: Nodes  # both

    def __init__(
        self,
        R: Any,
        C: Any,
        names: Iterable[str] | None = None,
        *,
        capacities: Capacities | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        super().__init__(R, C, names, capacities=capacities, notes=notes)
        pull, push = roots(self.R), roots(self.C.T.tocsr())
        common = pull[np.isin(pull, push)]
        for field, value in (("pull_roots", pull), ("push_roots", push), ("roots", common)):
            object.__setattr__(self, field, value)
        if not len(common):
            raise NetworkError(_no_common_root(self, pull, push))
        both = ((self.R, "R", self.pull_roots), (self.C.T, "C", self.push_roots))
        for matrix, name, part in both:
            _check_decay(matrix.tocsr(), name, part, self)

    def __repr__(self) -> str:
        """Show sizes, not matrices."""
        return f"{super().__repr__()[:-1]}, roots={len(self.roots)})"

    def with_weights(self, R: Any, C: Any) -> "Network":
        """Return other weights for the same nodes, with what is known about their links."""
        return Network(R, C, self.names, capacities=self.capacities, notes=self.notes)

    def relabel(self, order: Nodes) -> "Network":
        """Return the same network with node ``order[k]`` numbered k."""
        try:
            fine = np.array_equal(np.sort(order), np.arange(self.n))
        except (TypeError, ValueError):
            fine = False
        if not fine:
            what = f"an order of {self.n} nodes names each of them once, got {short_repr(order)}"
            raise NetworkError(what, hint="for example range(n)")
        names = None if self.names is None else [self.names[i] for i in order]
        R, C = (W[order][:, order] for W in (self.R, self.C))
        known = self.capacities and self.capacities.renumbered(np.argsort(order), self.n)
        return Network(R, C, names, capacities=known, notes=self.notes)


def list_names(net_or_graph: Slot | Digraph, nodes: Nodes, most: int = 8) -> str:
    """Name a few nodes for an error text: ``a, b, c and 7 more``."""
    short_repr = ", ".join(net_or_graph.name(int(i)) for i in nodes[:most])
    return short_repr + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def _no_common_root(net: Network, pull: Nodes, push: Nodes) -> str:
    details = [
        f"roots of the pull graph:          {list_names(net, pull) or 'none'}",
        f"roots of the reversed push graph: {list_names(net, push) or 'none'}",
    ]
    for found, W, what in (
        (pull, net.R, "no pull link comes in to"),
        (push, net.C.T.tocsr(), "no push link leads out of"),
    ):
        if not len(found):
            parts = [f"{{{list_names(net, part, 4)}}}" for part in source_parts(W)]
            more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
            details.append(f"{what} these parts: {', '.join(parts[:4])}{more}")
    hint = "one strongly connected graph for both is always enough; "
    hint += f"{param('largest_component', True)} keeps the largest such part of a graph"
    if len(push) == net.n:
        hint = "methods that only push, such as sgp and push-diging, take C alone: leave R out"
    return message(
        "no node can both collect every gradient and reach every node (Assumption 2.1)",
        *details,
        hint=hint,
    )


def _check_decay(A: csr_array, name: str, part: Nodes, net: Network) -> None:
    """Definition 2.3 holds exactly when the root part is aperiodic."""
    cycle = period(A, part)
    if cycle == 1:
        return
    raise NetworkError(
        f"the powers of {name} never settle: every cycle among its roots "
        f"{{{list_names(net, part)}}} has a length divisible by {cycle} (Definition 2.3)",
        hint=f"give one of them a positive weight {name}[i, i], as lazy weights do",
    )
