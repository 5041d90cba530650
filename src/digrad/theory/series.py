"""Certified sums Σₜ≥₁ tʷ ‖H Lᵗ K‖₂ᵖ: what all the paper's constants are made of.

The sum is added term by term until a *proved* bound on the rest is small. Where the powers
of L decay slowly, the modes that have died out are split off first, with a proved bound on
what that changes; then a term costs the cube of the number of modes still alive.
See docs/design/0002-certified-sums.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from digrad.theory.bracket import Bracket

Matrix = NDArray[np.float64]

MOST_WORK = 3e12  # floating-point operations spent on one group of sums: a minute or two
BATCH = 4_000_000  # numbers held at once while a stretch of terms is evaluated
LARGEST_COUPLING = 1e4  # ‖Z‖ from which splitting modes would cost more digits than it saves terms
EPS = float(np.finfo(float).eps)


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


def spectral_norms(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ‖A‖₂ of every matrix A in a stack, to rounding."""
    if min(stack.shape[-2:]) == 1:
        squares: Matrix = np.einsum("...ij,...ij->...", stack, stack)
        return np.sqrt(squares)
    if stack.shape[-2] > stack.shape[-1]:
        stack = stack.swapaxes(-2, -1)
    gram = stack @ stack.swapaxes(-2, -1)
    if gram.shape[-1] == 2:
        a, b, c = gram[..., 0, 0], gram[..., 0, 1], gram[..., 1, 1]
        return np.asarray(np.sqrt((a + c) / 2 + np.hypot((a - c) / 2, b)))
    # The largest eigenvalue of the Gram matrix is exact to rounding, unlike the small ones.
    largest = np.maximum(np.linalg.eigvalsh(gram)[..., -1], 0.0)
    return np.asarray(np.sqrt(largest), dtype=np.float64)


def spectral_norm(A: Matrix) -> float:
    """Return ‖A‖₂, to rounding."""
    return float(spectral_norms(A[None])[0])


def norm_bound(A: Matrix) -> float:
    """Bound ‖A‖₂ without eigenvalues: by ‖A‖_F and by √(‖A‖₁ ‖A‖_∞)."""
    size = np.abs(A)
    return float(min(np.linalg.norm(A), np.sqrt(size.sum(0).max() * size.sum(1).max())))


class _Orbit(NamedTuple):
    """What is left to add after t terms: Σₛ≥₁ of the terms made from H Lˢ K."""

    H: Matrix
    L: Matrix
    factors: tuple[Matrix, ...]
    sizes: tuple[float, ...]  # ‖K‖ of each factor
    decay: Decay

    @classmethod
    def start(cls, H: Matrix, L: Matrix, factors: Sequence[Matrix]) -> "_Orbit":
        """Measure what does not change from term to term."""
        return cls(H, L, tuple(factors), tuple(map(spectral_norm, factors)), decay(L))

    def rests(self, terms: Sequence[Summand], t: int) -> Matrix:
        """Bound each of the sums from term t + 1 on."""
        size = norm_bound(self.H)
        return np.array([self.decay.rest(s, size * self.sizes[s.factor], t) for s in terms])

    @property
    def work(self) -> float:
        """Roughly the floating-point operations one term costs."""
        p, N = self.H.shape
        columns: list[int] = [K.shape[1] for K in self.factors]
        return float(2.0 * p * N * N + sum(2.0 * p * N * q + _norm_work(p, q) for q in columns))


def _norm_work(p: int, q: int) -> float:
    k = min(p, q)
    if k == 1:
        return 2.0 * p * q
    # Fitted to measured times: small eigenvalue problems cost far more than their cube.
    return 2.0 * k * p * q + 1.5 * k**3 + 800.0 * k**2 + 5000.0


def mixing_time(*matrices: Matrix) -> float:
    """Return 1/(1 - ρ) for the largest spectral radius ρ: the steps in which modes decay."""
    rho = max(float(np.abs(np.linalg.eigvals(M)).max()) for M in matrices)
    return 1.0 / (1.0 - min(rho, 1.0 - EPS))


def norm_sums(
    H: Matrix,
    L: Matrix,
    factors: Sequence[Matrix],
    terms: Sequence[Summand],
    *,
    time: float,
    rtol: float = 1e-9,
    effort: float = 1.0,
    first: bool = False,
    slack: float = 0.0,
    scale: float = 0.0,
) -> list[Bracket]:
    """Bracket Σₜ≥₁ tʷ ‖H Lᵗ K‖₂ᵖ for each summand (K, p, w).

    The width is at most ``rtol`` of the sum, unless that would take more than ``effort``
    times the usual work: then the bracket is as narrow as it got, and still true.
    ``time`` is the mixing time of L: how much a rounding error of one step is amplified.
    With ``first`` the sums begin at t = 0. H itself is known up to ``slack`` in norm,
    and was made from numbers of size ``scale``, which may have cancelled.

    >>> norm_sums(np.eye(1), np.array([[0.5]]), [np.eye(1)], [Summand(0)], time=2.0)
    [Bracket(1, 1)]
    """
    orbit = _Orbit.start(H, L, factors)
    rounding = _rounding(orbit, terms, time, slack, scale)
    totals, dropped = _start(orbit, terms, first), np.zeros(len(terms))
    t, spent, next_split = 0, 0.0, 32
    while True:
        span = _span(orbit, t)
        spent += span * orbit.work
        orbit, added = _advance(orbit, terms, span, t)
        t, totals = t + span, totals + added
        rests, error = orbit.rests(terms, t), _change(terms, totals, dropped)
        if (rests + error <= 0.5 * rtol * totals).all() or spent > effort * MOST_WORK:
            break
        if t >= next_split and _worth_splitting(orbit, rests, rtol * totals, time):
            slow, more = _split(orbit, terms, t, rtol)
            if (_change(terms, totals, dropped + more) <= 0.25 * rtol * totals).all():
                orbit, dropped = slow, dropped + more
            next_split = t + max(16, t // 4)
    # A sum of exact zeros has no rounding error.
    absolute = np.where(totals > 0, rounding.absolute, 0.0)
    error += rounding.relative * totals + _change(terms, totals, absolute)
    return [
        Bracket(max(float(low), 0.0), float(high))
        for low, high in zip(totals - error, totals + error + rests, strict=True)
    ]


class _Rounding(NamedTuple):
    relative: Matrix  # to each sum
    absolute: Matrix  # to each sum's terms, in the ℓᵖ norm


def _start(orbit: _Orbit, terms: Sequence[Summand], first: bool) -> Matrix:
    if not first:
        return np.zeros(len(terms))
    return np.array([spectral_norm(orbit.H @ orbit.factors[s.factor]) ** s.power for s in terms])


def _rounding(
    orbit: _Orbit, terms: Sequence[Summand], time: float, slack: float, scale: float
) -> _Rounding:
    """Allow for rounding, to first order: one step's error lives on for the mixing time.

    Powers that grow before they decay amplify it further; the bound on Σ‖Lˢ‖ tells. An error
    in H lives as long.
    """
    grown = min(orbit.decay.norms, 1e6 * time)
    amplified = EPS * max(16 * time, 4 * float(np.sqrt(time * grown)))
    size = max(norm_bound(orbit.H), scale)
    return _Rounding(
        np.array([amplified * s.power * (1 + s.weight) for s in terms]),
        np.array(
            [
                (16 * EPS * size + slack * (4 * time ** (1 + s.weight)) ** (1 / s.power))
                * orbit.sizes[s.factor]
                for s in terms
            ]
        ),
    )


def _span(orbit: _Orbit, t: int) -> int:
    """How many terms to evaluate at once: more as time goes on, as many as memory takes."""
    widest = max(orbit.H.shape[1], *(K.shape[1] for K in orbit.factors))
    fit = max(1, BATCH // int(orbit.H.shape[0] * widest))
    return min(fit, max(32, t))


def _advance(orbit: _Orbit, terms: Sequence[Summand], span: int, t: int) -> tuple[_Orbit, Matrix]:
    """Add the terms t + 1 .. t + span."""
    rows, power = (orbit.H @ orbit.L)[None], orbit.L
    while len(rows) < span:
        rows = np.concatenate([rows, _times(rows[: span - len(rows)], power)])
        power = power @ power
    norms = [spectral_norms(_times(rows, K)) for K in orbit.factors]
    times = t + 1.0 + np.arange(span)
    added = [(norms[s.factor] ** s.power * times**s.weight).sum() for s in terms]
    return orbit._replace(H=rows[-1]), np.array(added)


def _times(stack: Matrix, A: Matrix) -> Matrix:
    """Return every matrix of a stack times A, as one large product."""
    m, p, N = stack.shape
    return (stack.reshape(m * p, N) @ A).reshape(m, p, A.shape[1])


def _change(terms: Sequence[Summand], totals: Matrix, dropped: Matrix) -> Matrix:
    """Bound how far each sum moves when its terms move by ``dropped`` in the ℓᵖ norm."""
    powers = np.array([term.power for term in terms])
    return np.where(powers == 1, dropped, (2 * np.sqrt(totals) + dropped) * dropped)


def _worth_splitting(orbit: _Orbit, rests: Matrix, targets: Matrix, time: float) -> bool:
    """Whether the terms still to come will cost more than a Schur decomposition."""
    with np.errstate(divide="ignore"):
        to_come = time * max(float(np.log(rests / np.maximum(targets, 1e-300)).max()), 0.0)
    return to_come * orbit.work > 100.0 * len(orbit.L) ** 3


def _split(orbit: _Orbit, terms: Sequence[Summand], t: int, rtol: float) -> tuple[_Orbit, Matrix]:
    """Drop the modes of L that have died out; return too what that changes, in the ℓᵖ norm.

    With L = Xₛ Lₛ Yₛᵀ + X_f L_f Y_fᵀ (slow and fast eigenvalues),
    H Lˢ K = (H Xₛ) Lₛˢ (Yₛᵀ K) + (H X_f) L_fˢ (Y_fᵀ K): the last part is bounded by
    ‖H X_f‖ ‖L_fˢ‖ ‖Y_fᵀ K‖ with H as it is *now*. A splitting that would amplify rounding
    errors is not made.
    """
    unchanged = orbit, np.zeros(len(terms))
    cut = _cut(orbit.L, t, rtol)
    if cut is None:
        return unchanged
    from scipy.linalg import lapack, schur

    T, U, r = schur(orbit.L, sort=lambda re, im=0.0: bool(abs(re + 1j * im) > cut))
    if not 0 < r < len(T):
        return unchanged
    slow, fast, Us, Uf = T[:r, :r], T[r:, r:], U[:, :r], U[:, r:]
    Z, scale, failed = lapack.dtrsyl(slow, fast, -T[:r, r:], isgn=-1)
    Z = Z / scale  # slow Z - Z fast = -coupling decouples the two blocks
    if failed or not np.linalg.norm(Z) <= LARGEST_COUPLING:
        return unchanged
    dying, size = decay(fast), norm_bound(orbit.H @ (Us @ Z + Uf))
    scales = [size * spectral_norm(Uf.T @ K) for K in orbit.factors]
    dropped = [dying.rest(s, scales[s.factor], t) ** (1 / s.power) for s in terms]
    factors = tuple(_narrow((Us.T - Z @ Uf.T) @ K) for K in orbit.factors)
    return _Orbit.start(_narrow((orbit.H @ Us).T).T, slow, factors), np.array(dropped)


def _cut(L: Matrix, t: int, rtol: float) -> float | None:
    """Return a modulus between live and dead eigenvalues, inside a gap of the spectrum."""
    moduli = np.sort(np.abs(np.linalg.eigvals(L)))[::-1]
    alive = int((moduli**t > 1e-4 * rtol).sum())
    if alive == 0 or alive > 0.6 * len(moduli) or alive + 4 > len(moduli):
        return None
    # Eigenvalues far below are all rounding: a gap between two of them separates nothing.
    near = np.maximum(moduli[alive - 1 : alive + alive // 4 + 4], 1e-3 * moduli[alive - 1])
    gap = int(np.argmax(near[:-1] / near[1:]))
    return float(np.sqrt(near[gap] * near[gap + 1]))


def _narrow(A: Matrix) -> Matrix:
    """Return B with as few columns as rows and B Bᵀ = A Aᵀ, so that every ‖X A‖ = ‖X B‖."""
    return A if A.shape[1] <= A.shape[0] else np.asarray(np.linalg.qr(A.T, mode="r")).T
