"""N5..N9, V and V_R of sparse networks that mix fast: term by term, with sparse products only.

B_{t+1} = R(B_t + C̃ᵗ) - 1v_t and A_t = B_{t+1} - R̃ᵗ⁺¹Π_C, so that a term costs three products of a
sparse matrix with a block of columns. Up to 1500 nodes spectral norms are certified; above,
each stands bounded by min{‖·‖_F, √(‖·‖₁‖·‖_∞)}, while V and V_R, sums of Frobenius norms, stay
exact. The tail is bounded by the sums of ‖R̃ᵗ‖ and ‖C̃ᵗ‖ themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from digrad.base.streams import Draws
from digrad.networks.network import Network
from digrad.theory.bracket import Bracket, brackets
from digrad.theory.eigenvectors import Perron, Vector
from digrad.theory.norms import EPS, MATRIX_SUMS, Matrix

MOST_TERMS = 60
BLOCK = 1_000_000  # numbers in a block of columns
MOST_WORK = 2.5e11  # products and additions: two minutes
BOUNDED_RTOL = 1e-2  # of tails, where each term is only bounded
NAMES = ("R", "C", "A", "B", "D", "X", "U")


class Term(NamedTuple):
    """The t-th matrices, or some columns of them."""

    R: Matrix  # R̃ᵗ
    C: Matrix  # C̃ᵗ
    A: Matrix
    B: Matrix
    D: Matrix  # A_t - A_{t-1}
    X: Matrix
    U: Matrix


@dataclass
class MatrixNorms:
    """Norms of one matrix, from blocks of its columns."""

    square: float = 0.0  # ‖·‖_F²
    column: float = 0.0  # ‖·‖₁, the largest column
    rows: Vector | float = 0.0

    def add(self, block: Matrix, lines: bool) -> None:
        """Take more columns into account; without ``lines``, by ‖·‖_F alone."""
        self.square += float(np.vdot(block, block))
        if not lines:
            self.column = self.rows = np.inf
            return
        size = np.abs(block)
        self.column = max(self.column, float(size.sum(axis=0).max()))
        self.rows = self.rows + size.sum(axis=1)

    @property
    def least(self) -> float:
        """What ‖·‖₂ is at least: the root mean square of all singular values."""
        return float(np.sqrt(self.square / np.size(self.rows))) if np.ndim(self.rows) else 0.0

    @property
    def bound(self) -> float:
        """What ‖·‖₂ is at most."""
        return float(min(np.sqrt(self.square), np.sqrt(self.column * np.max(self.rows))))


@dataclass
class Walk:
    """The recursion on a network."""

    net: Network
    p: Perron
    pulls: list[Vector] = field(default_factory=list)  # R̃ᵗπ_C

    def terms(self, columns: Matrix) -> Iterator[Term]:
        """Yield the columns of the terms t = 1, 2, ... that multiply ``columns``."""
        R, C, p = self.net.R, self.net.C, self.p
        ones = columns.sum(axis=0)
        pull = R @ columns - p.pi_R @ columns
        push = C @ columns - np.outer(p.pi_C, ones)
        B, A, t = pull - np.outer(self._pull(1), ones), np.zeros_like(pull), 1
        while True:
            v = p.pi_R @ push
            after, B_after = R @ pull, R @ (B + push) - v
            A_after = B_after - after + np.outer(self._pull(t + 1), ones)
            D = A_after - A
            X = D + np.outer(self._pull(t), ones)
            yield Term(pull, push, A_after, B, D, X, X + v)
            pull, push, B, A, t = after, C @ push, B_after, A_after, t + 1

    def _pull(self, t: int) -> Vector:
        while len(self.pulls) <= t:
            before = self.pulls[-1] if self.pulls else None
            self.pulls.append(self.p.pi_C - self.p.pi if before is None else self.net.R @ before)
        return self.pulls[t]

    def lifetime(self, rtol: float, most: int) -> int | None:
        """Return how many terms matter, judging by a few columns; none if more than ``most``."""
        start = Draws(0).uniform(8 * self.net.n).reshape(self.net.n, 8) - 0.5
        scale = 0.0
        for t, term in enumerate(self.terms(start), 1):
            size = max(float(np.linalg.norm(M)) for M in (term.R, term.C, term.B))
            scale = max(scale, size)
            if size <= 0.01 * rtol * scale:
                return t + 4
            if t >= most:
                return None
        return None


def sparse_sums(net: Network, p: Perron, rtol: float, dense: bool) -> dict[str, Bracket] | None:
    """Bracket N5..N9, V and V_R, or give up on a network that mixes slowly or is too large.

    With ``dense``, spectral norms are certified; without, bounded from above only.
    """
    walk = Walk(net, p)
    rtol = rtol if dense else max(rtol, BOUNDED_RTOL)
    term = 2.0 * net.n * (3 * net.R.nnz + 20 * net.n)
    most = int(MOST_WORK / term)
    count = walk.lifetime(rtol, min(most, MOST_TERMS) if dense else most) if most > 4 else None
    if count is None:
        return None
    sizes = [{name: MatrixNorms() for name in NAMES} for _ in range(count)]
    sums, width = _Sums(rtol), net.n if dense else max(1, BLOCK // net.n)
    for k in range(0, net.n, width):
        columns = np.eye(net.n, min(width, net.n - k), -k)
        for term, found in zip(walk.terms(columns), sizes, strict=False):
            for name in NAMES:
                found[name].add(getattr(term, name), lines=not dense or name in "RC")
            if dense:
                sums.add(term, found)
    if not dense:
        for found in sizes:
            sums.add(None, found)
    return sums.brackets(sizes, walk)


class _Sums:
    """Lower and upper sums of the terms, in the order N5, N6, N7, N8, N9, V, V_R."""

    def __init__(self, rtol: float) -> None:
        self.rtol = rtol
        self.low, self.high = np.zeros(7), np.zeros(7)

    def add(self, term: Term | None, sizes: dict[str, MatrixNorms]) -> None:
        """Add one term; without the matrices, spectral norms are bounded from above only."""
        ends, grams = {}, dict[str, Matrix]()
        for name, total in (("A", 0), ("B", 1), ("D", 3), ("X", 4)):
            bound, reached = sizes[name].bound, self.high[total] ** (0.5 if name == "B" else 1)
            if term is None or bound <= 0.01 * self.rtol * reached:
                ends[name] = sizes[name].least, bound
            else:
                exact = min(1e-4, 0.05 * self.rtol * max(1.0, reached / bound))
                grams[name] = _gram(term, name, grams.get("D"))
                ends[name] = norm_bracket(grams[name], exact)
        squares = [sizes[name].square for name in ("U", "R")]
        for k, sums in enumerate((self.low, self.high)):
            a, b, d, x = (ends[name][k] for name in ("A", "B", "D", "X"))
            sums += np.array([a, b**2, d**2, d, x, *squares])

    def brackets(
        self, sizes: list[dict[str, MatrixNorms]], walk: Walk
    ) -> dict[str, Bracket] | None:
        """Add the proved tails."""
        rests = _rests(sizes, walk)
        if rests is None:
            return None
        error = 64 * EPS * len(sizes) * self.high
        ends = brackets(self.low - error, self.high + error + rests)
        return dict(zip(MATRIX_SUMS, ends, strict=True))


def _rests(sizes: list[dict[str, MatrixNorms]], walk: Walk) -> Vector | None:
    """Bound what comes after the last term; B_{t+s} = R̃ˢB_t + B_sC̃ᵗ, and all follows from B."""
    pulls, pushes = (_power_sum([found[name].bound for found in sizes]) for name in "RC")
    if not (np.isfinite(pulls) and np.isfinite(pushes)):
        return None
    last, root = sizes[-1], float(np.sqrt(walk.net.n))
    size = {name: float(np.sqrt(last[name].square)) for name in NAMES}
    settled = root * float(np.linalg.norm(walk.p.pi_C))  # ‖π_C1ᵀ‖
    B = pulls * (size["B"] + pushes * size["C"])
    A = B + pulls * size["R"] * (1 + settled)
    D = 2 * A + size["A"]
    X = D + settled * pulls * size["R"]
    U = X + root * pushes * size["C"] * float(np.linalg.norm(walk.p.pi_R))
    return np.array([A, B**2, D**2, D, X, U**2, (pulls * size["R"]) ** 2])


def _power_sum(bounds: list[float]) -> float:
    """Bound Σₛ≥₀ ‖Lˢ‖ from bounds on ‖L‖, ‖L²‖, .., ‖Lᵐ‖."""
    return (1 + sum(bounds[:-1])) / (1 - bounds[-1]) if bounds[-1] < 0.5 else float(np.inf)


def _gram(term: Term, name: str, of_D: Matrix | None) -> Matrix:
    """Return AAᵀ; X = D + w1ᵀ, so that XXᵀ is DDᵀ and a few outer products."""
    A: Matrix = getattr(term, name)
    if name != "X" or of_D is None:
        return A @ A.T
    w, sums = A[:, 0] - term.D[:, 0], term.D.sum(axis=1)
    turned = np.outer(w, sums + len(w) / 2 * w)
    return of_D + turned + turned.T


def norm_bracket(gram: Matrix, rtol: float) -> tuple[float, float]:
    """Return certified ends of ‖A‖₂ from AAᵀ: a Ritz value below, a Cholesky factor above.

    μI - AAᵀ has one exactly if ‖A‖₂² < μ, and trying costs a fraction of all eigenvalues.
    """
    from scipy.sparse.linalg import ArpackError, eigsh

    try:
        start = Draws(0).uniform(len(gram)) - 0.5
        found = eigsh(gram, k=1, which="LA", v0=start, tol=rtol / 4, return_eigenvectors=False)
        largest = float(found[0])
        for width in (rtol, 30 * rtol, 1e3 * rtol):
            if _above(gram, largest * (1 + width)):
                ends = largest * (1 - rtol / 4), largest * (1 + width)
                return float(np.sqrt(ends[0])), float(np.sqrt(ends[1]))
    except ArpackError:
        pass
    exact = float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0)))
    return exact * (1 - rtol), exact * (1 + rtol)


def _above(gram: Matrix, bound: float) -> bool:
    from scipy.linalg import lapack

    shifted = np.negative(gram, order="F")
    shifted.flat[:: len(gram) + 1] += bound
    return bool(lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)[1] == 0)
