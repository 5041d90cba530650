"""How fast one weight matrix mixes: exponential decay and the metrics of digraphs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from digrad.base.streams import Draws
from digrad.theory.eigenvectors import Vector
from digrad.theory.norms import spectral_norm

DENSE_N = 2000
MOST_NUMBERS = 40_000_000  # kept while a norm is estimated
MOST_NORMS_WORK = 2e10  # n³ times the number of powers looked at


@dataclass(frozen=True)
class DecayCertificate:
    """‖Aᵗ - 1πᵀ‖₂ ≤ αᵗ for all t ≥ m  (Definition 2.3)."""

    m: int
    alpha: float
    rho: float  # the spectral radius of A - 1πᵀ
    smallest: bool  # whether no smaller m will do for this α


@dataclass(frozen=True)
class DigraphMetrics:
    """Contraction and skewness of a strongly connected weight matrix (Liang et al. 2023)."""

    beta_pi: float  # ‖Diag(π)^(1/2) (A - 1πᵀ) Diag(π)^(-1/2)‖₂
    kappa_pi: float  # max π / min π
    estimated: bool  # whether beta_pi comes from an iterative solver, without proof


def decay_certificate(A: csr_array, pi: Vector) -> DecayCertificate | None:
    """Certify the exponential decay of a row-stochastic matrix, with α = (1 + ρ)/2.

    If the inequality holds at t = m .. 2m - 1 it holds for all t ≥ m, since norms of
    products are at most products of norms. None above 2000 nodes, or where powers grow too long.
    """
    n = A.shape[0]
    if n > DENSE_N:
        return None
    deflated = A.toarray() - pi[None, :]
    rho = min(float(np.abs(np.linalg.eigvals(deflated)).max()), 1 - 1e-16)
    alpha = (1 + rho) / 2
    power, t, violated = deflated, 1, 0
    most = max(8, int(MOST_NORMS_WORK / n**3))
    while t <= most:
        if spectral_norm(power) > alpha**t:
            violated = t
        if t >= 2 * violated + 1:
            return DecayCertificate(violated + 1, alpha, rho, smallest=True)
        power, t = power @ deflated, t + 1
    return _by_doubling(deflated, alpha, rho)


def _by_doubling(
    deflated: NDArray[np.float64], alpha: float, rho: float
) -> DecayCertificate | None:
    """Find a power of two m that certainly works: ‖Aᵐ‖ max_{s<m} ‖Aˢ‖ α⁻ˢ ≤ αᵐ.

    None where powers grow for so long that αᵐ is below the smallest number.
    """
    power, m, growth = deflated, 1, 1.0
    while (size := spectral_norm(power)) * growth > alpha**m:
        if alpha**m == 0:
            return None
        growth *= max(1.0, size / alpha**m)
        power, m = power @ power, 2 * m
    return DecayCertificate(m, alpha, rho, smallest=False)


def digraph_metrics(A: csr_array, pi: Vector) -> DigraphMetrics | None:
    """Return β_π and κ_π of a row-stochastic matrix; none unless it is strongly connected.

    For a column-stochastic C pass Cᵀ: its π-weighted norm is the same number.

    References:
        Liang, Huang, Xin, Yuan, Understanding the Influence of Digraphs on Decentralized
        Optimization: Effective Metrics, Lower Bound, and Optimal Algorithm, 2023.
    """
    if pi.min() <= 0:
        return None
    root = np.sqrt(pi)
    kappa, n = float(pi.max() / pi.min()), len(pi)
    if n <= DENSE_N:
        scaled = root[:, None] * (A.toarray() - pi[None, :]) / root[None, :]
        return DigraphMetrics(min(spectral_norm(scaled), 1.0), kappa, estimated=False)
    scaled = csr_array(diags_array(root) @ A @ diags_array(1 / root))
    largest = _estimate(
        lambda x: scaled @ x - root * (root @ x), lambda x: scaled.T @ x - root * (root @ x), n
    )
    return DigraphMetrics(min(largest, 1.0), kappa, estimated=True)


def _estimate(
    times: Callable[[Vector], Vector], turned: Callable[[Vector], Vector], n: int
) -> float:
    """Estimate ‖A‖₂ from below by a few dozen steps of Lanczos on AᵀA.

    A slow network has many singular values close to 1: telling them apart would take as many
    steps as it takes to mix, and the largest is known to a few digits long before.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    steps = min(n, 60, max(4, MOST_NUMBERS // n))
    y = Draws(0).uniform(n) - 0.5
    basis, alphas, betas = np.empty((steps, n)), [], [float(np.linalg.norm(y))]
    for k in range(steps):
        np.divide(y, betas[-1], out=basis[k])
        y = turned(times(basis[k]))
        alphas.append(float(y @ basis[k]))
        known = basis[: k + 1]
        for _ in range(2):  # without it, rounding would find the same direction again
            y -= (known @ y) @ known
        betas.append(float(np.linalg.norm(y)))
        if betas[-1] <= 1e-10 * max(alphas):
            break
    values = eigvalsh_tridiagonal(np.array(alphas), np.array(betas[1 : len(alphas)]))
    return float(np.sqrt(max(values[-1], 0.0)))
