"""What a design minimises, with its gradient: contraction first, then noise and lag.

    max(r, log(1 - c λ)) + 0.01 r + α log(J + lags),

where r is the worst smooth rate over the reference curvatures at a step γ ≤ c, and λ the least
mean curvature. The first term stops at SGD's own rate at step c: beyond it, an optimiser turns
the network into heavy-ball momentum, at the price of noise.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from digrad.analysis.designs.closed_loop import Floats, Pair, Powers, loop
from digrad.analysis.designs.noise import Response

NOISE = 0.01  # α: more costs rate, less lets lags grow
BEYOND = 0.01  # what rate is worth beyond SGD's
SILENT = 1e-3  # J + lags below which less is no better
FEW = 4  # curvatures that are looked at between two looks at all of them


class Point(NamedTuple):
    """Where an optimiser stands: logits of R's rows and C's columns, and log γ."""

    pull: Floats
    push: Floats
    step: float

    def weights(self, masks: tuple[NDArray[np.bool_], NDArray[np.bool_]]) -> Pair:
        """Return the softmax of each row of R and each column of C over its links."""
        R, C = (
            np.where(mask, np.exp(z - z.max(axis=axis, keepdims=True, where=mask, initial=-700)), 0)
            for z, mask, axis in ((self.pull, masks[0], 1), (self.push, masks[1], 0))
        )
        return Pair.of(R / R.sum(axis=1, keepdims=True), C / C.sum(axis=0, keepdims=True))


@dataclass(frozen=True, eq=False)
class Objective:
    """The measure of a pair of weights on reference curvatures; smaller is better."""

    a: Floats  # (rows, n): the reference curvatures
    condition: float
    max_step: float  # c, the largest step γ
    lag_weight: float = 1.0  # of lags against J

    @property
    def enough(self) -> float:
        """SGD's own rate at the largest step."""
        return float(np.log(max(1 - self.max_step / self.condition, 1e-3)))

    def value(self, rate: float, noise: float) -> float:
        """Combine a rate with J + lags."""
        return max(rate, self.enough) + BEYOND * rate + NOISE * float(np.log(noise + SILENT))

    def rates(self, pair: Pair, gamma: float) -> Floats:
        """Return the smooth rate on each of the curvatures."""
        return Powers.of(loop(pair, gamma, self.a)).rates()

    def gradient(self, pair: Pair, gamma: float, rows: Floats) -> "Slope":
        """Return value and gradient on some of the curvatures, given as rows of a."""
        powers = Powers.of(loop(pair, gamma, rows))
        rates = powers.rates()
        worst = int(rates.argmax())
        response = Response(pair, settled=1e-8, lag_weight=self.lag_weight)
        slope = _by_loop(pair, gamma, rows[worst], powers.gradient(worst))
        weight = BEYOND + (rates[worst] > self.enough)
        noise = NOISE / (response.total + SILENT)
        parts = [
            weight * x + noise * y for x, y in zip(slope[:4], response.gradient(), strict=True)
        ]
        R, C = _through_vectors(pair, *parts)
        return Slope(self.value(float(rates[worst]), response.total), R, C, weight * slope[4])


class Slope(NamedTuple):
    """A value and its derivatives by R, by C and by log γ."""

    value: float
    R: Floats
    C: Floats
    step: float


def _by_loop(
    pair: Pair, gamma: float, a: Floats, back: Floats
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Carry a gradient by M(g, a) over to R, C, π_R, π_C and log γ."""
    n, g = pair.n, gamma / pair.n_pi
    right = back[:n, n:] - back[:n, n:].mean(axis=1, keepdims=True)
    low = back[n:, n:] - back[n:, n:].mean(axis=1, keepdims=True)
    by_RC = -g * (back[:n, :n] * a + right)
    by_R = back[:n, :n] + by_RC @ pair.C.T
    by_C = pair.R.T @ by_RC + back[n:, :n] * a + low
    by_log_g = float(np.vdot(pair.R @ pair.C, by_RC))
    return by_R, by_C, -by_log_g / pair.pi * pair.pi_C, -by_log_g / pair.pi * pair.pi_R, by_log_g


def _through_vectors(
    pair: Pair, by_R: Floats, by_C: Floats, by_pi_R: Floats, by_pi_C: Floats
) -> tuple[Floats, Floats]:
    """Add what R and C do through their Perron vectors."""
    n = pair.n
    flat, identity = np.full((n, n), 1 / n), np.eye(n)
    q = np.linalg.solve((identity - pair.R.T + flat).T, by_pi_R)
    p = np.linalg.solve((identity - pair.C + flat).T, by_pi_C)
    return by_R + np.outer(pair.pi_R, q), by_C + np.outer(p, pair.pi_C)
