"""Norms of matrices and of stacks of them, and how long powers live."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Matrix = NDArray[np.float64]

EPS = float(np.finfo(float).eps)
MATRIX_SUMS = ("N5", "N6", "N7", "N8", "N9", "V", "V_R")  # sums over matrices, not vectors


def nearly_equal(A: csr_array, B: csr_array) -> bool:
    """Whether two sparse matrices are equal, to rounding."""
    difference = csr_array(A - B)
    return difference.nnz == 0 or float(np.abs(difference.data).max()) <= 8 * EPS


def spectral_norms(
    stack: NDArray[np.float64], floor: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return ‖A‖₂ of every matrix A in a stack, to rounding; or ``floor``, where that is larger."""
    if min(stack.shape[-2:]) == 1:
        squares: Matrix = np.einsum("...ij,...ij->...", stack, stack)
        return np.sqrt(squares) if floor is None else np.maximum(np.sqrt(squares), floor)
    if stack.shape[-2] > stack.shape[-1]:
        stack = stack.swapaxes(-2, -1)
    gram = stack @ stack.swapaxes(-2, -1)
    if floor is None:
        return _roots(gram)
    # ‖A‖₂⁴ ≤ ‖AAᵀ‖_F²: most matrices that are not the largest need no eigenvalues.
    may = np.flatnonzero(np.einsum("tij,tij->t", gram, gram) > floor**4)
    largest = floor.copy()
    largest[may] = np.maximum(floor[may], _roots(gram[may]))
    return largest


def _roots(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the roots of the largest eigenvalues."""
    if gram.shape[-1] == 2:
        a, b, c = gram[..., 0, 0], gram[..., 0, 1], gram[..., 1, 1]
        return np.asarray(np.sqrt((a + c) / 2 + np.hypot((a - c) / 2, b)))
    # The largest eigenvalue of the Gram matrix is exact to rounding, unlike the small ones.
    largest = np.maximum(np.linalg.eigvalsh(gram)[..., -1], 0.0)
    return np.asarray(np.sqrt(largest), dtype=np.float64)


def spectral_norm(A: Matrix) -> float:
    """Return ‖A‖₂, to rounding."""
    return float(spectral_norms(A[None])[0])


def norm_bound(A: Matrix) -> float:
    """Bound ‖A‖₂ without eigenvalues: by ‖A‖_F and by √(‖A‖₁ ‖A‖_∞)."""
    size = np.abs(A)
    return float(min(np.linalg.norm(A), np.sqrt(size.sum(0).max() * size.sum(1).max())))


def mixing_time(*matrices: Matrix) -> float:
    """Return 1/(1 - ρ) for the largest spectral radius ρ: the steps in which modes decay."""
    rho = max(float(np.abs(np.linalg.eigvals(M)).max()) for M in matrices)
    return 1.0 / (1.0 - min(rho, 1.0 - EPS))


@dataclass(frozen=True, eq=False)
class Summand:
    """The term tʷ ‖H Lᵗ K‖₂ᵖ, with K the ``factor``-th of the given right factors."""

    factor: int
    power: int = 1
    weight: int = 0


class Decay(NamedTuple):
    """Proved bounds on the powers of a matrix L."""

    norms: float  # at least Σₛ≥₀ ‖Lˢ‖
    squares: float  # at least Σₛ≥₀ ‖Lˢ‖²
    weighted: float  # at least Σₛ≥₀ s ‖Lˢ‖

    def rest(self, term: Summand, scale: float, t: int) -> float:
        """Bound Σₛ≥₁ (t + s)ʷ (scale ‖Lˢ‖)ᵖ."""
        if scale == 0.0:
            return 0.0
        if term.power == 2:
            return scale**2 * self.squares
        return scale * (t * self.norms + self.weighted if term.weight else self.norms)


def decay(L: Matrix, most_doublings: int = 60) -> Decay:
    """Bound the sums of ‖Lˢ‖ over all s by squaring L until its norm is at most 1/2.

    From Σₛ<₂ₘ ‖Lˢ‖ ≤ (1 + ‖Lᵐ‖) Σₛ<ₘ ‖Lˢ‖, doubling m; once ν = ‖Lᵐ‖ < 1 the rest is
    geometric. Infinite where the powers do not shrink within 2^most_doublings steps.

    >>> decay(np.array([[0.5]])).norms
    2.0
    """
    norms, squares, weighted, m = 1.0, 1.0, 0.0, 1
    for _ in range(most_doublings):
        nu = spectral_norm(L)
        if nu <= 0.5:
            return Decay(
                norms / (1 - nu),
                squares / (1 - nu**2),
                weighted / (1 - nu) + m * nu * norms / (1 - nu) ** 2,
            )
        weighted = weighted * (1 + nu) + m * nu * norms
        norms, squares, m = norms * (1 + nu), squares * (1 + nu**2), 2 * m
        L = L @ L
    return Decay(np.inf, np.inf, np.inf)
