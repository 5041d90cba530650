"""Step sizes, bounds and times that follow from the constants  (Lemma 3.12, Theorem 4.1).

For R = C = W doubly stochastic the paper has closed forms: Lemma 3.2, Corollary 4.1 and Remarks
4.1 and 4.2, here as printed and as corrected (E-10), since the printed bounds on N7 and N8 for
symmetric W fail when an eigenvalue is close to -1.
"""

from dataclasses import asdict, astuple, dataclass
from math import ceil, inf, sqrt
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from digrad.base.errors import ParameterError
from digrad.networks.network import Network
from digrad.theory.eigenvectors import is_uniform
from digrad.theory.network_constants import Constants
from digrad.theory.norms import EPS, nearly_equal, spectral_norm

SMALLEST, LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Setting:
    """What the theorem wants to know about the problem and the run."""

    L: float = 1.0  # Lipschitz constant of the gradients (Assumption 2.8)
    sigma: float = 1.0  # standard deviation of a stochastic gradient (Assumption 2.7)
    delta_f: float = 1.0  # f(xhat⁰) - f*
    F0: float = 1.0  # ‖∇F(X⁰)‖²_F / n
    T: int = 10_000  # number of steps

    def __post_init__(self) -> None:
        """Refuse numbers that no problem has and no float formula survives."""
        for name, value in asdict(self).items():
            may_vanish = name in ("sigma", "F0", "T")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ParameterError(f"{name} must be a number, got {value!r}")
            if not (SMALLEST <= value <= LARGEST or (may_vanish and value == 0)):
                least = "0 or " if may_vanish else ""
                raise ParameterError(
                    f"{name} must be {least}a number from {SMALLEST:g} to {LARGEST:g}, "
                    f"got {value:g}"
                )
            if name == "T" and value != int(value):
                raise ParameterError(f"T is a number of steps, got {value:g}")


@dataclass(frozen=True)
class Terms:
    """The five terms of the bound, in the paper's order, and what it leaves out."""

    sampling: float  # ~ 1/√(nT): what centralized SGD has too
    disagreement: float  # ~ 1/T^(2/3): noise that has not yet been averaged
    start: float  # ~ 1/T: the admissible step size
    tracking: float  # ~ 1/T²: noise fed back through the trackers
    initial: float  # ~ 1/T: the gradients at the start
    first_noise: float = 0.0  # ~ 1/T: the noise of the first gradients (E-2b)

    @property
    def total(self) -> float:
        """Their sum."""
        return float(sum(astuple(self)))


def gamma_max(c: Constants, L: float) -> float:
    """Return the largest admissible step, 1/(500 L √max{P1..P4})  (Lemma 3.12)."""
    largest = max(p.high for p in (c.P1, c.P2, c.P3, c.P4))
    return 1.0 / (500.0 * L * sqrt(largest)) if largest < inf else 0.0


def gamma_theorem(c: Constants, s: Setting) -> float:
    """Return the step of Theorem 4.1, with the (T + 1) that its first entry lacks (E-3)."""
    noise = s.sigma**2 * s.L * (s.T + 1)
    cubic = c.S.high * max(c["N4"].high, c["N7"].high) * s.L * noise
    square = c.Q.high * noise
    entries = _over(s.delta_f, cubic) ** (1 / 3), sqrt(_over(s.delta_f, square))
    return float(min(*entries, gamma_max(c, s.L)))


def explicit_bound(c: Constants, s: Setting, gamma: float, *, as_printed: bool = False) -> Terms:
    """Bound the mean of E‖∇f(x̂ᵗ)‖² over t = 0 .. T at a step ``gamma`` ≤ gamma_max.

    Lemma 3.12 (E-4 corrected) and the noise of the first gradients, which its proof misses:
    Y⁰ = G⁰ has not been mixed yet, so π_Rᵀθ⁰ reaches x̂ whole, and R̃ᵗθ⁰ stays in the models
    (E-2b). ``as_printed`` leaves that noise out, as the paper does; the number is then not
    a bound. The term 10 Δf/(γ nπ (T + 1)) stands under ``start``, the one linear in γ under
    ``sampling``.
    """
    n_pi = c.n * c.pi
    noise, S = s.sigma**2 * s.L, c.S.high
    feedback = _times(200_000 * noise * s.L**3 * gamma**4 / n_pi, S, c["N5"].high ** 2)
    return Terms(
        sampling=100 * c.Q.high * noise * gamma / n_pi,
        disagreement=_times(80_000 * noise * s.L * gamma**2 / n_pi, S, _worst(c)),
        start=_over(10 * s.delta_f, gamma * n_pi * (s.T + 1)),
        tracking=_times(feedback, c["M1"].high),
        initial=_times(30 * s.F0 / (n_pi * (s.T + 1)), c.P5.high),
        first_noise=0.0 if as_printed else _first_noise(c, s, gamma, feedback),
    )


def _first_noise(c: Constants, s: Setting, gamma: float, feedback: float) -> float:
    """Return what θ⁰ adds to the bound (docs/errata.md, E-2b).

    Lemma 3.10 gets ‖π_R‖² beside M1(T + 1), and Lemma 3.11 gets Σ ‖R̃ᵗΠ_C‖_F² ≤ 2V_R + 2nN4
    beside n N7 (T + 1); the factors are those that their neighbours have in the proof.
    """
    n_pi, noise = c.n * c.pi, s.sigma**2 * s.L
    moved = 80 * max(c.M2_tilde.high, 1.0) * c.pi_R_square * noise * gamma / n_pi
    left = 2 * c["V_R"].high + 2 * c.n * c["N4"].high
    spread = _times(1920 * noise * s.L * gamma**2 / (n_pi * c.n), c.S.high, left)
    return (moved + spread + _times(feedback, c.pi_R_square)) / (s.T + 1)


def rate(c: Constants, s: Setting) -> Terms:
    """Return the five terms of Theorem 4.1 at T steps, without their numerical factors.

    Like the paper, without the noise of the first gradients, which falls faster in T (E-2b).
    """
    n_pi, steps = c.n * c.pi, s.T + 1
    S, largest = c.S.high, max(p.high for p in (c.P1, c.P2, c.P3, c.P4))
    cubic = _times(s.delta_f**2 * s.L**2 * s.sigma**2, S, _worst(c))
    feedback = _times(1 / (n_pi * c.Q.high**2), S, c["M1"].high, c["N5"].high ** 2)
    return Terms(
        sampling=sqrt(c.speedup_ratio.high * s.delta_f * s.sigma**2 * s.L / (c.n * steps)),
        disagreement=cubic ** (1 / 3) / n_pi / steps ** (2 / 3),
        start=sqrt(largest) * s.L * s.delta_f / n_pi / steps,
        # Without noise nothing is fed back (E-13).
        tracking=_times(feedback, (s.delta_f * s.L / (s.sigma * steps)) ** 2) if s.sigma else 0.0,
        initial=_times(s.F0 / (n_pi * steps), c.P5.high),
    )


def transient_time(c: Constants, s: Setting) -> float:
    """Return the smallest T from which the 1/√(nT) term is at least each of the others.

    The terms are those of Theorem 4.1, without numerical factors, as in Remarks 4.1 and
    4.2. Infinite without noise (σ = 0), when there is no such term, or where a constant is
    not known from above.
    """
    at_one = rate(c, Setting(s.L, s.sigma, s.delta_f, s.F0, T=0))
    if at_one.sampling == 0:
        return inf
    exponents = {"disagreement": 2 / 3, "start": 1.0, "tracking": 2.0, "initial": 1.0}
    crossings = [
        (getattr(at_one, name) / at_one.sampling) ** (1 / (exponent - 1 / 2))
        for name, exponent in exponents.items()
    ]
    steps = max(crossings)
    return float(max(ceil(steps * (1 - 1e-12)) - 1, 0)) if steps < inf else inf


def _worst(c: Constants) -> float:
    return max(c["N4"].high, c["N7"].high)


def _over(a: float, b: float) -> float:
    return a / b if b > 0 else inf


def _times(*factors: float) -> float:
    """Multiply, with 0 times infinity equal to 0."""
    product = 1.0
    for factor in factors:
        if factor == 0:
            return 0.0
        product *= factor
    return product


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
    if n > 2000 or not is_uniform(net.R) or not nearly_equal(net.R, net.C):
        return None
    W = net.R.toarray()
    if not nearly_equal(net.R, csr_array(net.R.T)):
        lam = spectral_norm(W - 1 / n)
        mixes = lam < 1 - 64 * EPS
        return DoublyStochasticCase("doubly stochastic", n, lam, None) if mixes else None
    values = np.linalg.eigvalsh(W)[:-1] if n > 1 else np.zeros(1)
    lam, smallest = float(np.abs(values).max()), float(values[0])
    semidefinite = smallest >= -8 * EPS * np.sqrt(n)
    case: Case = "positive semidefinite" if semidefinite else "symmetric"
    return DoublyStochasticCase(case, n, lam, smallest)
