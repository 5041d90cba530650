"""What S-PP does on one network, measured on its own recursion: the numbers of a design."""

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np

from digrad.analysis.designs.objective import (
    LEAST_STEP,
    Floats,
    Objective,
    Pair,
    Response,
    best_step,
    curvatures,
    rate,
    stable_step,
)
from digrad.base.errors import ParameterError, lookup, param
from digrad.base.streams import Draws
from digrad.networks.network import Network
from digrad.networks.traffic import Load, Traffic, traffic
from digrad.theory import perron

FEW_NODES = 100  # up to which the best step is looked for on all fresh curvatures
GOALS = {
    "accuracy": "fast contraction at steps up to the largest, then little noise and lag",
    "noise": "fewest predicted steps with noise",
    "time": "least seconds: seconds a step over the rate of contraction",
}
DIMENSIONS = 6
SPREAD, SIGMA = 3.0, 3.0
GRID = 14  # steps γ
MOST_STEPS = 2000  # steps of S-PP that are looked at
EXACT, NOISY = 1e-8, 1e-3  # of the first ‖∇f‖²: what counts as reached without and with noise


class PredictedSteps(NamedTuple):
    """Steps to 1e-8 of the first ‖∇f‖² without noise, to 1e-3 with; None: not in 2000 steps."""

    steps: float | None
    noisy_steps: float | None


def forecast(
    R: Any,
    C: Any,
    pi_R: Floats,
    n_pi: float,
    stable: float,
    condition: float,
    seed: int,
    problems: int = 3,
) -> PredictedSteps:
    """Return the steps that S-PP takes at the best γ of a grid, the mean over some problems.

    Exact expectations, nothing drawn but data: diagonal quadratics in six dimensions, mean
    curvatures from 1 to 1/condition, ±50 % from node to node, optima spread by 3 about a point as
    far away, σ = 3. ∇f(xhat) is linear in the state s = (E, V), so its expected square after t
    steps needs only the vectors h = (Mᵀ)ᵏc (see ``expectation``). All steps of a grid, all
    coordinates and all problems are columns of one product.
    """
    top = min(0.98 * stable, 1.95)
    a, b = _problems(len(pi_R), condition, seed, problems)
    squares = _Squares(R, C, pi_R, np.geomspace(top / 64, top, GRID) / n_pi, a, b)
    reached = np.full((2, problems), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(1, MOST_STEPS + 1):
            exact, noisy = squares.next()
            for k, (values, share) in enumerate(((exact, EXACT), (exact + noisy, NOISY))):
                there = (values <= share * squares.first).any(axis=1)
                reached[k, there & np.isnan(reached[k])] = t
            if not np.isnan(reached).any():
                break
    means = reached.mean(axis=1)
    return PredictedSteps(*(None if np.isnan(mean) else float(mean) for mean in means))


def _problems(n: int, condition: float, seed: int, count: int) -> tuple[Floats, Floats]:
    """Draw curvatures and optima, (n, problems, dimensions); S-PP starts from 0."""
    draws = Draws(seed)
    u = 0.5 + draws.uniform(n, count, DIMENSIONS)
    means = np.geomspace(1, 1 / condition, DIMENSIONS)
    angle, radius = (draws.uniform(n + 1, count, DIMENSIONS) for _ in range(2))
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)  # Box and Muller's
    return means * u / u.mean(axis=0), SPREAD * (np.sign(normal[:1]) + normal[1:])


class _Squares:
    """E‖∇f(xhat)‖² after 1, 2, ... steps: its part without noise, and the noise's."""

    def __init__(self, R: Any, C: Any, pi_R: Floats, steps: Floats, a: Floats, b: Floats) -> None:
        n, shape = len(pi_R), (len(pi_R), a.shape[1], GRID, DIMENSIONS)
        self._pull, self._push = R.T, C.T
        self._a = np.broadcast_to(a[:, :, None], shape).reshape(n, -1)
        self._g = np.broadcast_to(steps[:, None], shape).reshape(n, -1)
        mean = a.mean(axis=0)
        best = (a * b).mean(axis=0) / mean
        h = np.broadcast_to((a * (best - b))[:, :, None], shape).reshape(n, -1)
        away = np.broadcast_to(-best[:, None], shape).reshape(n, -1)
        self._E, self._V = R @ (away - self._g * (self._a * away + h)), h  # after the first step
        self._p = pi_R[:, None] * np.broadcast_to(mean[:, None], shape).reshape(n, -1)
        self._q = np.zeros_like(self._p)
        self._noise = np.zeros((a.shape[1], GRID))
        self.first = ((mean * best) ** 2).sum(axis=1)[:, None]

    def next(self) -> tuple[Floats, Floats]:
        """Return both parts one step later, each (problems, steps)."""
        exact = self._sum(((self._p * self._E + self._q * self._V).sum(axis=0)) ** 2)
        pulled = self._pull @ self._p
        z = self._push @ (self._q - self._g * pulled)
        variance = SIGMA**2 / DIMENSIONS
        noise = self._noise + variance * self._sum(((self._g * pulled) ** 2).sum(axis=0))
        self._noise = self._noise + variance * self._sum(((z - self._q) ** 2).sum(axis=0))
        self._p, self._q = pulled + self._a * (z - self._q), z - z.mean(axis=0)
        return exact, noise

    def _sum(self, columns: Floats) -> Floats:
        return np.asarray(columns.reshape(-1, GRID, DIMENSIONS).sum(axis=2))


@dataclass(frozen=True)
class DesignTask:
    """What a design is for: the goal, the largest step c, the condition number, seed and load."""

    goal: str = "accuracy"
    max_step: float = 1.0
    condition: float = 20.0
    seed: int = 0
    load: Load = Load()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        lookup(GOALS, self.goal, "goal")
        for name, value, low, high in (
            ("max_step", self.max_step, 0.0, 2.0),
            ("condition", self.condition, 1.0, 1e6),
        ):
            if not low < value <= high:
                what = f"{name} must be above {low:g} and at most {high:g}, got {value:g}"
                raise ParameterError(what, hint=f"drop {param(name)} for the usual one")

    def objective(self, n: int, lag_weight: float = 1.0) -> Objective:
        """Return what weights on n nodes are optimised for."""
        a = curvatures(n, self.condition, 2 * self.seed)
        return Objective(a, self.condition, self.max_step, lag_weight)

    def fresh(self, n: int) -> Floats:
        """Return curvatures that no optimiser has seen."""
        return curvatures(n, self.condition, 2 * self.seed + 1)


@dataclass(frozen=True, eq=False)
class CandidateNetwork:
    """A network with its numbers, computed when first needed."""

    name: str  # of its weights
    network: Network
    task: DesignTask

    @cached_property
    def pair(self) -> Pair:
        """Dense weights and Perron vectors."""
        return Pair.of(self.network.R.toarray(), self.network.C.toarray())

    @cached_property
    def response(self) -> Response:
        """How noise of one step spreads."""
        return Response(self.pair)

    @property
    def n_pi(self) -> float:
        """nπ."""
        return self.pair.n_pi

    @property
    def J(self) -> float:
        """The noise that the network adds."""
        return self.response.J

    @property
    def lag(self) -> float:
        """How far models and trackers lag behind."""
        return sum(self.response.lags)

    @cached_property
    def stable_step(self) -> float:
        """The largest stable γ nπ L."""
        return stable_step(self.pair)

    @cached_property
    def rate(self) -> float:
        """The log of ρ of the closed loop at the best step up to c, worst over fresh curvatures."""
        fresh = self.task.fresh(self.network.n)
        few = fresh if self.network.n <= FEW_NODES else fresh[:: len(fresh) // 3]
        return rate(self.pair, best_step(self.pair, few, self.task.max_step), fresh)

    @cached_property
    def forecast(self) -> PredictedSteps:
        """Predicted steps without and with noise."""
        return self._forecast(self.pair.R, self.pair.C, self.pair.pi_R, problems=3)

    def _forecast(self, R: Any, C: Any, pi_R: Floats, problems: int) -> PredictedSteps:
        condition, seed = self.task.condition, 2 * self.task.seed + 1
        return forecast(R, C, pi_R, self.n_pi, self.stable_step, condition, seed, problems)

    @cached_property
    def traffic(self) -> Traffic:
        """What a step sends."""
        return traffic(self.network, self.task.load)

    @cached_property
    def score(self) -> float:
        """The stated measure of the goal; smaller is better."""
        if self.task.goal == "noise":
            steps = self.forecast.noisy_steps
            return MOST_STEPS + self.J if steps is None else steps + 1e-6 * self.J
        if self.task.goal == "time":
            seconds = self.traffic.seconds_per_step or 0.0
            return seconds / -self.rate if self.rate < 0 else inf
        return self.task.objective(self.network.n).value(self.rate, self.J + self.lag)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON; what is unknown is None."""
        step = self.traffic
        numbers: dict[str, Any] = {
            "weights": self.name,
            "n_pi": self.n_pi,
            "stable_step": self.stable_step,
            "rate": self.rate,
            "J": self.J,
            "lag": self.lag,
            "steps": self.forecast.steps,
            "noisy_steps": self.forecast.noisy_steps,
            "links": step.links,
            "busiest_port": step.busiest_port,
            "bytes_per_step": step.bytes_per_step,
            "seconds_per_step": step.seconds_per_step,
            "bottleneck": step.bottleneck and str(step.bottleneck),
            "cost": step.cost,
            "score": self.score,
        }
        return {
            key: None if isinstance(value, float) and not np.isfinite(value) else value
            for key, value in numbers.items()
        }


PRODUCTS = 300  # of a power iteration; growth is read off its second half
PROBES = 16  # random signs that estimate J
MOST_LAGS = 3000  # steps of noise that are followed


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
        for _ in range(MOST_LAGS):
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
    for _ in range(MOST_LAGS):
        x = W @ x
        total += x - limit
        if np.abs(x - limit).max() <= 1e-12 * abs(limit):
            break
    return float(total @ total)
