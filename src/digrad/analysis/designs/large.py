"""The numbers of a design where dense matrices are too large: sparse products, and probes."""

from functools import cached_property
from typing import Any

import numpy as np

from digrad.analysis.designs.closed_loop import LEAST_STEP, Floats, curvatures
from digrad.analysis.designs.measures import CandidateNetwork, PredictedSteps
from digrad.base.streams import Draws
from digrad.theory import perron

PRODUCTS = 300  # of a power iteration; growth is read off its second half
PROBES = 16  # random signs that estimate J
MOST_STEPS = 3000  # of noise that is followed


class LargeMeasured(CandidateNetwork):
    """A network of more than 300 nodes. J is an estimate, the rate that of a power iteration."""

    @cached_property
    def vectors(self) -> Any:
        """π_R, π_C and π."""
        return perron(self.network)

    @property
    def n_pi(self) -> float:
        """nπ."""
        return float(self.vectors.n_pi)

    @cached_property
    def J(self) -> float:
        """The noise that the network adds, estimated from 16 random vectors."""
        R, C, n = self.network.R, self.network.C, self.network.n
        theta = np.where(Draws(self.task.seed).uniform(n, PROBES) < 0.5, -1.0, 1.0)
        sent = C @ theta
        E = R @ sent - self.vectors.pi * theta.sum(axis=0)
        first = total = float((E**2).sum())
        for _ in range(MOST_STEPS):
            later = C @ sent
            E, sent = R @ (E + later - sent), later
            now = float((E**2).sum())
            total += now
            if now <= 1e-10 * first:
                break
        return total / PROBES / self.n_pi**2

    @cached_property
    def lag(self) -> float:
        """How far models and trackers lag behind."""
        v, n = self.vectors, self.network.n
        ends = ((self.network.R, v.pi_R, v.pi_C), (self.network.C.T, v.pi_C, v.pi_R))
        return float(sum(_spread(*end) for end in ends) / (n * v.pi**2))

    @cached_property
    def stable_step(self) -> float:
        """The largest stable γ nπ L to some 4 %, by power iteration on a grid, then a finer one."""
        low, high = LEAST_STEP, 4.0
        for _ in range(2):
            grid = np.geomspace(low, high, 24)
            growth = self._growth(np.ones((self.network.n, 1)), grid)[0]
            unstable = np.flatnonzero(~(growth < 0))
            first = int(unstable[0]) if len(unstable) else len(grid) - 1
            low, high = float(grid[max(0, first - 1)]), float(grid[first])
        return low

    @cached_property
    def rate(self) -> float:
        """Growth of a power iteration at the best of eight steps, worst over three curvatures."""
        grid = np.geomspace(self.task.max_step / 64, self.task.max_step, 8)
        a = curvatures(self.network.n, self.task.condition, 2 * self.task.seed + 1, draws=1)
        return float(self._growth(a.T, grid).max(axis=0).min())

    @cached_property
    def forecast(self) -> PredictedSteps:
        """Predicted steps on one problem."""
        R, C = self.network.R, self.network.C
        return self._forecast(R, C, self.vectors.pi_R, problems=1)

    def _growth(self, a: Floats, grid: Floats) -> Floats:
        """Return log|s⁺|/|s| in the long run, (curvatures, steps), on 1ᵀV = 0."""
        R, C, n = self.network.R, self.network.C, self.network.n
        shape = n, a.shape[1], len(grid)
        a = np.broadcast_to(a[:, :, None], shape).reshape(n, -1)
        g = np.broadcast_to(grid / self.n_pi, shape).reshape(n, -1)
        E, V = (2 * Draws(k).uniform(n, 1) - 1 + 0 * a for k in (0, 1))
        logs = np.zeros((2, a.shape[1]))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for k in range(PRODUCTS):
                Y = C @ (V - V.mean(axis=0) + a * E)
                E, V = R @ (E - g * Y), Y - a * E
                size = np.sqrt((E**2).sum(axis=0) + (V**2).sum(axis=0))
                logs[2 * k // PRODUCTS] += np.log(size)
                E, V = E / size, V / size
        return np.asarray((logs[1] / (PRODUCTS - PRODUCTS // 2)).reshape(shape[1:]))


def _spread(W: Any, own: Floats, other: Floats) -> float:
    """‖Σₜ (Wᵗ - 1ownᵀ) other‖² over t ≥ 1."""
    x, limit = other, float(own @ other)
    total = np.zeros_like(x)
    for _ in range(MOST_STEPS):
        x = W @ x
        total += x - limit
        if np.abs(x - limit).max() <= 1e-12 * abs(limit):
            break
    return float(total @ total)
