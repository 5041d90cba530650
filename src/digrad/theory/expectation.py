"""S-PP on a diagonal quadratic, in expectation and without sampling.

Coordinate by coordinate S-PP is linear. With E = X - x*, hᵢ = ∇fᵢ(x*) and V = Y - G + h it reads

    Yᵗ = C(Vᵗ⁻¹ + A Eᵗ + ξᵗ),   Eᵗ⁺¹ = R(Eᵗ - γYᵗ),   Vᵗ = Yᵗ - A Eᵗ - ξᵗ,

and 1ᵀV = 0 at all times. So s = (E, V) obeys s⁺ = M s + B ξ, and ∇f(xhat) = cᵀs is a number whose
expected square is a sum over powers of M. Doubling gives those sums in log T products.
A ``Forecast`` is what to expect of a network, as opposed to what is guaranteed.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from digrad.networks.network import Network
from digrad.theory.eigenvectors import Perron, perron
from digrad.theory.rates import Setting

Floats = NDArray[np.float64]

RELATIVE = 1e-3  # of the largest stable step


@dataclass(frozen=True, eq=False)
class Diagonal:
    """fᵢ(x) = ½ Σₖ A[i, k](x[k] - b[i, k])², with noise σ²/dim in every coordinate, from x = 0."""

    A: Floats  # (nodes, dim)
    b: Floats
    sigma: float

    @property
    def curvature(self) -> Floats:
        """The second derivatives of f, (dim,)."""
        return np.asarray(self.A.mean(axis=0))

    @property
    def optimum(self) -> Floats:
        """x*, (dim,)."""
        return np.asarray((self.A * self.b).mean(axis=0) / self.curvature)

    def pooled(self) -> "Diagonal":
        """Return the problem of a server that sees all gradients: one node, noise σ²/n."""
        return Diagonal(
            self.curvature[None], self.optimum[None], self.sigma / float(np.sqrt(len(self.A)))
        )


def expected_average(
    net: Network, problem: Diagonal, step: float, T: int, spread: Floats | None = None
) -> float:
    """Return E (1/(T + 1)) Σₜ₌₀ᵀ ‖∇f(x̂ᵗ)‖² of S-PP with step γ.

    Infinite or not a number where the step is not stable. ``spread`` (dim,) makes nodes
    differ further: gradients at x* of that mean square, averaged over all directions in
    which they add up to 0.
    """
    n, R, v = net.n, net.R.toarray(), problem.sigma**2 / problem.A.shape[1]
    M, B = _linear(net, problem.A, step)
    zero, pi_R = np.zeros((n, n)), perron(net).pi_R
    curvature, best = problem.curvature, problem.optimum
    h = (problem.A * (best - problem.b)).T
    E = np.repeat(-best[:, None], n, axis=1)
    s = np.hstack([(E - step * (problem.A.T * E + h)) @ R.T, h])  # after step 0, where Y = G
    first = np.vstack([-step * R, zero])
    c = np.hstack([curvature[:, None] * pi_R, np.zeros_like(h)])
    with np.errstate(over="ignore", invalid="ignore"):
        once, often = _power_sums(M, c, T)
        total = float(((curvature * best) ** 2).sum())
        total += float(np.einsum("ki,kij,kj->", s, once, s))
        total += v * float(np.einsum("kij,il,jl->", once, first, first))
        if spread is not None and n > 1:
            apart = np.vstack([-step * R, np.eye(n)]) @ (np.eye(n) - 1 / n) * np.sqrt(n / (n - 1))
            total += float(np.einsum("k,kij,il,jl->", spread, once, apart, apart))
        total += v * float(np.einsum("kij,il,jl->", often - once, B, B))
    return float(total / (T + 1))


def largest_stable_step(net: Network, problem: Diagonal, start: float) -> float:
    """Return the largest γ for which M contracts: doubled from ``start``, then bisected.

    What is returned is stable, and at most a share ``RELATIVE`` below the first step found
    that is not.
    """
    stable, unstable = start, start
    while is_stable(net, problem.A, unstable):
        stable, unstable = unstable, 2 * unstable
    while unstable > (1 + RELATIVE) * stable:
        middle = float(np.sqrt(stable * unstable))
        ends = (middle, unstable), (stable, middle)
        stable, unstable = ends[0 if is_stable(net, problem.A, middle) else 1]
    return stable


def is_stable(net: Network, A: Floats, step: float) -> bool:
    """Whether M contracts: S-PP settles on every problem with these curvatures."""
    return bool(np.abs(np.linalg.eigvals(_linear(net, A, step)[0])).max() < 1)


def _linear(net: Network, A: Floats, step: float) -> tuple[Floats, Floats]:
    """Return M, (dim, 2n, 2n), on 1ᵀV = 0, and B, (2n, n)."""
    n, a = net.n, A.T[:, None, :]
    R, C, identity = net.R.toarray(), net.C.toarray(), np.eye(net.n)
    # V's columns are projected: the sum of V is conserved, and a mode of modulus 1 else.
    flat = identity - 1 / n
    M = np.empty((len(a), 2 * n, 2 * n))
    M[:, :n, :n], M[:, :n, n:] = R - step * (R @ C) * a, -step * R @ C @ flat
    M[:, n:, :n], M[:, n:, n:] = (C - identity) * a, C @ flat
    return M, np.vstack([-step * R @ C, C - identity])


def _power_sums(M: Floats, c: Floats, count: int) -> tuple[Floats, Floats]:
    """Return Σₖ hₖhₖᵀ and Σₖ (m - k) hₖhₖᵀ over k < m = ``count``, where hₖ = (Mᵀ)ᵏc.

    Stretches of 2ʲ terms are made by doubling; those in the binary digits of m are joined.
    """
    once = c[:, :, None] * c[:, None, :]
    often, m = once.copy(), 1
    total, totals, joined = np.zeros_like(once), np.zeros_like(once), 0
    while m <= count:
        turned = M.swapaxes(1, 2)
        if count & m:
            totals = often + joined * once + turned @ totals @ M
            total, joined = once + turned @ total @ M, joined + m
        if 2 * m <= count:
            often = often + m * once + turned @ often @ M
            once, M = once + turned @ once @ M, M @ M
        m *= 2
    return total, totals


FORECAST_N = 128  # up to here it takes a second
CURVATURES = np.array([1.0, 1 / 8])  # of the model, in units of L; the first limits the step
ALONE = Network([[1.0]], [[1.0]])


@dataclass(frozen=True)
class Forecast:
    """The mean squared gradient of S-PP over T steps, and of SGD with all n gradients.

    On a quadratic with the setting's L, σ, Δf and F0, in expectation, nothing sampled: how it
    would be if the problem were like that. No promise for any other problem.
    """

    step: float  # SGD's best step over nπ, or half of what is stable if that is smaller
    average: float
    sgd: float

    @property
    def ratio(self) -> float:
        """How many times worse than SGD with all gradients."""
        return self.average / self.sgd


def forecast(net: Network, vectors: Perron, s: Setting) -> Forecast | None:
    """Run the linear model of a network; none above 128 nodes."""
    if net.n > FORECAST_N:
        return None
    a = s.L * CURVATURES
    best = np.sqrt(2 * s.delta_f / (len(a) * a))  # every coordinate has its share of Δf
    problem = Diagonal(np.tile(a, (net.n, 1)), np.tile(best, (net.n, 1)), s.sigma)
    apart = max(s.F0 - float(((a * best) ** 2).sum()), 0.0)
    eta = sqrt(2 * net.n * s.delta_f / (s.L * s.sigma**2 * (s.T + 1))) if s.sigma else 1 / s.L
    eta = min(eta, 1 / s.L)
    step = eta / vectors.n_pi
    steep = Diagonal(problem.A[:, :1], problem.b[:, :1], s.sigma)
    if not is_stable(net, steep.A, step):
        step = largest_stable_step(net, steep, 1e-9 * step) / 2
    average = expected_average(net, problem, step, s.T, np.full(len(a), apart / len(a)))
    return Forecast(step, average, expected_average(ALONE, problem.pooled(), eta, s.T))
