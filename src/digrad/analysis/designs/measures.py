"""What S-PP does on one network, measured on its own recursion: the numbers of a design."""

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from digrad.analysis.designs.closed_loop import (
    Floats,
    Pair,
    best_step,
    curvatures,
    rate,
    stable_step,
)
from digrad.analysis.designs.forecast import MOST, PredictedSteps, forecast
from digrad.analysis.designs.noise import Response
from digrad.analysis.designs.objective import Objective
from digrad.base.errors import ParameterError, lookup, message, param
from digrad.networks.network import Network
from digrad.networks.traffic import Load, Traffic, traffic

FEW_NODES = 100  # up to which the best step is looked for on all fresh curvatures
GOALS = {
    "accuracy": "fast contraction at steps up to the largest, then little noise and lag",
    "noise": "fewest predicted steps with noise",
    "time": "least seconds: seconds a step over the rate of contraction",
}


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
                raise ParameterError(message(what, hint=f"drop {param(name)} for the usual one"))

    def objective(self, n: int, lag_weight: float = 1.0) -> Objective:
        """Return what weights on n nodes are optimised for."""
        a = curvatures(n, self.condition, 2 * self.seed)
        return Objective(a, self.condition, self.max_step, lag_weight)

    def fresh(self, n: int) -> Floats:
        """Return curvatures that no optimiser has seen."""
        return curvatures(n, self.condition, 2 * self.seed + 1)


@dataclass(frozen=True, eq=False)
class CandidateNetwork:
    """A network with its numbers, computed when first asked for."""

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
        options = {"condition": self.task.condition, "seed": 2 * self.task.seed + 1}
        return forecast(
            R,
            C,
            pi_R,
            self.n_pi,
            self.stable_step,
            problems=problems,
            **options,  # type: ignore[arg-type]
        )

    @cached_property
    def traffic(self) -> Traffic:
        """What a step sends."""
        return traffic(self.network, self.task.load)

    @cached_property
    def score(self) -> float:
        """The stated measure of the goal; smaller is better."""
        if self.task.goal == "noise":
            steps = self.forecast.noisy_steps
            return MOST + self.J if steps is None else steps + 1e-6 * self.J
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
