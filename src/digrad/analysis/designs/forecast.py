"""How many steps S-PP takes on a typical problem: exact expectations, nothing drawn but data.

Diagonal quadratics in six dimensions, mean curvatures from 1 to 1/condition, ±50 % from node to
node, optima spread by 3 about a point as far away, σ = 3. ∇f(xhat) is linear in the state
s = (E, V), so its expected square after t steps needs only the vectors h = (Mᵀ)ᵏc
(see ``expectation``). All steps of a grid, all coordinates and all problems are columns of
one product.
"""

from typing import Any, NamedTuple

import numpy as np

from digrad.analysis.designs.closed_loop import Floats
from digrad.base.streams import Draws

DIMENSIONS = 6
SPREAD, SIGMA = 3.0, 3.0
GRID = 14  # steps γ
MOST = 2000  # steps of S-PP that are looked at
EXACT, NOISY = 1e-8, 1e-3  # of the first ‖∇f‖²: what counts as reached without and with noise


class PredictedSteps(NamedTuple):
    """Steps to 1e-8 of the first ‖∇f‖² without noise, to 1e-3 with; None: not in 2000 steps."""

    steps: float | None
    noisy_steps: float | None


def forecast(
    R: Any,
    C: Any,
    pi_R: Floats,
    n_pi: float,
    stable: float,
    *,
    condition: float,
    seed: int,
    problems: int = 3,
) -> PredictedSteps:
    """Return the steps that S-PP takes at the best γ of a grid, the mean over some problems."""
    top = min(0.98 * stable, 1.95)
    a, b = _problems(len(pi_R), condition, seed, problems)
    squares = _Squares(R, C, pi_R, np.geomspace(top / 64, top, GRID) / n_pi, a, b)
    reached = np.full((2, problems), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(1, MOST + 1):
            exact, noisy = squares.next()
            for k, (values, share) in enumerate(((exact, EXACT), (exact + noisy, NOISY))):
                there = (values <= share * squares.first).any(axis=1)
                reached[k, there & np.isnan(reached[k])] = t
            if not np.isnan(reached).any():
                break
    means = reached.mean(axis=1)
    return PredictedSteps(*(None if np.isnan(mean) else float(mean) for mean in means))


def _problems(n: int, condition: float, seed: int, count: int) -> tuple[Floats, Floats]:
    """Draw curvatures and optima, (n, problems, dimensions); S-PP starts from 0."""
    draws = Draws(seed)
    u = 0.5 + draws.uniform(n, count, DIMENSIONS)
    means = np.geomspace(1, 1 / condition, DIMENSIONS)
    angle, radius = (draws.uniform(n + 1, count, DIMENSIONS) for _ in range(2))
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)  # Box and Muller's
    return means * u / u.mean(axis=0), SPREAD * (np.sign(normal[:1]) + normal[1:])


class _Squares:
    """E‖∇f(xhat)‖² after 1, 2, ... steps: its part without noise, and the noise's."""

    def __init__(self, R: Any, C: Any, pi_R: Floats, steps: Floats, a: Floats, b: Floats) -> None:
        n, shape = len(pi_R), (len(pi_R), a.shape[1], GRID, DIMENSIONS)
        self._pull, self._push = R.T, C.T
        self._a = np.broadcast_to(a[:, :, None], shape).reshape(n, -1)
        self._g = np.broadcast_to(steps[:, None], shape).reshape(n, -1)
        mean = a.mean(axis=0)
        best = (a * b).mean(axis=0) / mean
        h = np.broadcast_to((a * (best - b))[:, :, None], shape).reshape(n, -1)
        away = np.broadcast_to(-best[:, None], shape).reshape(n, -1)
        self._E, self._V = R @ (away - self._g * (self._a * away + h)), h  # after the first step
        self._p = pi_R[:, None] * np.broadcast_to(mean[:, None], shape).reshape(n, -1)
        self._q = np.zeros_like(self._p)
        self._noise = np.zeros((a.shape[1], GRID))
        self.first = ((mean * best) ** 2).sum(axis=1)[:, None]

    def next(self) -> tuple[Floats, Floats]:
        """Return both parts one step later, each (problems, steps)."""
        exact = self._sum(((self._p * self._E + self._q * self._V).sum(axis=0)) ** 2)
        pulled = self._pull @ self._p
        z = self._push @ (self._q - self._g * pulled)
        variance = SIGMA**2 / DIMENSIONS
        noise = self._noise + variance * self._sum(((self._g * pulled) ** 2).sum(axis=0))
        self._noise = self._noise + variance * self._sum(((z - self._q) ** 2).sum(axis=0))
        self._p, self._q = pulled + self._a * (z - self._q), z - z.mean(axis=0)
        return exact, noise

    def _sum(self, columns: Floats) -> Floats:
        return np.asarray(columns.reshape(-1, GRID, DIMENSIONS).sum(axis=2))
