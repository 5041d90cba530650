"""Sums of squared Frobenius norms, by doubling: V and V_R of our own rate (docs/rate.md).

Σₜ ‖H Lᵗ K‖_F² = tr(Kᵀ P K) with P = Σₜ (Lᵗ)ᵀ HᵀH Lᵗ, and the first 2m terms of P are the
first m and the same again, carried by Lᵐ: P₂ₘ = Pₘ + (Lᵐ)ᵀ Pₘ Lᵐ. A network that mixes in a
million steps takes twenty-five doublings. All terms are positive: nothing cancels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from digrad.theory.bracket import Bracket
from digrad.theory.norms import EPS, Matrix, norm_bound

MOST_DOUBLINGS = 64


class Triangle(NamedTuple):
    """The matrix [[a, b], [0, c]]; its square costs half as much as that of a full one."""

    a: Matrix
    b: Matrix
    c: Matrix

    def squared(self) -> "Triangle":
        """Return its square."""
        return Triangle(self.a @ self.a, self.a @ self.b + self.b @ self.c, self.c @ self.c)

    def times(self, K: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
        """Return its product with [K₁; K₂]."""
        return self.a @ K[0] + self.b @ K[1], self.c @ K[1]

    @property
    def norm_square(self) -> float:
        """The square of the Frobenius norm, which is at least that of the spectral norm."""
        return _square(self)


class Gram(NamedTuple):
    """The symmetric matrix [[a, b], [bᵀ, c]]."""

    a: Matrix
    b: Matrix
    c: Matrix

    def carried(self, L: Triangle) -> "Gram":
        """Return P + LᵀPL."""
        ab = self.a @ L.b + self.b @ L.c
        return Gram(
            self.a + L.a.T @ self.a @ L.a,
            self.b + L.a.T @ ab,
            self.c + L.b.T @ ab + L.c.T @ (self.b.T @ L.b + self.c @ L.c),
        )

    def form(self, K: tuple[Matrix, Matrix]) -> float:
        """Return tr(KᵀPK)."""
        top, bottom = self.a @ K[0] + self.b @ K[1], self.b.T @ K[0] + self.c @ K[1]
        return float(np.vdot(K[0], top) + np.vdot(K[1], bottom))

    @property
    def size(self) -> float:
        """Its trace, which is at least its spectral norm."""
        return float(np.trace(self.a) + np.trace(self.c))


def square_sums(
    H: tuple[Matrix, Matrix],
    L: Triangle,
    factors: Sequence[tuple[Matrix, Matrix]],
    *,
    time: float,
    rtol: float = 1e-9,
) -> list[Bracket]:
    """Bracket Σₜ≥₀ ‖H Lᵗ K‖_F² for each K; ``time`` is the mixing time of L.

    >>> one, none = np.eye(1), np.zeros((1, 1))
    >>> L = Triangle(0.5 * one, none, none)
    >>> square_sums((one, none), L, [(one, none)], time=2.0)
    [Bracket(1.33333333, 1.33333333)]
    """
    P = Gram(H[0].T @ H[0], H[0].T @ H[1], H[1].T @ H[1])
    totals, rests = np.zeros(len(factors)), np.full(len(factors), np.inf)
    for _ in range(MOST_DOUBLINGS):
        P, carrier = P.carried(L), L.norm_square
        if carrier < 0.5:  # after it, ‖Lᵐ‖² < 1/2 and the rest is geometric
            totals = np.array([P.form(K) for K in factors])
            last = np.array([_square(L.squared().times(K)) for K in factors])
            rests = 2 * P.size * last
            if (rests <= 0.5 * rtol * totals).all():
                break
        L = L.squared()
    # A term is known to a few EPS of its factors, however small it is.
    room = np.array([16 * EPS * max(norm_bound(H[0]), 1.0) * norm_bound(K[0]) for K in factors])
    error = 64 * EPS * time * totals + np.where(totals > 0, (2 * np.sqrt(totals) + room) * room, 0)
    return [
        Bracket(max(float(low), 0.0), float(high))
        for low, high in zip(totals - error, totals + error + rests, strict=True)
    ]


def _square(matrices: Sequence[Matrix]) -> float:
    return float(sum(np.vdot(A, A) for A in matrices))
