"""M1, M2, N1..N4, N1' and N2' of large sparse networks, certified without a dense matrix.

Both vector sequences of the paper are repeated averages: with A row-stochastic and
u_t = Aᵗ u_0, the entries of u_t close in on a constant c, and the spread max - min never
grows. If some column j of Aᵐ has all entries at least δ, every m steps shrink the spread
by 1 - δ (Doeblin's condition): that is a proof of the tail, and costs m sparse products.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.theory.bracket import Bracket, brackets
from digrad.theory.contraction import Contraction
from digrad.theory.eigenvectors import Vector
from digrad.theory.norms import EPS

MOST_STEPS = 20_000
MOST_WORK = 3e10  # entries of A touched: about a minute


@dataclass(frozen=True)
class Doeblin:
    """Every ``steps`` averagings shrink the spread by at least the factor 1 - ``overlap``."""

    steps: int
    overlap: float

    def rest(self, spread: float, t: int, weight: int) -> float:
        """Bound Σₛ>₀ (t + s)ʷ spread(u_{t+s})."""
        if spread == 0.0:
            return 0.0
        if self.overlap == 0.0:
            return np.inf
        time = self.steps / self.overlap
        return spread * (t * time + time**2 if weight else time)


def doeblin(A: csr_array, pi: Vector, most_steps: int) -> Doeblin:
    """Find m and δ with every entry of one column of Aᵐ at least δ; the column of largest π."""
    column = np.zeros(A.shape[0])
    column[int(np.argmax(pi))] = 1.0
    for m in range(1, most_steps + 1):
        column = A @ column
        low = float(column.min())
        if low >= 0.5 * float(column.max()):
            return Doeblin(m, low)
    return Doeblin(most_steps, float(column.min()))


def averages(A: csr_array, u: Vector, limit: float) -> Iterator[Vector]:
    """Yield Aᵗu - c·1 for t = 0, 1, 2, ..., where c is the limit of the averages."""
    v = u - limit
    while True:
        yield v
        v = A @ v


@dataclass(frozen=True)
class AveragingSums:
    """The sums over v_t = Aᵗu - c·1 that the paper uses."""

    norms: Bracket  # Σₜ≥₁ ‖v_t‖
    squares: Bracket  # Σₜ≥₁ ‖v_t‖²
    step_squares: Bracket  # Σₜ≥₁ ‖v_{t+1} - v_t‖²
    weighted_steps: Bracket  # Σₜ≥₁ t ‖v_{t+1} - v_t‖
    steps: Bracket  # Σₜ≥₁ ‖v_{t+1} - v_t‖


def averaging_sums(
    A: csr_array,
    u: Vector,
    pi: Vector,
    rtol: float,
    effort: float = 1.0,
    most_steps: int | None = None,
    proved: Callable[[], Contraction | None] = lambda: None,
) -> AveragingSums:
    """Bracket the five sums of u, A u, A²u, ... → (πᵀu) 1, with π the root vector of A.

    Stops early, with a bracket that is wide but true, after ``effort`` times the usual work.
    ``proved`` is asked for a better bound on the tail then.
    """
    n = A.shape[0]
    allowed = min(most_steps or MOST_STEPS, effort * MOST_WORK / max(A.nnz, 1))
    most = max(1, int(allowed * max(effort, 1.0)))
    totals = np.zeros(5)
    mixing = doeblin(A, pi, most)
    sequence = averages(A, u, float(pi @ u))
    next(sequence)
    v = next(sequence)
    for t in range(1, most + 1):
        after = next(sequence)
        size, move = float(np.linalg.norm(v)), float(np.linalg.norm(after - v))
        totals += (size, size**2, move**2, t * move, move)
        v = after
        rests = _rests(mixing, v, n, t)
        if (rests <= 0.5 * rtol * totals).all():
            break
    else:
        rests = np.minimum(rests, _proved_rests(proved(), v, t))
    time = min(float(t), 1 / EPS)
    error = 16 * EPS * time * totals
    return AveragingSums(*brackets(totals - error, totals + error + rests))


def _rests(mixing: Doeblin, v: Vector, n: int, t: int) -> NDArray[np.float64]:
    """Bound the five sums after term t from v_{t+1}: ‖v‖ ≤ √n spread(v)."""
    spread = float(v.max() - v.min())
    norms = float(np.sqrt(n)) * (spread + mixing.rest(spread, t, 0))
    weighted = float(np.sqrt(n)) * (spread * (t + 1) + mixing.rest(spread, t + 1, 1))
    # A move is at most the norms before and after it; a square at most norm times its bound.
    largest = float(np.sqrt(n)) * spread
    return np.array([norms, norms * largest, 4 * norms * largest, 2 * weighted, 2 * norms])


def _proved_rests(proved: Contraction | None, v: Vector, t: int) -> NDArray[np.float64]:
    """Bound the five sums after term t from v_{t+1} and a contraction of the 2-norm."""
    if proved is None:
        return np.full(5, np.inf)
    size = proved.scale * float(np.linalg.norm(v))
    norms, squares = size * proved.norms(0), size**2 * proved.energy(0)
    weighted = size * ((t + 1) * proved.norms(0) + proved.norms(1) / proved.gap)
    return np.array([norms, squares, 4 * squares, 2 * weighted, 2 * norms])
