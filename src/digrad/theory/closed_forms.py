"""What the paper says in closed form when R = C = W is doubly stochastic.

Lemma 3.2, Corollary 4.1 and Remarks 4.1 and 4.2, as printed and as corrected (E-10): the
printed bounds on N7 and N8 for symmetric W fail when an eigenvalue is close to -1.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from digrad.networks.network import Network
from digrad.theory.eigenvectors import is_uniform
from digrad.theory.norms import EPS, spectral_norm
from digrad.theory.rates import Setting, Terms

Case = Literal["doubly stochastic", "symmetric", "positive semidefinite"]


@dataclass(frozen=True)
class ClosedForm:
    """What a constant is equal to, or at most, by Lemma 3.2."""

    constant: str
    relation: Literal["=", "<="]
    printed: float
    corrected: float


@dataclass(frozen=True)
class DoublyStochasticCase:
    """Lemma 3.2 and Corollary 4.1 for one W."""

    case: Case
    n: int
    lam: float  # λ = ‖W - 11ᵀ/n‖₂
    smallest: float | None  # λ_n, the smallest eigenvalue of a symmetric W

    @property
    def c(self) -> float:
        """1 + min{λ_n, 0}; 1 for positive semidefinite W."""
        if self.case == "positive semidefinite" or self.smallest is None:
            return 1.0
        return 1.0 + min(self.smallest, 0.0)

    def closed_forms(self) -> list[ClosedForm]:
        """Return Lemma 3.2, constant by constant."""
        n, lam, c = self.n, self.lam, self.c
        exact = [ClosedForm("M1", "=", 1 / n, 1 / n)]
        exact += [ClosedForm(name, "=", 0.0, 0.0) for name in ("M2", "N1", "N2", "N3", "N4")]
        relation: Literal["=", "<="] = "<=" if self.case == "doubly stochastic" else "="
        n5, n6 = lam**2 / (1 - lam) ** 2, (lam**2 + lam**4) / (1 - lam**2) ** 3
        exact += [ClosedForm("N5", relation, n5, n5), ClosedForm("N6", relation, n6, n6)]
        if self.case == "doubly stochastic":
            n7, n8 = 8 / (1 - lam**2) ** 3, 8 / (1 - lam) ** 2
            return [*exact, ClosedForm("N7", "<=", n7, n7), ClosedForm("N8", "<=", n8, n8)]
        printed = 10 / (c * (1 - lam)), 10 / (sqrt(c) * (1 - lam))
        corrected = 16 / (c**2 * (1 - lam)), 8 / (c * (1 - lam))
        if self.case == "positive semidefinite":  # c = 1: the printed proof stands
            corrected = printed
        return [
            *exact,
            ClosedForm("N7", "<=", printed[0], corrected[0]),
            ClosedForm("N8", "<=", printed[1], corrected[1]),
        ]

    def rate(self, s: Setting, *, printed: bool = False) -> Terms:
        """Return the five terms of Corollary 4.1; corrected (E-10) unless ``printed``."""
        gap, c, steps = 1 - self.lam, self.c, s.T + 1
        cubic = (s.delta_f**2 * s.L**2 * s.sigma**2) ** (1 / 3) / steps ** (2 / 3)
        if self.case == "doubly stochastic":
            middle, third, initial = cubic / gap, gap**2, gap**2
        else:
            power = (1 / 3, 1 / 2) if printed else (2 / 3, 1.0)
            middle = cubic / (gap ** (1 / 3) * c ** power[0])
            third, initial = c ** power[1] * gap, gap
        return Terms(
            sampling=sqrt(s.delta_f * s.sigma**2 * s.L / (self.n * steps)),
            disagreement=middle,
            start=s.L * s.delta_f / (third * steps),
            tracking=(sqrt(self.n) * s.delta_f * s.L / (gap**2 * s.sigma * steps)) ** 2
            if s.sigma
            else 0.0,
            initial=s.F0 / (initial * steps),
        )

    def transient_order(self, *, printed: bool = False) -> float:
        """Return the order of the transient time of Remarks 4.1 and 4.2."""
        n, gap = self.n, 1 - self.lam
        if self.case == "doubly stochastic":
            return n**3 / gap**6
        power = 2 if printed else 4
        return float(max(n**3 / (self.c**power * gap**2), n / gap ** (8 / 3)))


def doubly_stochastic_case(net: Network) -> DoublyStochasticCase | None:
    """Return the case of Corollary 4.1 a network falls under; none if R ≠ C or ‖W - J‖ ≥ 1."""
    n = net.n
    if n > 2000 or not is_uniform(net.R) or _differ(net.R, net.C):
        return None
    W = net.R.toarray()
    if _differ(net.R, csr_array(net.R.T)):
        lam = spectral_norm(W - 1 / n)
        return (
            DoublyStochasticCase("doubly stochastic", n, lam, None) if lam < 1 - 64 * EPS else None
        )
    values = np.linalg.eigvalsh(W)[:-1] if n > 1 else np.zeros(1)
    lam, smallest = float(np.abs(values).max()), float(values[0])
    semidefinite = smallest >= -8 * EPS * np.sqrt(n)
    case: Case = "positive semidefinite" if semidefinite else "symmetric"
    return DoublyStochasticCase(case, n, lam, smallest)


def _differ(A: csr_array, B: csr_array) -> bool:
    difference = csr_array(A - B)
    return bool(difference.nnz and np.abs(difference.data).max() > 8 * EPS)
