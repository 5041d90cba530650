"""Step sizes, bounds and times that follow from the constants  (Lemma 3.12, Theorem 4.1)."""

from dataclasses import asdict, astuple, dataclass
from math import ceil, inf, sqrt

from digrad.base.errors import ParameterError, message
from digrad.theory.network_constants import Constants

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
                    message(
                        f"{name} must be {least}a number from {SMALLEST:g} to {LARGEST:g}, "
                        f"got {value:g}"
                    )
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
