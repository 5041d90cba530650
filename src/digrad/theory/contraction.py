"""Proved bounds on how fast a large network mixes: ‖Aᵗ - 1πᵀ‖₂ ≤ K βᵗ for every t ≥ 0.

Two ways, both in docs/rate.md. In the norm weighted by π one step shrinks what is not constant
by the second singular value of S = Diag(π)^½ A Diag(π)^-½: a Cholesky factor of
(1 - δ)I - SᵀS + √π√πᵀ exists only if β² < 1 - δ. Where π has zeros or spans too much, or the
matrix does not fit, some columns of Aᵐ do: if their smallest entries add up to δ, any two rows
of Aᵐ overlap by δ (Doeblin).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from digrad.base.streams import Draws
from digrad.networks.network import Network
from digrad.theory.bracket import Bracket
from digrad.theory.eigenvectors import Perron, Vector
from digrad.theory.norms import EPS

Matrix = NDArray[np.float64]

DENSE_N = 12_000  # a matrix of more than a gigabyte, and a minute for its three factors
LARGEST_SKEW = 1e8  # max π / min π from which weighing by π gains nothing
SHARES = (0.95, 0.7, 0.3)  # of the estimated gap, tried until one is proved
COLUMNS = 64
MOST_NUMBERS = 4_000_000  # in a block of columns
MOST_WORK = 3e9  # entries of A touched for Doeblin's condition: ten seconds
HALF = 0.5  # of the weight of some columns: more steps would not double their overlap
LARGEST_OVERLAP = 0.9


@dataclass(frozen=True)
class Contraction:
    """‖Ãᵗ‖₂ ≤ K βᵗ for all t ≥ 0, with Ã = A - 1πᵀ and Ã⁰ = I - 1πᵀ."""

    scale: float  # K
    gap: float  # 1 - β
    moves: float  # Σₜ≥₁ ‖Ãᵗ(Ã - I)‖₂ ≤ K times this
    squares: float  # at least Σₜ≥₁ ‖Ãᵗ‖_F²
    projection: float  # ‖Ã⁰‖_F²
    gains: tuple[float, float]  # at least sup |z - 1| ‖Ãᵇ(z - Ã)⁻¹‖₂/K over |z| = 1, b = 0, 1

    @property
    def beta(self) -> float:
        """β."""
        return 1 - self.gap

    def norms(self, first: int) -> float:
        """Return Σ βᵗ from t = ``first`` on."""
        return float(self.beta**first / self.gap)

    def energy(self, first: int) -> float:
        """Return Σ β²ᵗ from t = ``first`` on."""
        return float(self.beta ** (2 * first) / (self.gap * (2 - self.gap)))

    def turns(self, first: int) -> float:
        """Bound ‖Ãᵇ‖ + Σₜ≥ᵇ ‖Ãᵗ(Ã - I)‖ over K, for b = ``first`` = 0 or 1."""
        return self.moves + (self.beta if first else 3 - self.gap)

    def frobenius(self, first: int) -> float:
        """Bound Σ ‖Ãᵗ‖_F² from t = ``first`` = 0 or 1 on."""
        return self.squares + (0.0 if first else self.projection)


def contraction(A: csr_array, pi: Vector) -> Contraction | None:
    """Prove how a row-stochastic matrix contracts; none if it mixes too slowly for a proof."""
    found = weighted_contraction(A, pi)
    if found is not None and found.scale <= sqrt(2 * A.shape[0]):
        return found
    others = [c for c in (found, doeblin_columns(A, pi)) if c is not None]
    return min(others, key=lambda c: c.scale / c.gap, default=None)


def weighted_contraction(A: csr_array, pi: Vector) -> Contraction | None:
    """Prove β in the norm weighted by π; none unless A is strongly connected and not too large."""
    n = A.shape[0]
    if n > DENSE_N or pi.min() <= 0 or pi.max() > LARGEST_SKEW * pi.min():
        return None
    root = np.sqrt(pi)
    S = csr_array(diags_array(root) @ A @ diags_array(1 / root))
    H = csr_array(S.T @ S)
    off = float(np.abs(A.T @ pi / pi - 1).max()) + 16 * EPS
    factor = _factor(H, root, 1.0)
    loss = 0.0 if factor is None else _proved_loss(H, root, _smallest(factor), off)
    if factor is None or loss <= 0:
        return None
    skew = float(pi.max() / pi.min())
    square = float(H.trace()) - 1 + n * off
    share = min(square / loss, _trace(factor, loss))
    gap = loss / (1 + sqrt(1 - loss))
    # An error in π lives for the mixing time.
    scale = sqrt(skew) * (1 + 4 * off / gap)
    lazy, off = float(A.diagonal().min()), float(abs(S - S.T).sum(axis=0).max())
    moves = min(_plain_moves(gap), _lazy_moves(gap, lazy), _symmetric_moves(gap, lazy, off))
    return Contraction(scale, gap, moves, scale**2 * share, _projection(pi), _gains(gap, lazy, off))


def _factor(H: csr_array, root: Vector, top: float) -> Matrix | None:
    """Return the Cholesky factor of ``top`` I - H + √π√πᵀ; none if it is not positive."""
    from scipy.linalg import lapack

    G = np.asfortranarray(np.outer(root, root))
    entries = H.tocoo()
    G[entries.coords] -= entries.data
    G.flat[:: len(root) + 1] += top
    L, failed = lapack.dpotrf(G, lower=1, clean=1, overwrite_a=1)
    return None if failed else L


def _smallest(L: Matrix) -> float:
    """Estimate the smallest eigenvalue of LLᵀ, by inverse iteration with a few vectors."""
    from scipy.linalg import lapack

    X = Draws(0).uniform(6 * len(L)).reshape(len(L), 6) - 0.5
    for _ in range(12):
        X, _ = np.linalg.qr(lapack.dpotrs(L, X, lower=1)[0])
    found = L.T @ X
    return float(np.linalg.eigvalsh(found.T @ found)[0])


def _proved_loss(H: csr_array, root: Vector, estimate: float, off: float) -> float:
    """Return a δ with β² ≤ 1 - δ for certain, or 0.

    A computed factor is that of a matrix within n EPS times the trace; ``off`` is how far
    √π may be from an eigenvector.
    """
    n = len(root)
    allowance = 4 * off + (n + 2) * EPS * (2 * n + 1)
    for share in SHARES:
        loss = share * estimate
        if loss > 2 * allowance and _factor(H, root, 1 - loss) is not None:
            return min(loss - allowance, 1.0)
    return 0.0


def _trace(L: Matrix, loss: float) -> float:
    """Bound Σ μ/(1 - μ) over the squared singular values μ of S̃: tr (I - SᵀS + √π√πᵀ)⁻¹ - n."""
    from scipy.linalg import lapack

    inverse, failed = lapack.dtrtri(L, lower=1, overwrite_c=1)
    if failed:
        return inf
    trace = float(np.vdot(inverse, inverse))
    return trace * (1 + 8 * len(L) * EPS / loss) - len(L)


def _plain_moves(gap: float) -> float:
    return (2 - gap) * (1 - gap) / gap


def _lazy_moves(gap: float, lazy: float) -> float:
    """With T = cI + (1 - c)S', ‖S'‖ ≤ 1, Tʲ(I - T) is at most 2(1 - c) times a binomial's peak."""
    if not 0 < lazy < 1 or gap >= 0.5:
        return inf
    rate = -log1p(-gap) / 2  # half of j steps spread the binomial, the other half shrink
    return math.pi * sqrt((1 - lazy) / (lazy * rate * (1 - gap)))


def _symmetric_moves(gap: float, lazy: float, off: float) -> float:
    """λʲ(1 - λ) ≤ 1/(2j + 2) up to j = β/(1 - β), βʲ(1 - β) after; geometric sums for λ < 0.

    ``off`` is at least ‖S - Sᵀ‖: half of it is what S differs by from a symmetric matrix.
    """
    last, below = ceil((1 - gap) / gap), _lowest(gap, lazy)
    above = log(last + 1) / 2 + (1 - gap) ** (last + 1)
    return above + below * (1 + below) / (1 - below) + 1.5 * off / gap**2


def _gains(gap: float, lazy: float, off: float) -> tuple[float, float]:
    """Bound sup |z - 1| ‖Tᵇ(z - T)⁻¹‖ over |z| = 1, for b = 0 and 1."""
    below, astray = _lowest(gap, lazy), off / gap**2
    symmetric = (
        2 / (1 - below) + astray,
        max(2 * (1 - gap) / (2 - gap), 2 * below / (1 - below)) + astray,
    )
    slow = 2 / gap
    if 0 < lazy < 1:
        slow = min(slow, sqrt(2 * (1 - lazy) / (lazy * gap)) + 1 / sqrt(lazy))
    return min(symmetric[0], slow), min(symmetric[1], (1 - gap) * slow)


def _lowest(gap: float, lazy: float) -> float:
    """Bound -λ for the lowest eigenvalue: every weight matrix is cI + (1 - c)S' with ‖S'‖ ≤ 1."""
    return min(max(1 - 2 * lazy, 0.0), 1 - gap)


def doeblin_columns(A: csr_array, pi: Vector) -> Contraction | None:
    """Prove β from a few columns of Aᵐ, those of the largest π; none if it takes too many steps."""
    n = A.shape[0]
    order = np.argsort(-pi, kind="stable")[: max(1, min(COLUMNS, MOST_NUMBERS // n))]
    order = order[: 1 + int(np.searchsorted(np.cumsum(pi[order]), HALF))]
    X = np.zeros((n, len(order)))
    X[order, np.arange(len(order))] = 1.0
    best, overlap, limit = (inf, 1, 0.0), 0.0, HALF * float(pi[order].sum())
    m, check = 0, 1
    while overlap < limit and m < MOST_WORK / (A.nnz * len(order)):
        X, m = A @ X, m + 1
        if m >= check:
            check = m + 1 + m // 20
            overlap = min(float(X.min(axis=0).sum()) * (1 - 1e-9), LARGEST_OVERLAP)
            if overlap > 0:
                best = min(best, (m / -log1p(-overlap), m, overlap))
    return None if best[0] == inf else _by_overlap(A, pi, best[1], best[2])


def _by_overlap(A: csr_array, pi: Vector, m: int, overlap: float) -> Contraction:
    """Rows of Ãᵗ add up to 0 and have ‖·‖₁ at most 2(1 - δ)^⌊t/m⌋, so ‖·‖₂ at most 1/√2 of that."""
    n, lazy = A.shape[0], float(A.diagonal().min())
    gap = -float(np.expm1(log1p(-overlap) / m))
    moves = min(_plain_moves(gap), _lazy_moves(gap, lazy))
    scale = sqrt(2 * n) * (1 - overlap) ** -(1 - 1 / m)
    squares = 2 * n * m / (overlap * (2 - overlap))
    gains = moves + 3 - gap, moves + 1 - gap  # in this norm, by adding all powers
    return Contraction(scale, gap, moves, squares, _projection(pi), gains)


def _projection(pi: Vector) -> float:
    """Return ‖I - 1πᵀ‖_F²."""
    return len(pi) * (1 + float(pi @ pi)) - 2


class LargeMixing:
    """N5..N9, V and V_R of large networks: proved bounds from the contractions of R and Cᵀ.

    All are sums of products R̃ⁱC̃ʲ, so ‖R̃ⁱ‖ ≤ K βⁱ and ‖C̃ʲ‖ ≤ K' β'ʲ bound them (docs/rate.md).
    Differences in time keep a factor C̃ - I (or R̃ - I), whose powers add up to far less than those
    of C̃.
    """

    def __init__(self, net: Network, p: Perron) -> None:
        self.net, self.p = net, p

    @cached_property
    def pull(self) -> Contraction | None:
        """How R̃ contracts."""
        return contraction(self.net.R, self.p.pi_R)

    @cached_property
    def push(self) -> Contraction | None:
        """How C̃ᵀ contracts, which has the norms of C̃."""
        turned = csr_array(self.net.C.T)
        if (turned != self.net.R).nnz == 0:
            return self.pull
        return contraction(turned, self.p.pi_C)

    def bounds(self, vectors: dict[str, Bracket], a: int = 1, b: int = 1) -> dict[str, float]:
        """Bound N5..N9, V and V_R of a form of S-PP from above; nothing if it mixes too slowly.

        ``vectors`` has N2', N3 and N4 of the paper's form.
        """
        R, C = self.pull, self.push
        if R is None or C is None:
            return {}
        root, K = sqrt(self.p.n), R.scale * C.scale
        N2p, N3, N4 = self._vectors(vectors, a, b)
        N8 = K * min(R.norms(a) * C.turns(b), C.norms(b) * R.turns(a))
        N7 = K**2 * min(C.turns(b) ** 2 * R.energy(a), R.turns(a) ** 2 * C.energy(b))
        noise = min(
            C.scale * C.gains[b] * sqrt(R.frobenius(a)), R.scale * R.gains[a] * sqrt(C.frobenius(b))
        )
        return {
            "N5": K * R.norms(a) * C.norms(b),
            "N6": K**2 * R.beta ** (2 * a) * _convolved(R.gap, C.gap),
            "N7": N7,
            "N8": N8,
            "N9": root * N3 + N8,
            "V": (root * sqrt(N2p) + root * sqrt(N4) + noise) ** 2,
            "V_R": R.frobenius(a),
        }

    def _vectors(self, known: dict[str, Bracket], a: int, b: int) -> tuple[float, float, float]:
        """Bound N2', N3 and N4 of a form from those of the paper's, which have a term less."""
        pull = 0.0 if a else float(np.linalg.norm(self.p.pi_C - self.p.pi))
        push = 0.0 if b else float(np.linalg.norm(self.p.pi_R - self.p.pi))
        N2p, N3, N4 = (known[name].high for name in ("N2p", "N3", "N4"))
        return N2p + push**2, N3 + pull, N4 + pull**2


def _convolved(a: float, b: float) -> float:
    """Return Σₖ≥₀ (Σᵢ≤ₖ αⁱβᵏ⁻ⁱ)² for α = 1 - a and β = 1 - b."""
    both = a + b - a * b  # 1 - αβ
    return (2 - both) / (a * (2 - a) * b * (2 - b) * both)
