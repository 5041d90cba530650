"""Adam on the logits of the weights, from several starts: the best point, whenever it is stopped.

The objective has many valleys. All starts are followed for a while, the best few of them for
longer, and the best one to the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from digrad.analysis.designs.objective import FEW, Floats, Objective, Pair, Point, Slope, best_step

Mask = NDArray[np.bool_]
Masks = tuple[Mask, Mask]
Progress = Callable[[float, float], None]  # called with the share that is done and the seconds left

FLOOR = 1e-2  # weight that a start's zeros are given, so that they can grow
LOOK = 10  # iterations between two looks at all curvatures
KEEP = 0.9, 0.999  # of Adam's two averages


class Round(NamedTuple):
    """Iterations of every start, learning rates at both ends, and how many starts go on."""

    iterations: int
    first: float
    last: float
    survivors: int


def rounds(n: int) -> list[Round]:
    """Return the plan for n nodes: the larger, the shorter."""
    if n <= 64:
        return [Round(60, 0.1, 0.03, 3), Round(120, 0.08, 0.02, 1), Round(200, 0.05, 1e-3, 1)]
    if n <= 200:
        return [Round(40, 0.1, 0.03, 2), Round(80, 0.08, 0.02, 1), Round(120, 0.05, 1e-3, 1)]
    return [Round(25, 0.1, 0.05, 1), Round(80, 0.08, 1e-3, 1)]


class DescentResult(NamedTuple):
    """The best point of a descent."""

    value: float
    pair: Pair
    gamma: float
    point: Point


@dataclass
class DescentBudget:
    """How long optimising may take, how much is done, and whether it was stopped."""

    budget: float | None = None  # seconds
    progress: Progress = lambda share, left: None
    total: int = 1  # iterations planned
    done: int = 0
    stopped: str = ""  # why, once it is
    _start: float = field(default_factory=monotonic)

    def tick(self) -> None:
        """Count an iteration."""
        self.done += 1
        spent = monotonic() - self._start
        left = spent / self.done * max(0, self.total - self.done)
        if self.budget is not None and spent >= self.budget:
            self.stopped = f"the budget of {self.budget:g} s was spent"
        limit = left if self.budget is None else self.budget - spent
        self.progress(min(1.0, self.done / self.total), max(0.0, min(left, limit)))


def starts(
    weights: Sequence[tuple[Floats, Floats]], masks: Masks, objective: Objective
) -> list[Point]:
    """Return two starts for each pair of weights: at the best step for it, and at a large one.

    A large step is what the weights are wanted for, and some valleys are only found from there.
    """
    found = []
    for pair in weights:
        raised = [np.where(m, np.maximum(W, FLOOR), 1) for W, m in zip(pair, masks, strict=True)]
        point = Point(np.log(raised[0]), np.log(raised[1]), float(np.log(0.7 * objective.max_step)))
        few = objective.a[:: max(1, len(objective.a) // 3)]
        own = float(np.log(best_step(point.weights(masks), few, objective.max_step)))
        found += [point._replace(step=own), point]
    return found


def search(
    objective: Objective,
    masks: Masks,
    pool: list[Point],
    plan: Sequence[Round],
    clock: DescentBudget,
) -> DescentResult:
    """Follow the starts round by round; Ctrl-C or the clock ends it with the best so far."""
    best: list[DescentResult] = []
    try:
        for part in plan:
            ends: list[DescentResult] = []
            for start in pool:
                _descend(objective, masks, start, part, clock, ends, best)
                if clock.stopped:
                    return best[0]
            ends.sort(key=lambda found: found.value)
            pool = [found.point for found in ends[: part.survivors]]
    except KeyboardInterrupt:
        clock.stopped = "it was interrupted"
        if not best:
            raise
    return best[0]


def _descend(
    objective: Objective,
    masks: Masks,
    start: Point,
    part: Round,
    clock: DescentBudget,
    ends: list[DescentResult],
    best: list[DescentResult],
) -> None:
    """Minimise from a start; its best point is appended to ``ends``, the best of all kept."""
    adam, own, active = _Adam(start, objective.max_step), list[DescentResult](), objective.a
    for t in range(part.iterations):
        point = adam.point
        pair, gamma = point.weights(masks), float(np.exp(point.step))
        looks = t % LOOK == 0 or t == part.iterations - 1
        if looks:
            active = objective.a[np.argsort(-objective.rates(pair, gamma))[:FEW]]
        slope = objective.gradient(pair, gamma, active)
        if looks:  # only then it is the worst of all curvatures
            found = DescentResult(slope.value, pair, gamma, point)
            for kept in (own, best):
                if not kept or found.value < kept[0].value:
                    kept[:] = [found]
        share = t / max(1, part.iterations - 1)
        adam.step(pair, slope, part.first + (part.last - part.first) * share)
        clock.tick()
        if clock.stopped:
            break
    ends += own


class _Adam:
    """Kingma & Ba's method (2015) on both logits and log γ, which goes half as fast."""

    def __init__(self, start: Point, cap: float) -> None:
        self.point, self._cap, self._t = start, cap, 0
        self._mean = [0.0 * np.asarray(part) for part in start]
        self._square = [0.0 * np.asarray(part) for part in start]

    def step(self, pair: Pair, slope: Slope, rate: float) -> None:
        by = _by_logits(pair.R, slope.R, 1), _by_logits(pair.C, slope.C, 0), slope.step
        self._t += 1
        moves = []
        for k, g in enumerate(by):
            self._mean[k] = KEEP[0] * self._mean[k] + (1 - KEEP[0]) * np.asarray(g)
            self._square[k] = KEEP[1] * self._square[k] + (1 - KEEP[1]) * np.asarray(g) ** 2
            size = np.sqrt(self._square[k] / (1 - KEEP[1] ** self._t)) + 1e-12
            moves.append(rate * self._mean[k] / (1 - KEEP[0] ** self._t) / size)
        step = min(self.point.step - 0.5 * float(moves[2]), float(np.log(self._cap)))
        self.point = Point(self.point.pull - moves[0], self.point.push - moves[1], step)


def _by_logits(W: Floats, by_W: Floats, axis: int) -> Floats:
    return np.asarray(W * (by_W - (W * by_W).sum(axis=axis, keepdims=True)))
