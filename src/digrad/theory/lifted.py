"""N5..N9, V and V_R of any network, from the powers of one matrix of twice the size.

With Eₜ = Σᵢ₌₀ᵗ R̃ⁱ C̃ᵗ⁻ⁱ, everything that the two recursions do to each other is Rᵃ Eₜ Cᵇ: a = 1
for X⁺ = R(X - γY) and 0 for RX - γY, b = 1 for Y⁺ = C(Y + G⁺ - G) and 0 for CY + G⁺ - G. The
paper has a = b = 1, and

    A_t = Rᵃ Eₜ₋₁ Cᵇ,   B_t = Rᵃ Eₜ₋₁,   X_t = Rᵃ(R̃ᵗ⁻¹ + Eₜ₋₂(C̃ - I))Cᵇ,   U_t = X_t + 1 v_t,

where X_t is what a deviation of the gradients t steps ago does to the models, and U_t what
noise does (docs/rate.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from digrad.networks.network import Network
from digrad.theory.bracket import Bracket, brackets
from digrad.theory.eigenvectors import Perron, Vector
from digrad.theory.norms import EPS, MATRIX_SUMS, Matrix, Summand, mixing_time, norm_bound
from digrad.theory.series import norm_sums

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

    It is tr(Kᵀ P K) with P = Σₜ (Lᵗ)ᵀ HᵀH Lᵗ, and the first 2m terms of P are the first m and the
    same again, carried by Lᵐ: P₂ₘ = Pₘ + (Lᵐ)ᵀ Pₘ Lᵐ. A network that mixes in a million steps
    takes twenty-five doublings. All terms are positive: nothing cancels.

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
    return brackets(totals - error, totals + error + rests)


def _square(matrices: Sequence[Matrix]) -> float:
    return float(sum(np.vdot(A, A) for A in matrices))


SMALLEST = 16  # nodes from which halves are worth it
SQRT2 = float(np.sqrt(2))


@dataclass(frozen=True, eq=False)
class Lifted:
    """L = [[R̃, Π_RΠ_C/τ], [0, C̃]], with Lᵗ = [[R̃ᵗ, Eₜ₋₁/τ], [0, C̃ᵗ]].

    The scale τ, the mixing time, keeps the norm of Lᵗ near 1: Eₜ grows like t before it
    decays. Vectors and matrices may be those of an invariant subspace, in a basis of its own.
    """

    R: Matrix  # R̃
    C: Matrix  # C̃
    one: Vector  # 1
    pi_R: Vector
    pi_C: Vector
    a: int  # whether models are mixed after the step
    b: int  # whether gradients are mixed with the trackers
    time: float  # τ

    @classmethod
    def of(cls, net: Network, p: Perron, a: int = 1, b: int = 1) -> "Lifted":
        """Deflate both matrices."""
        R = net.R.toarray() - p.pi_R[None, :]
        C = net.C.toarray() - p.pi_C[:, None]
        return cls(R, C, np.ones(p.n), p.pi_R, p.pi_C, a, b, mixing_time(R, C))

    @property
    def parts(self) -> "list[Lifted]":
        """Even and odd vectors, if numbering the nodes backwards changes nothing; or itself.

        Half the size is an eighth of the work, and the largest singular values of such a
        network, nearly equal in pairs, come apart.
        """
        if len(self.one) < SMALLEST or not (_even(self.R) and _even(self.C)):
            return [self]
        even, odd = (
            replace(
                self,
                R=_half(self.R, sign),
                C=_half(self.C, sign),
                one=_half_vector(self.one, sign),
                pi_R=_half_vector(self.pi_R, sign),
                pi_C=_half_vector(self.pi_C, sign),
            )
            for sign in (1, -1)
        )
        return [even, odd]

    @property
    def L(self) -> Triangle:
        """The three blocks of L."""
        return Triangle(self.R, self.Pi_R @ self.Pi_C / self.time, self.C)

    @property
    def Pi_R(self) -> Matrix:
        """I - 1π_Rᵀ, which is R̃⁰."""
        return np.eye(len(self.R)) - np.outer(self.one, self.pi_R)

    @property
    def Pi_C(self) -> Matrix:
        """I - π_C1ᵀ, which is C̃⁰."""
        return np.eye(len(self.R)) - np.outer(self.pi_C, self.one)

    @property
    def left(self) -> Matrix:
        """R̃ᵃ."""
        return self.R if self.a else self.Pi_R

    def deviation(self, last: Matrix) -> tuple[Matrix, Matrix]:
        """Return K with H Lᵗ K = Rᵃ(R̃ᵗ ``last`` + Eₜ₋₁(C̃ - I))Cᵇ for H = [Rᵃ, 0]."""
        turn = self.C - np.eye(len(self.C))
        right = self.C + np.outer(self.pi_C, self.one) if self.b else np.eye(len(self.C))
        return last @ right, self.time * turn @ (self.C if self.b else self.Pi_C)

    @property
    def orbit(self) -> tuple[Matrix, Matrix, list[Matrix]]:
        """H, L and the factors K of N5, N6, N7 and N8, and N9."""
        n, zero, L = len(self.R), np.zeros_like(self.R), self.L
        right = self.C if self.b else self.Pi_C
        blocks = [
            (zero, self.time * right),
            (zero, self.time * self.Pi_C),
            self.deviation(self.Pi_C),
            self.deviation(np.eye(n)),
        ]
        whole = np.block([[L.a, L.b], [zero, L.c]])
        return np.hstack([self.left, zero]), whole, [np.vstack(block) for block in blocks]

    def norms(self, rtol: float, effort: float) -> dict[str, Bracket]:
        """Bracket N5..N9, the sums of spectral norms."""
        terms = [Summand(0), Summand(1, 2), Summand(2, 2), Summand(2), Summand(3)]
        orbits = [part.orbit for part in self.parts]
        sums = norm_sums(
            orbits, terms, time=self.time, rtol=rtol, effort=effort, first=True, scale=1.0
        )
        return dict(zip(MATRIX_SUMS[:5], sums, strict=True))

    def squares(self, rtol: float) -> dict[str, Bracket]:
        """Bracket V and V_R, the sums of squared Frobenius norms."""
        first, *others = (part._squares(rtol) for part in self.parts)
        for other in others:
            first = [x + y for x, y in zip(first, other, strict=True)]
        return dict(zip(MATRIX_SUMS[5:], first, strict=True))

    def _squares(self, rtol: float) -> list[Bracket]:
        """v_t = π_RᵀC̃ᵗ⁻¹Cᵇ is yᵀ(C̃ - I)C̃ᵗ⁻¹Cᵇ with yᵀ(C̃ - I) = π_Rᵀ: one K gives X_t and v_t."""
        n = len(self.R)
        y = np.linalg.solve((self.C - np.eye(n)).T, self.pi_R)
        H = self.left, np.outer(self.one, y / self.time)
        factors = [self.deviation(np.eye(n)), (np.eye(n), np.zeros((n, n)))]
        return square_sums(H, self.L, factors, time=self.time, rtol=rtol)


def _even(A: Matrix) -> bool:
    """Whether numbering the nodes backwards changes nothing."""
    return bool(np.abs(A - A[::-1, ::-1]).max() <= 2 * EPS)


def _half(A: Matrix, sign: int) -> Matrix:
    """Return A on the x that reversed are ±x; basis (e_i ± e_{n-1-i})/√2, and the middle."""
    h, odd = divmod(len(A), 2)
    mean = (A + A[::-1, ::-1]) / 2  # rounding may have told left from right
    half = mean[:h, :h] + sign * mean[:h, ::-1][:, :h]
    if sign < 0 or not odd:
        return half
    column, row = SQRT2 * mean[:h, h : h + 1], SQRT2 * mean[h : h + 1, :h]
    return np.block([[half, column], [row, mean[h : h + 1, h : h + 1]]])


def _half_vector(x: Vector, sign: int) -> Vector:
    h, odd = divmod(len(x), 2)
    if sign < 0:
        return np.zeros(h)  # 1 and both root vectors are even
    half = (x[:h] + x[::-1][:h]) / SQRT2
    return np.append(half, x[h]) if odd else half
