"""S-PP as a linear system: how fast it contracts, and up to which step.

On quadratics with curvatures a (one per node) the error E = X - x* and V = Y - G + h obey
s⁺ = M s, s = (E, V), coordinate by coordinate:

    M(g, a) = [[R - g RC diag(a), -g RC F], [(C - I) diag(a), C F]],   F = I - 11ᵀ/n.

Steps are given as γ = g nπ, the step of a server that sees all gradients; L = 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from digrad.base.streams import Draws
from digrad.theory.eigenvectors import Perron

Floats = NDArray[np.float64]

DRAWS = 8  # of curvatures: with four, an optimiser fits them rather than the network
SQUARINGS = 7  # M^128: long enough for the modes that matter, short enough to be smooth
LEAST_STEP, MOST_STEP = 1e-6, 64.0  # γ outside of which nothing is looked for


@dataclass(frozen=True, eq=False)
class Pair(Perron):
    """Dense weights with their Perron vectors."""

    R: Floats
    C: Floats

    @classmethod
    def of(cls, R: Floats, C: Floats) -> "Pair":
        """Solve for the Perron vectors: (I - Rᵀ + 11ᵀ/n) π_R = 1/n."""
        n = len(R)
        flat, ones = np.full((n, n), 1 / n), np.full(n, 1 / n)
        pi_R = np.linalg.solve(np.eye(n) - R.T + flat, ones)
        pi_C = np.linalg.solve(np.eye(n) - C + flat, ones)
        return cls(pi_R, pi_C, R, C)


def curvatures(n: int, condition: float, seed: int, draws: int = DRAWS) -> Floats:
    """Return the reference set, (3 · draws, n): mean λ in 1, condition^-0.4, 1/condition; ±50 %."""
    means = np.array([1.0, condition**-0.4, 1 / condition])
    u = 0.5 + Draws(seed).uniform(draws, n)
    shapes = u / u.mean(axis=1, keepdims=True)
    return np.asarray((means[:, None, None] * shapes).reshape(-1, n))


def loop(pair: Pair, gamma: float, a: Floats) -> Floats:
    """Return M for every row of curvatures, (rows, 2n, 2n)."""
    n, g = pair.n, gamma / pair.n_pi
    RC, flat = pair.R @ pair.C, pair.C.mean(axis=1, keepdims=True)
    M = np.empty((len(a), 2 * n, 2 * n))
    scaled = a[:, None, :]
    M[:, :n, :n] = pair.R - g * RC * scaled
    M[:, :n, n:] = -g * (RC - RC.mean(axis=1, keepdims=True))
    M[:, n:, :n] = (pair.C - np.eye(n)) * scaled
    M[:, n:, n:] = pair.C - flat
    return M


@dataclass(frozen=True, eq=False)
class Powers:
    """M, M², M⁴, ... of several matrices, each divided by its Frobenius norm."""

    scaled: list[Floats]
    norms: Floats  # (squarings + 1, matrices): of each square before it was divided

    @classmethod
    def of(cls, M: Floats) -> "Powers":
        """Square M again and again."""
        scaled: list[Floats] = []
        norms: list[Floats] = []
        for k in range(SQUARINGS + 1):
            M = scaled[-1] @ scaled[-1] if k else M
            norms.append(np.sqrt(np.einsum("bij,bij->b", M, M)) + 1e-150)  # M may vanish
            scaled.append(M / norms[-1][:, None, None])
        return cls(scaled, np.array(norms))

    def rates(self) -> Floats:
        """Return log‖M^(2^K)‖ / 2^K of each matrix: log ρ(M), made smooth."""
        return np.asarray(0.5 ** np.arange(len(self.norms)) @ np.log(self.norms))

    def gradient(self, row: int) -> Floats:
        """Return the gradient of one of the rates by its M."""
        last = len(self.norms) - 1
        back = 0.5**last * self.scaled[last][row]  # by each power, times that power's norm
        for k in range(last - 1, -1, -1):
            B = self.scaled[k][row]
            back = (back @ B.T + B.T @ back) / self.norms[k + 1, row]
            back += (0.5**k - np.vdot(back, B)) * B
        return np.asarray(back / self.norms[0, row])


def log_radius(M: Floats) -> float:
    """Return the largest log|λ| over all the matrices."""
    with np.errstate(divide="ignore"):
        return float(np.log(np.abs(np.linalg.eigvals(M)).max()))


def stable_step(pair: Pair) -> float:
    """Return the largest stable γ = g nπ when all curvatures are L = 1, to 9 digits.

    It is doubled from far below until M stops contracting, then bisected.
    """
    ones = np.ones((1, pair.n))

    def contracts(gamma: float) -> bool:
        return log_radius(loop(pair, gamma, ones)) < 0

    stable = 1 / 64
    while stable > LEAST_STEP and not contracts(stable):
        stable /= 8
    unstable = 2 * stable
    while unstable < MOST_STEP and contracts(unstable):
        stable, unstable = unstable, 2 * unstable
    while unstable > (1 + 1e-9) * stable:
        middle = float(np.sqrt(stable * unstable))
        stable, unstable = (middle, unstable) if contracts(middle) else (stable, middle)
    return stable


def best_step(pair: Pair, a: Floats, cap: float) -> float:
    """Return the γ ≤ cap of a grid whose worst smooth rate over the curvatures is least."""
    grid = cap * np.concatenate([np.geomspace(0.01, 0.5, 10), np.linspace(0.55, 1, 10)])
    worst = [Powers.of(loop(pair, gamma, a)).rates().max() for gamma in grid]
    return float(grid[int(np.argmin(worst))])


def rate(pair: Pair, gamma: float, a: Floats) -> float:
    """Return log ρ(M) at a step, the worst over the curvatures."""
    return max(log_radius(M) for M in loop(pair, gamma, a))
