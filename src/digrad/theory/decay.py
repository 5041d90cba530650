"""Proved bounds on sums of powers of a dense matrix, by doubling."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from digrad.theory.norms import Matrix, spectral_norm


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
