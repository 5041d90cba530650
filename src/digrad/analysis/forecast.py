"""What to expect of a network, as opposed to what is guaranteed: a quadratic, computed exactly."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from digrad.networks import Network
from digrad.theory import Perron, Setting
from digrad.theory.expectation import Diagonal, expected_average, is_stable, largest_stable_step

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
