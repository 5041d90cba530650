"""What a design does for a run: a ring with chords, where uniform weights are hopeless."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from digrad.analysis.designs import Design, design
from digrad.networks import Network, multi_sub_ring

Floats = NDArray[np.float64]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chords() -> Design:
    return design(multi_sub_ring(20, "nested"))


def test_large_steps_and_few_of_them(chords: Design) -> None:
    b, a = chords.before, chords.after
    assert b.stable_step < 0.08
    assert a.stable_step >= 1.0
    assert b.forecast.steps is None
    assert a.forecast.steps is not None
    assert a.forecast.steps <= 250
    assert a.forecast.noisy_steps is not None
    assert b.forecast.noisy_steps is not None
    assert a.forecast.noisy_steps < 0.9 * b.forecast.noisy_steps
    assert a.J < b.J


class Logistic:
    """Logistic regression with a nonconvex regulariser, other data at every node."""

    def __init__(self, nodes: int, dim: int = 20, samples: int = 100) -> None:
        draws = np.random.default_rng(0)
        truth = draws.normal(size=dim) + draws.normal(size=(nodes, dim, 1))[..., 0]
        self.features = draws.normal(size=(nodes, samples, dim))
        margins = np.einsum("nsd,nd->ns", self.features, truth) + draws.logistic(
            size=(nodes, samples)
        )
        self.labels = np.sign(margins)

    def gradients(self, X: Floats) -> Floats:
        margins = self.labels * np.einsum("nsd,nd->ns", self.features, X)
        pull = -self.labels / (1 + np.exp(margins))
        smooth = np.einsum("ns,nsd->nd", pull, self.features) / self.labels.shape[1]
        return smooth + 0.01 * 2 * X / (1 + X**2) ** 2


def squared_slope(net: Network, measured: Any, gamma: float, steps: int = 1500) -> float:
    """Run S-PP with full gradients; return ‖∇f(xhat)‖² at the end."""
    problem = Logistic(net.n)
    R, C = net.R.toarray(), net.C.toarray()
    X = np.zeros((net.n, 20))
    G = problem.gradients(X)
    Y, step = G, gamma / measured.n_pi
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            X = R @ (X - step * Y)
            new = problem.gradients(X)
            Y, G = C @ (Y + new - G), new
        xhat = np.tile(measured.pair.pi_R @ X, (net.n, 1))
        return float((problem.gradients(xhat).mean(axis=0) ** 2).sum())


def test_nonconvex_logistic_regression_with_a_large_step(chords: Design) -> None:
    before, after = (squared_slope(m.network, m, 0.8) for m in (chords.before, chords.after))
    assert not before < 1e-6
    assert after < 1e-12
