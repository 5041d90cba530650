"""N5..N9, V and V_R of any network, from the powers of one matrix of twice the size.

With Eₜ = Σᵢ₌₀ᵗ R̃ⁱ C̃ᵗ⁻ⁱ, everything that the two recursions do to each other is Rᵃ Eₜ Cᵇ: a = 1
for X⁺ = R(X - γY) and 0 for RX - γY, b = 1 for Y⁺ = C(Y + G⁺ - G) and 0 for CY + G⁺ - G. The
paper has a = b = 1, and

    A_t = Rᵃ Eₜ₋₁ Cᵇ,   B_t = Rᵃ Eₜ₋₁,   X_t = Rᵃ(R̃ᵗ⁻¹ + Eₜ₋₂(C̃ - I))Cᵇ,   U_t = X_t + 1 v_t,

where X_t is what a deviation of the gradients t steps ago does to the models, and U_t what
noise does (docs/rate.md).
"""

from dataclasses import dataclass

import numpy as np

from digrad.networks.network import Network
from digrad.theory.bracket import Bracket
from digrad.theory.eigenvectors import Perron
from digrad.theory.series import Matrix, Summand, mixing_time, norm_sums
from digrad.theory.squares import Triangle, square_sums

NORMS = ("N5", "N6", "N7", "N8", "N9")
SQUARES = ("V", "V_R")


@dataclass(frozen=True, eq=False)
class Lifted:
    """L = [[R̃, Π_RΠ_C/τ], [0, C̃]], with Lᵗ = [[R̃ᵗ, Eₜ₋₁/τ], [0, C̃ᵗ]].

    The scale τ, the mixing time, keeps the norm of Lᵗ near 1: Eₜ grows like t before it
    decays.
    """

    R: Matrix  # R̃
    C: Matrix  # C̃
    p: Perron
    a: int  # whether models are mixed after the step
    b: int  # whether gradients are mixed with the trackers
    time: float  # τ

    @classmethod
    def of(cls, net: Network, p: Perron, a: int = 1, b: int = 1) -> "Lifted":
        """Deflate both matrices."""
        R = net.R.toarray() - p.pi_R[None, :]
        C = net.C.toarray() - p.pi_C[:, None]
        return cls(R, C, p, a, b, mixing_time(R, C))

    @property
    def L(self) -> Triangle:
        """The three blocks of L."""
        return Triangle(self.R, self.Pi_R @ self.Pi_C / self.time, self.C)

    @property
    def Pi_R(self) -> Matrix:
        """I - 1π_Rᵀ, which is R̃⁰."""
        return np.eye(self.p.n) - self.p.pi_R[None, :]

    @property
    def Pi_C(self) -> Matrix:
        """I - π_C1ᵀ, which is C̃⁰."""
        return np.eye(self.p.n) - self.p.pi_C[:, None]

    @property
    def left(self) -> Matrix:
        """R̃ᵃ."""
        return self.R if self.a else self.Pi_R

    def deviation(self, last: Matrix) -> tuple[Matrix, Matrix]:
        """Return K with H Lᵗ K = Rᵃ(R̃ᵗ ``last`` + Eₜ₋₁(C̃ - I))Cᵇ for H = [Rᵃ, 0]."""
        turn = self.C - np.eye(self.p.n)
        right = self.C + self.p.pi_C[:, None] if self.b else np.eye(self.p.n)
        return last @ right, self.time * turn @ (self.C if self.b else self.Pi_C)

    def norms(self, rtol: float, effort: float) -> dict[str, Bracket]:
        """Bracket N5..N9, the sums of spectral norms."""
        n, zero = self.p.n, np.zeros((self.p.n, self.p.n))
        right = self.C if self.b else self.Pi_C
        blocks = [
            (zero, self.time * right),
            (zero, self.time * self.Pi_C),
            self.deviation(self.Pi_C),
            self.deviation(np.eye(n)),
        ]
        terms = [Summand(0), Summand(1, 2), Summand(2, 2), Summand(2), Summand(3)]
        L = self.L
        sums = norm_sums(
            np.hstack([self.left, zero]),
            np.block([[L.a, L.b], [zero, L.c]]),
            [np.vstack(block) for block in blocks],
            terms,
            time=self.time,
            rtol=rtol,
            effort=effort,
            first=True,
            scale=1.0,
        )
        return dict(zip(NORMS, sums, strict=True))

    def squares(self, rtol: float) -> dict[str, Bracket]:
        """Bracket V and V_R, the sums of squared Frobenius norms.

        v_t = π_RᵀC̃ᵗ⁻¹Cᵇ is yᵀ(C̃ - I)C̃ᵗ⁻¹Cᵇ with yᵀ(C̃ - I) = π_Rᵀ: the same K gives X_t and v_t.
        """
        n = self.p.n
        y = np.linalg.solve((self.C - np.eye(n)).T, self.p.pi_R)
        H = self.left, np.tile(y / self.time, (n, 1))
        factors = [self.deviation(np.eye(n)), (np.eye(n), np.zeros((n, n)))]
        sums = square_sums(H, self.L, factors, time=self.time, rtol=rtol)
        return dict(zip(SQUARES, sums, strict=True))
