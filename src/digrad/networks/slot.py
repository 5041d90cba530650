"""The weights of one step: rows of R and columns of C sum to one, and nothing more is asked."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse

from digrad.base.digests import arrays_digest
from digrad.base.errors import NetworkError, message
from digrad.base.machine import check_memory
from digrad.networks.capacities import Capacities
from digrad.networks.digraph import LARGEST_N, Digraph, check_names

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
        message(
            f"{name}[{i}, {j}] = {value:.6g} is {what} (Assumption 2.4)",
            hint="weights are shares: at least 0, each line summing to 1",
        )
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
            message(
                "R is column-stochastic and C is row-stochastic: they look swapped",
                hint="give R first, then C",
            )
        )


def _stochastic(W: csr_array, name: str, *, axis: int) -> csr_array:
    line = ("column", "row")[axis]
    with np.errstate(over="ignore"):  # an overflow shows in the sum that is reported
        sums = np.asarray(W.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        swapped = np.allclose(np.asarray(W.sum(axis=1 - axis)), 1, rtol=0, atol=SUM_TOLERANCE)
        raise NetworkError(
            message(
                f"{name} is not {line}-stochastic: {line} {worst} sums to {sums[worst]:.10g} "
                "(Assumption 2.4)",
                hint=f"pass {name}.T" if swapped else f"divide each {line} by its sum",
            )
        )
    # Digits cut off in a file would pass for a leak of mass: restore sums of 1 to rounding.
    longest = int(np.bincount(W.nonzero()[1 - axis]).max())
    if abs(sums[worst] - 1) > max(1e-12, longest * np.finfo(float).eps):
        lines = W.nonzero()[1 - axis]
        W.data = W.data / sums[lines]
    return W
