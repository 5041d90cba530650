"""Our own rate for S-PP: a bound without Q whose leading term is that of SGD (docs/rate.md).

Everything depends on the step through h = Lγnπ alone. In units of a gradient, the root sums of
squares over t = 0 .. T of the tracking error (ε), of the moves (ω) and of the disagreement (ζ)
obey u ≤ M u + a + b G, where G is that of ∇f(wᵗ); the theorem solves this and the descent lemma.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf, isfinite, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import lookup
from digrad.networks.network import Network
from digrad.theory.bracket import Bracket
from digrad.theory.contraction import LargeMixing
from digrad.theory.eigenvectors import Perron, perron
from digrad.theory.lifted import Lifted
from digrad.theory.network_constants import MATRIX_N, Constants, _pull_sums, _push_sums
from digrad.theory.norms import MATRIX_SUMS
from digrad.theory.rates import Setting

Floats = NDArray[np.float64]

GRID = 49  # steps tried at once; four rounds leave a step within a millionth of the best
LONGEST = 1e29  # a T_z beyond it is called infinite


@dataclass(frozen=True)
class RateConstants:
    """What the theorem wants to know of a network and of a form of S-PP: upper ends."""

    n: int
    pi: float
    N1: float
    N1p: float
    N2: float
    N2p: float
    N3: float
    N5: float
    N6: float
    N8: float
    N9: float
    V: float
    V_R: float  # 0 where gradients are not mixed with the trackers: then θ⁰ is like the rest
    first: float  # E|noise of w¹|²/σ²: ‖π_R‖², or nπ² where θ⁰ is like the rest

    @classmethod
    def of(cls, c: Constants) -> "RateConstants":
        """Take those of the form that the paper analyses, R(X - γY) and C(Y + G⁺ - G)."""
        names = ("N1", "N1p", "N2", "N2p", "N3", "N5", "N6", "N8", "N9", "V", "V_R")
        return cls(c.n, c.pi, **{name: c[name].high for name in names}, first=c.pi_R_square)

    @property
    def n_pi(self) -> float:
        """nπ."""
        return self.n * self.pi

    @property
    def known(self) -> bool:
        """Whether every constant is known from above."""
        return all(map(isfinite, (self.N1, self.N3, self.N5, self.N6, self.N9, self.V, self.V_R)))


def sgd_bound(s: Setting, n: int) -> float:
    """Return √(2 Δf L σ²/(n(T + 1))): what SGD with all n gradients guarantees at its best step."""
    return sqrt(2 * s.delta_f * s.L * s.sigma**2 / (n * (s.T + 1)))


def certified_bound(c: RateConstants, s: Setting, gamma: float) -> float:
    """Bound the mean of E‖∇f(x̂ᵗ)‖² over t = 0 .. T at a step γ; infinite where it is too large."""
    return float(_bounds(c, s, np.array([s.L * gamma * c.n_pi]))[0])


def gamma_certified(c: RateConstants, L: float) -> float:
    """Return the largest step that the theorem allows."""
    return _largest(c) / (L * c.n_pi)


def gamma_best(c: RateConstants, s: Setting) -> float:
    """Return the step with the smallest certified bound for T steps."""
    return _best(c, s, 0)[0] / (s.L * c.n_pi)


def transient_certified(c: RateConstants, s: Setting) -> float:
    """Return T_z: from this T on the certified bound is at most twice the one of SGD.

    Proved for all later T: with the step scaled by 1/√T the bound over that of SGD does not
    grow (docs/rate.md). Infinite without noise, or where a constant is not known from above.
    """
    if s.sigma == 0 or not c.known:
        return inf

    def reached(T: float) -> bool:
        later = replace(s, T=T)  # type: ignore[arg-type]  # beyond 1e15 no step is a whole one
        return _best(c, later, 1)[1] <= 2 * sgd_bound(later, c.n)

    low, high = 0.0, 1.0
    while not reached(high):
        low, high = high, 4 * high
        if high > LONGEST:
            return inf
    while high - low > max(1.0, 1e-9 * high):
        middle = np.floor((low + high) / 2)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return float(ceil(high))


def _scaled(c: RateConstants) -> dict[str, float]:
    """Return the constants over nπ, as they enter."""
    root = sqrt(c.n)
    return {
        "a1": root * c.N1 / c.n_pi,
        "a1p": root * c.N1p / c.n_pi,
        "a2": sqrt(c.N2) / c.n_pi,
        "a3": root * c.N3 / c.n_pi,
        "a5": c.N5 / c.n_pi,
        "a6": sqrt(c.N6 / c.n) / c.n_pi,
        "a9": c.N9 / c.n_pi,
    }


def _system(
    c: RateConstants, s: Setting, h: Floats, more: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return α and β of d ≤ α + βG, and whether they exist: (I - M)⁻¹ ≥ 0.

    ``more`` counts steps on top of T where noise is counted, for the proof about T_z.
    """
    x, zero, T = _scaled(c), np.zeros_like(h), s.T + more
    phi = sqrt(c.n * s.F0)
    M = np.moveaxis(
        np.array(
            [
                [zero, zero + x["a1"], zero + x["a1p"]],
                [h, zero, h],
                [zero, h * x["a5"], h * x["a9"]],
            ]
        ),
        2,
        0,
    )
    models = s.sigma * sqrt((c.V * T + c.V_R) / c.n) / c.n_pi + x["a6"] * phi
    a = np.stack([zero + x["a2"] * phi, h * s.sigma * sqrt(_steps(c, T) / c.n), h * models], axis=1)
    b = np.stack([zero, h, h * x["a3"]], axis=1)
    left = np.eye(3) - M
    # I - M has no positive entry off the diagonal: its inverse is nonnegative exactly if its
    # leading minors are positive.
    second, loop = 1 - h * x["a1"], h**2 * x["a5"]
    third = second * (1 - h * x["a9"]) - (1 + x["a1p"]) * loop
    good: NDArray[np.bool_] = (second > 0) & (third > 0)
    left[~good] = np.eye(3)
    solved = np.linalg.solve(left, np.stack([a, b], axis=2))
    alpha, beta = (solved[:, 0, k] + solved[:, 2, k] for k in (0, 1))
    return alpha, beta, good


def _steps(c: RateConstants, T: float) -> float:
    """T₁: how many settled steps the noise of all is worth."""
    return T + c.first / (c.n * c.pi**2)


def _bounds(c: RateConstants, s: Setting, h: Floats, more: int = 0) -> Floats:
    """Return the theorem's right-hand side for several h at once."""
    if not c.known:
        return np.full(len(h), inf)
    T = s.T + more
    alpha, beta, good = _system(c, s, h, more)
    kappa = 1 - beta - h / 2 * (1 + beta) ** 2
    good &= kappa > 0
    kappa = np.where(good, kappa, 1.0)
    p = alpha * (1 + h * (1 + beta))
    q = s.L * s.delta_f / h + h / 2 * (s.sigma**2 * _steps(c, T) / c.n + alpha**2)
    G = (p + np.sqrt(p**2 + 4 * kappa * q)) / (2 * kappa)
    apart = h * s.sigma * sqrt(c.N2p * T) / c.n_pi
    return np.where(good, (G + apart) ** 2 / (s.T + 1), inf)


@cache
def _largest(c: RateConstants) -> float:
    """Return the largest h with M's spectral radius below 1 and κ > 0; both are monotone in h."""
    if not c.known:
        return 0.0

    def allowed(h: Floats) -> NDArray[np.bool_]:
        _, beta, good = _system(c, Setting(), h, 0)
        return good & (1 - beta - h / 2 * (1 + beta) ** 2 > 0)

    halved = np.exp2(-np.arange(1000.0))
    low = float(halved[np.argmax(allowed(halved))])
    high = 2 * low
    for _ in range(10):
        h: Floats = np.linspace(low, high, 65)
        k = int(allowed(h[1:-1]).sum())  # monotone: all below it, none above
        low, high = float(h[k]), float(h[k + 1])
    return low * (1 - 1e-12)  # so that a step made from it, and h from that, stays below


def _best(c: RateConstants, s: Setting, more: int) -> tuple[float, float]:
    """Return the h of the smallest bound, and that bound, by ever finer grids."""
    high = _largest(c)
    if high == 0:
        return 0.0, inf
    wish = sqrt(2 * c.n * s.delta_f * s.L / (s.sigma**2 * (s.T + 1))) if s.sigma else high
    low = 1e-3 * min(wish, high)
    for _ in range(4):
        h = np.geomspace(low, high, GRID)
        bounds = _bounds(c, s, h, more)
        k = int(np.argmin(bounds))
        low, high = h[max(k - 1, 0)], h[min(k + 1, GRID - 1)]
    return float(h[k]), float(bounds[k])


def closed_bound(c: RateConstants, s: Setting, gamma: float) -> float:
    """Return the bound of Corollary 1, in closed form; infinite where its conditions fail.

    It is never below the theorem's, and shows how each constant enters.
    """
    h, x = s.L * gamma * c.n_pi, _scaled(c)
    B, phi, T1 = 1 + x["a1p"], sqrt(c.n * s.F0), _steps(c, s.T)
    a8 = c.N8 / c.n_pi
    feedback = 4 / 3 * (h * x["a1"] + B * (2 * h * x["a3"] + 8 / 3 * h**2 * x["a5"]))
    decay = h * (x["a3"] + a8) + 4 / 3 * h**2 * x["a5"] * B
    if not (c.known and h <= 1 / 8 and feedback <= 1 / 8 and decay <= 1 / 2):
        return inf
    drift = s.sigma * sqrt(T1 / c.n)
    models = 2 * h * s.sigma * sqrt((c.V * s.T + c.V_R) / c.n) / c.n_pi + 2 * h * x["a6"] * phi
    models += 8 / 3 * h**2 * x["a5"] * (drift + x["a2"] * phi)
    alpha = 4 / 3 * (h * x["a1"] * drift + x["a2"] * phi + B * models)
    terms = (
        4 * s.L * s.delta_f / h
        + 2 * h * s.sigma**2 * T1 / c.n
        + 8 * alpha**2
        + 2 * h**2 * s.sigma**2 * c.N2p * s.T / c.n_pi**2
    )
    return float(terms / (s.T + 1))


Form = Literal["atc", "cta"]
MIXED = {"atc": 1, "cta": 0}  # whether what is new is mixed with the rest


def form_constants(
    net: Network,
    x_form: Form = "atc",
    y_form: Form = "atc",
    *,
    rtol: float = 1e-9,
    effort: float = 1.0,
) -> RateConstants:
    """Return the constants of our rate for one of the four forms of S-PP.

    X⁺ = R(X - γY) or RX - γY, Y⁺ = C(Y + G⁺ - G) or CY + G⁺ - G: the second ones have a power of
    R or of C less in every term; where gradients are not mixed with the trackers,
    the first ones are like all others and the start-up noise is gone.

    >>> from digrad.networks import exponential, weigh
    >>> net = weigh(exponential(8))
    >>> form_constants(net, "cta", "cta").V > form_constants(net).V
    True
    """
    a, b = (lookup(MIXED, form, "form") for form in (x_form, y_form))
    p = perron(net)
    mixing = LargeMixing(net, p)
    vectors = _push_sums(mixing, rtol, effort) | _pull_sums(mixing, rtol, effort)
    values = _vectors(net, p, a, b, vectors)
    values |= _matrices(mixing, a, b, vectors, rtol, effort)
    if not b:
        values["V_R"] = 0.0
    first = float(p.pi_R @ p.pi_R) if b else net.n * p.pi**2
    return RateConstants(net.n, p.pi, **values, first=first)


def _vectors(
    net: Network, p: Perron, a: int, b: int, known: dict[str, Bracket]
) -> dict[str, float]:
    """N1, N1', N2, N2' and N3, from those of the form with a power more."""
    found = {name: known[name].high for name in ("N1", "N1p", "N2", "N2p", "N3")}
    v0, v1 = p.pi_R - p.pi, net.C.T @ p.pi_R - p.pi
    if not b:
        sizes = [float(np.linalg.norm(v)) for v in (v0, v1, v1 - v0)]
        found["N1"] += sizes[0]
        found["N1p"] += sizes[0] - sizes[1] + sizes[2]
        found["N2p"] = found["N2"]
    if not a:
        found["N3"] += float(np.linalg.norm(p.pi_C - p.pi))
    return found


def _matrices(
    mixing: LargeMixing, a: int, b: int, vectors: dict[str, Bracket], rtol: float, effort: float
) -> dict[str, float]:
    """N5, N6, N8, N9, V and V_R."""
    n, names = mixing.net.n, [name for name in MATRIX_SUMS if name != "N7"]
    if n == 1:
        return dict.fromkeys(names, 0.0)
    if n > MATRIX_N:
        bounds = mixing.bounds(vectors, a, b)
        return {name: bounds.get(name, inf) for name in names}
    lifted = Lifted.of(mixing.net, mixing.p, a, b)
    sums = lifted.norms(rtol, effort) | lifted.squares(rtol)
    return {name: sums[name].high for name in names}
