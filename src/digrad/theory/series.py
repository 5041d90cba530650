"""Certified sums Σₜ≥₁ tʷ ‖H Lᵗ K‖₂ᵖ: what all the paper's constants are made of.

The sum is added term by term until a *proved* bound on the rest is small. Where the powers
of L decay slowly, the modes that have died out are split off first, with a proved bound on
what that changes; then a term costs the cube of the number of modes still alive.
See docs/design/0002-certified-sums.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from digrad.theory.bracket import Bracket, brackets
from digrad.theory.norms import (
    EPS,
    Decay,
    Matrix,
    Summand,
    decay,
    norm_bound,
    spectral_norm,
    spectral_norms,
)

MOST_WORK = 3e12  # floating-point operations spent on one group of sums: a minute or two
BATCH = 4_000_000  # numbers held at once while a stretch of terms is evaluated
LARGEST_COUPLING = 1e4  # ‖Z‖ from which splitting modes would cost more digits than it saves terms


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


def norm_sums(
    parts: Sequence[tuple[Matrix, Matrix, Sequence[Matrix]]],
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

    Each part is H, L and the factors K; where there are several, the matrices are direct sums of
    them: a norm is then the largest of the parts', and what is left of each part or dropped from it
    bounds what is left or dropped of the whole when added up.

    The width is at most ``rtol`` of the sum, unless that would take more than ``effort``
    times the usual work: then the bracket is as narrow as it got, and still true.
    ``time`` is the mixing time of L: how much a rounding error of one step is amplified.
    With ``first`` the sums begin at t = 0. H itself is known up to ``slack`` in norm,
    and was made from numbers of size ``scale``, which may have cancelled.

    >>> norm_sums([(np.eye(1), np.array([[0.5]]), [np.eye(1)])], [Summand(0)], time=2.0)
    [Bracket(1, 1)]
    """
    orbits = [_Orbit.start(*part) for part in parts]
    rounding = _rounding(orbits, terms, time, slack, scale)
    totals, dropped = _start(orbits, terms, first), np.zeros(len(terms))
    t, spent, next_split = 0, 0.0, 32
    while True:
        span = min(_span(orbit, t) for orbit in orbits)
        spent += span * sum(orbit.work for orbit in orbits)
        orbits, added = _advance(orbits, terms, span, t)
        t, totals = t + span, totals + added
        rests = sum((orbit.rests(terms, t) for orbit in orbits), np.zeros(len(terms)))
        error = _change(terms, totals, dropped)
        if (rests + error <= 0.5 * rtol * totals).all() or spent > effort * MOST_WORK:
            break
        if t >= next_split:
            orbits, dropped = _lightened(orbits, terms, t, totals, dropped, rtol, time)
            next_split = t + max(16, t // 4)
    # A sum of exact zeros has no rounding error.
    absolute = np.where(totals > 0, rounding.absolute, 0.0)
    error += rounding.relative * totals + _change(terms, totals, absolute)
    return brackets(totals - error, totals + error + rests)


class _Rounding(NamedTuple):
    relative: Matrix  # to each sum
    absolute: Matrix  # to each sum's terms, in the ℓᵖ norm


def _start(orbits: Sequence[_Orbit], terms: Sequence[Summand], first: bool) -> Matrix:
    if not first:
        return np.zeros(len(terms))
    norms = [[spectral_norm(orbit.H @ K) for K in orbit.factors] for orbit in orbits]
    largest = np.max(norms, axis=0)
    return np.array([largest[s.factor] ** s.power for s in terms])


def _rounding(
    orbits: Sequence[_Orbit], terms: Sequence[Summand], time: float, slack: float, scale: float
) -> _Rounding:
    """Allow for rounding, to first order: one step's error lives on for the mixing time.

    Powers that grow before they decay amplify it further; the bound on Σ‖Lˢ‖ tells. An error
    in H lives as long.
    """
    grown = min(max(orbit.decay.norms for orbit in orbits), 1e6 * time)
    amplified = EPS * max(16 * time, 4 * float(np.sqrt(time * grown)))
    size = max(scale, *(norm_bound(orbit.H) for orbit in orbits))
    factors = np.max([orbit.sizes for orbit in orbits], axis=0)
    return _Rounding(
        np.array([amplified * s.power * (1 + s.weight) for s in terms]),
        np.array(
            [
                (16 * EPS * size + slack * (4 * time ** (1 + s.weight)) ** (1 / s.power))
                * factors[s.factor]
                for s in terms
            ]
        ),
    )


def _span(orbit: _Orbit, t: int) -> int:
    """How many terms to evaluate at once: more as time goes on, as many as memory takes."""
    widest = max(orbit.H.shape[1], *(K.shape[1] for K in orbit.factors))
    fit = max(1, BATCH // int(orbit.H.shape[0] * widest))
    return min(fit, max(32, t // 2))


def _advance(
    orbits: Sequence[_Orbit], terms: Sequence[Summand], span: int, t: int
) -> tuple[list[_Orbit], Matrix]:
    """Add the terms t + 1 .. t + span."""
    walks = [_walk(orbit, span) for orbit in orbits]
    times, largest = t + 1.0 + np.arange(span), []
    for k in range(len(orbits[0].factors)):
        stacks = [_times(rows, o.factors[k]) for rows, o in zip(walks, orbits, strict=True)]
        first, *others = sorted(stacks, key=lambda stack: -float(np.vdot(stack, stack)))
        norms = spectral_norms(first)
        for stack in others:
            norms = spectral_norms(stack, norms)
        largest.append(norms)
    added = [(largest[s.factor] ** s.power * times**s.weight).sum() for s in terms]
    moved = [orbit._replace(H=rows[-1]) for rows, orbit in zip(walks, orbits, strict=True)]
    return moved, np.array(added)


def _walk(orbit: _Orbit, span: int) -> Matrix:
    """Return H L, H L², ..."""
    rows, power = (orbit.H @ orbit.L)[None], orbit.L
    while len(rows) < span:
        rows = np.concatenate([rows, _times(rows[: span - len(rows)], power)])
        power = power @ power
    return rows


def _times(stack: Matrix, A: Matrix) -> Matrix:
    """Return every matrix of a stack times A, as one large product."""
    m, p, N = stack.shape
    return (stack.reshape(m * p, N) @ A).reshape(m, p, A.shape[1])


def _change(terms: Sequence[Summand], totals: Matrix, dropped: Matrix) -> Matrix:
    """Bound how far each sum moves when its terms move by ``dropped`` in the ℓᵖ norm."""
    powers = np.array([term.power for term in terms])
    return np.where(powers == 1, dropped, (2 * np.sqrt(totals) + dropped) * dropped)


def _lightened(
    orbits: list[_Orbit],
    terms: Sequence[Summand],
    t: int,
    totals: Matrix,
    dropped: Matrix,
    rtol: float,
    time: float,
) -> tuple[list[_Orbit], Matrix]:
    """Drop parts and modes that have died out, as far as the bracket stays narrow enough."""
    left, powers = [], np.array([term.power for term in terms])
    for orbit in orbits:
        rests = orbit.rests(terms, t)
        slow: _Orbit | None = None
        more = rests ** (1 / powers)
        if (_change(terms, totals, more) > 1e-3 * rtol * totals).any() or len(orbits) == 1:
            slow, more = orbit, np.zeros(len(terms))
            if _worth_splitting(orbit, rests, rtol * totals, time):
                slow, more = _split(orbit, terms, t, rtol)
        if (_change(terms, totals, dropped + more) > 0.25 * rtol * totals).any():
            slow, more = orbit, np.zeros(len(terms))
        dropped = dropped + more
        left += [] if slow is None else [slow]
    return left, dropped


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
    if alive == 0 or alive > 0.6 * len(moduli):
        return None
    # Eigenvalues far below are all rounding: a gap between two of them separates nothing.
    near = np.maximum(moduli[alive - 1 : alive + alive // 4 + 4], 1e-3 * moduli[alive - 1])
    gap = int(np.argmax(near[:-1] / near[1:]))
    return float(np.sqrt(near[gap] * near[gap + 1]))


def _narrow(A: Matrix) -> Matrix:
    """Return B with as few columns as rows and B Bᵀ = A Aᵀ, so that every ‖X A‖ = ‖X B‖."""
    return A if A.shape[1] <= A.shape[0] else np.asarray(np.linalg.qr(A.T, mode="r")).T
