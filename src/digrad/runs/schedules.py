"""Step sizes over time: each schedule maps the step t = 0, 1, ... to a factor of the base step.

The constant step of the theorem is ``digrad.theory.gamma_theorem``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from typing import TypeAlias

from digrad.base.checks import kind_of, real, whole
from digrad.base.errors import ParameterError

Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """The base step at all times: 1."""

    def __call__(self, t: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepDecay:
    """The step shrinks every ``period`` steps: factor^⌊t/period⌋.

    Step t = period - 1 is the last with the old value. "A decay of 80 %" is factor = 0.2.

    >>> [round(StepDecay(0.2, 300)(t), 3) for t in (0, 299, 300, 600)]
    [1.0, 1.0, 0.2, 0.04]
    """

    factor: float = 0.2
    period: int = 300

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        whole(self.period, "period", least=1)

    def __call__(self, t: int) -> float:
        return float(self.factor ** (t // self.period))


@dataclass(frozen=True)
class Milestones:
    """The step shrinks at chosen times: factor^(number of milestones ≤ t).

    >>> [round(Milestones(0.1, (8000, 11000))(t), 3) for t in (7999, 8000, 11000)]
    [1.0, 0.1, 0.01]
    """

    factor: float = 0.1
    at: tuple[int, ...] = (8000, 11000)

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        kind_of(self.at, "at", tuple, list)
        object.__setattr__(self, "at", tuple(self.at))  # a file gives a list
        for milestone in self.at:
            whole(milestone, "a milestone", least=0)

    def __call__(self, t: int) -> float:
        return float(self.factor ** sum(t >= milestone for milestone in self.at))


@dataclass(frozen=True)
class Polynomial:
    """The step of stochastic approximation: (offset/(offset + t))^power.

    The offset is about the time for which the step hardly shrinks.

    >>> Polynomial(power=1.0, offset=10.0)(10)
    0.5
    """

    power: float = 0.5
    offset: float = 1.0

    def __post_init__(self) -> None:
        real(self.power, "power", least=0)
        real(self.offset, "offset", above=0)

    def __call__(self, t: int) -> float:
        return float((self.offset / (self.offset + t)) ** self.power)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine wave down to ``floor``: floor + (1 - floor)(1 + cos(πt/total))/2.

    >>> [round(Cosine(100)(t), 3) for t in (0, 50, 100, 200)]
    [1.0, 0.5, 0.0, 0.0]
    """

    total: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        whole(self.total, "total", least=1)
        real(self.floor, "floor", least=0, most=1)

    def __call__(self, t: int) -> float:
        wave = (1 + cos(pi * min(t, self.total) / self.total)) / 2
        return float(self.floor + (1 - self.floor) * wave)


@dataclass(frozen=True)
class Warmup:
    """Another schedule, after a linear rise: min(1, (t + 1)/steps) · then(t).

    The other schedule keeps its own clock: its milestones do not move.

    >>> [Warmup(4)(t) for t in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """

    steps: int
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        whole(self.steps, "steps", least=1)
        if not callable(self.then):
            raise ParameterError(
                f"then must be a schedule, got {self.then!r}", hint="pass then=Constant()"
            )

    def __call__(self, t: int) -> float:
        return min(1.0, (t + 1) / self.steps) * self.then(t)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "step-decay": StepDecay,
    "milestones": Milestones,
    "polynomial": Polynomial,
    "cosine": Cosine,
    "warmup": Warmup,
}


def _check_factor(factor: float) -> None:
    real(factor, "factor", above=0, most=1, hint="a decay of 80 % is factor = 0.2")
