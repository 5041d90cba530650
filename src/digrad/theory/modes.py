"""N5..N9, V and V_R of normal weights, mode by mode.

When R = W is normal and C is W or Wᵀ, one unitary basis diagonalises everything, so a
spectral norm is a maximum over eigenvalues and no matrix is ever multiplied. This covers
symmetric and circulant weights: rings, tori, hypercubes, exponential graphs, EquiTopo,
Metropolis weights on any graph.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.networks.network import Network
from digrad.theory.bracket import Bracket, brackets
from digrad.theory.eigenvectors import is_uniform
from digrad.theory.norms import EPS, MATRIX_SUMS, nearly_equal

MOST_TERMS = 40_000_000
BATCH = 1_000_000

Real = NDArray[np.floating]


class Modes(NamedTuple):
    """The eigenvalues λ of W except the 1 that belongs to consensus, one of each conjugate pair.

    Slowest first.
    """

    gaps: NDArray[np.complex128]  # 1 - λ, which keeps its digits where λ is close to 1
    losses: Real  # 1 - |λ|², which keeps its digits where |λ| is close to 1
    transposed: bool  # whether C = Wᵀ, whose eigenvalues are the conjugates

    @property
    def log_radii(self) -> Real:
        """The logarithm of |λ|, from 1 - |λ|² where that has more digits and from λ elsewhere."""
        radius = np.abs(1 - self.gaps)
        radius = np.where(radius < 8 * EPS, 0.0, radius)  # a zero eigenvalue, to rounding
        with np.errstate(divide="ignore"):
            near = np.log1p(-np.minimum(self.losses, 0.9)) / 2
            return np.where(radius < 0.5, np.log(radius), near)

    @property
    def counts(self) -> Real:
        """How many eigenvalues each mode stands for: two of a conjugate pair."""
        return np.where(self.gaps.imag > 0, 2.0, 1.0)

    @property
    def time(self) -> float:
        """The mixing time 1/(1 - |λ|) of the slowest."""
        slowest = float(self.log_radii[0]) if len(self.gaps) else -np.inf
        return 1.0 / max(-float(np.expm1(slowest)), EPS)

    def pick(self, which: Any) -> "Modes":
        """Return some of them."""
        return Modes(self.gaps[which], self.losses[which], self.transposed)


def normal_modes(net: Network) -> Modes | None:
    """Return the modes of a network with normal R and C equal to R or Rᵀ; none otherwise."""
    W, Wt = net.R, csr_array(net.R.T)
    transposed = not nearly_equal(net.C, W)
    if (
        (transposed and not nearly_equal(net.C, Wt))
        or not nearly_equal(W @ Wt, Wt @ W)
        or not is_uniform(W)
    ):
        return None
    dense = W.toarray()
    _, X = np.linalg.eigh(dense) if nearly_equal(W, Wt) else np.linalg.eig(dense)
    gaps = _gaps(W, X)
    keep = np.flatnonzero(gaps.imag >= 0)  # a conjugate pair has the same moduli
    keep = keep[keep != np.argmin(np.abs(gaps))]
    modes = Modes(gaps[keep], _losses(W, X[:, keep], gaps[keep]), transposed)
    return modes.pick(np.argsort(-modes.log_radii, kind="stable"))


def _losses(W: csr_array, X: NDArray[Any], gaps: NDArray[np.complex128]) -> Real:
    """Return 1 - |λ|²: from the gaps, or where those cancel from the links of WᵀW.

    WᵀW is symmetric and doubly stochastic with eigenvalues |λ|², so 1 - |λ|² is the sum
    ½ Σ (WᵀW)ᵢⱼ |xᵢ - xⱼ|²/‖x‖², in which nothing cancels.
    """
    losses = 2 * gaps.real - np.abs(gaps) ** 2
    cancelled = np.flatnonzero(losses < 0.5 * np.abs(gaps) ** 2)
    if len(cancelled):
        losses[cancelled] = _gaps(csr_array(W.T @ W), X[:, cancelled]).real
    return np.asarray(losses)


def _gaps(W: csr_array, X: NDArray[Any]) -> NDArray[np.complex128]:
    """Return the Rayleigh quotients of I - W, link by link.

    For normal W their error is the square of that of X. For doubly stochastic W the real
    part is ½ Σ wᵢⱼ|xᵢ - xⱼ|²/‖x‖², a sum without cancellation, so that small gaps keep all
    their digits; the imaginary part is Σ wᵢⱼ Im(x̄ᵢ(xᵢ - xⱼ))/‖x‖².
    """
    entries = W.tocoo()
    (i, j), w = entries.coords, entries.data
    gaps = np.zeros(X.shape[1], dtype=np.complex128)
    width = max(1, BATCH // len(w))
    for k in range(0, X.shape[1], width):
        x = X[:, k : k + width]
        apart = x[i] - x[j]
        turned = w @ (x[i].conj() * apart).imag if np.iscomplexobj(X) else 0.0
        gaps[k : k + width] = (w @ np.abs(apart) ** 2 / 2 + 1j * turned) / (np.abs(x) ** 2).sum(0)
    return gaps


def matrix_sums(modes: Modes, rtol: float, effort: float = 1.0) -> dict[str, Bracket]:
    """Bracket N5..N9, V and V_R by adding maxima, or all, over the modes that are still alive.

    In a mode λ = re^{iθ} the entries of A_{t-1}, B_t and A_t - A_{t-1} have moduli
    (t - 1)rᵗ, t rᵗ and rᵗ|1 - t(1 - λ)| when C = W, and with sₜ = sin(tθ)/sin θ
    rᵗ|sₜ₋₁|, rᵗ|sₜ| and rᵗ|r sₜ - sₜ₋₁| when C = Wᵀ; all are at most (1 + 2t)rᵗ. Modes whose
    whole future under that bound is negligible are dropped, and the bound is added to the
    bracket.
    """
    totals, dropped, t = np.zeros(4), np.zeros(4), 0
    logs = modes.log_radii
    while len(logs):
        span = int(min(max(64, t), max(1, BATCH // len(logs))))
        totals += _stretch(modes.pick(slice(len(logs))), t, span)
        t += span
        rest = _rest(float(logs[0]), t)
        if (rest <= 0.5 * rtol * totals).all() or t > effort * MOST_TERMS:
            dropped += rest
            break
        alive = _alive(logs, t, 1e-3 * rtol * totals)
        if alive < len(logs):
            dropped += _rest(float(logs[alive]), t)
            logs = logs[:alive]
    if not modes.transposed and len(modes.gaps):
        totals[:2], dropped[:2] = _slowest(float(modes.log_radii[0])), 0.0
    sums = np.concatenate([totals, totals[3:], _squares(modes)])  # Π_R π_C = 0: N9 = N8
    error = _rounding(modes) * EPS * sums
    high = sums + error
    high[:5] += np.append(dropped, dropped[3])
    return dict(zip(MATRIX_SUMS, brackets(sums - error, high), strict=True))


def _rounding(modes: Modes) -> float:
    """How many EPS the sums may be off.

    Eigenvalues are known to about EPS, whatever their size: small ones have fewer digits,
    and an angle is off by EPS in every step for as long as its mode lives.
    """
    largest = float(np.exp(modes.log_radii[0])) if len(modes.gaps) else 1.0
    return 256 + 32 / max(largest, EPS) + (64 if modes.transposed else 2) * modes.time


def _slowest(log: float) -> tuple[float, float]:
    """Return Σ (t - 1)rᵗ and Σ t²r²ᵗ, which grow with r: N5 and N6 when C = W (Lemma 3.2)."""
    q = float(np.exp(2 * log))
    return (np.exp(log) / np.expm1(log)) ** 2, -q * (1 + q) / np.expm1(2 * log) ** 3


def _squares(modes: Modes) -> tuple[float, float]:
    """Return V and V_R, where the sums over t are known in closed form (docs/rate.md).

    V is the sum over all eigenvalues of 2|λ|⁴|1 - λ|²/(1 - |λ|²)³ when C = W, and of
    2|λ|⁴/((1 - |λ|²)|1 + λ|²) when C = Wᵀ; V_R that of |λ|²/(1 - |λ|²).
    """
    q, loss = np.exp(2 * modes.log_radii), modes.losses
    if modes.transposed:
        shares = 2 * q**2 / (loss * np.abs(2 - modes.gaps) ** 2)
    else:
        shares = 2 * q**2 * np.abs(modes.gaps) ** 2 / loss**3
    return float(modes.counts @ shares), float(modes.counts @ (q / loss))


def _alive(logs: Real, t: int, negligible: Real) -> int:
    """Count the leading modes whose future after t still matters, by bisection."""
    low, high = 0, len(logs)
    while low < high:
        middle = (low + high) // 2
        matters = (_rest(float(logs[middle]), t) > negligible).any()
        low, high = (middle + 1, high) if matters else (low, middle)
    return low


def _stretch(modes: Modes, start: int, span: int) -> Real:
    """Add the terms of N5..N8 at the times start + 1 .. start + span."""
    t = start + 1.0 + np.arange(span)[:, None]
    logs = np.maximum(modes.log_radii, -1e4)  # a nilpotent mode has ln |λ| = -∞
    decay = np.exp(t * logs)
    if modes.transposed:
        angle = np.angle(1 - modes.gaps)
        now, before = _ratio(t, angle), _ratio(t - 1, angle)
        a, b, d = before, now, np.exp(logs) * now - before
    else:
        x, y = modes.gaps.real, modes.gaps.imag
        a, b, d = t - 1, t, np.hypot(1 - t * x, t * y)
    a, b, d = ((np.abs(c) * decay).max(axis=1) for c in (a, b, d))
    return np.array([a.sum(), (b**2).sum(), (d**2).sum(), d.sum()])


def _ratio(t: Real, angle: Real) -> Real:
    """Return sin(tθ)/sin θ, with its limits t and t(-1)ᵗ⁻¹ at 0 and π."""
    flat = np.abs(np.sin(angle)) < 1e-9
    sine = np.where(flat, 1.0, np.sin(angle))
    return np.where(flat, t * np.cos(angle) ** (t - 1), np.sin(t * angle) / sine)


def _rest(log: float, t: int) -> Real:
    """Bound the terms after t of every sum: Σₛ>ₜ (1 + 2s)ᵖ rᵖˢ for p = 1 or 2, r = e^log.

    With q = rᵖ, Σₛ>ₜ (1 + 2s)qˢ and Σₛ>ₜ (1 + 2s)² qˢ have closed forms in 1/(1 - q).
    """
    c = 2.0 * (t + 1) + 1
    q, u = np.exp(log), -1.0 / np.expm1(log)
    plain = np.exp((t + 1) * log) * (c * u + 2 * q * u**2)
    q, u = np.exp(2 * log), -1.0 / np.expm1(2 * log)
    square = np.exp(2 * (t + 1) * log) * (c * c * u + 4 * c * q * u**2 + 4 * q * (1 + q) * u**3)
    return np.array([plain, square, square, plain])
