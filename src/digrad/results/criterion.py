"""What trials are compared by: a metric at a step, or the steps it takes to a target."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from digrad.base.errors import ParameterError, message
from digrad.base.text import number
from digrad.results.trials import Curve, Floats, Key, Results

FORMS = "METRIC, METRIC@STEP or METRIC@target=VALUE, as in loss, loss@200 or loss@target=0.1"


class Criterion(NamedTuple):
    """A metric at the last step that all have come to, at a given one, or until a target."""

    metric: str
    step: int | None = None
    target: float | None = None
    more_is_better: bool = False  # of the metric; known from results on

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """Read what the command line writes.

        >>> Criterion.parse("loss@200"), Criterion.parse("loss@target=0.1").target
        (Criterion(metric='loss', step=200, target=None, more_is_better=False), 0.1)
        """
        metric, _, rest = text.partition("@")
        kind, equals, value = rest.partition("=")
        try:
            if not rest and "@" not in text:
                return cls(metric)
            if not equals:
                return cls(metric, step=int(rest))
            if kind == "target" and isfinite(float(value)):
                return cls(metric, target=float(value))
        except ValueError:
            pass
        raise ParameterError(message(f"cannot compare by {text!r}", hint=f"write {FORMS}"))

    @property
    def sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return -1 if self.target is None and self.more_is_better else 1

    @property
    def words(self) -> str:
        """What is compared, within a sentence."""
        name = self.metric.replace("_", " ")
        if self.target is not None:
            return f"number of steps to {name} {number(self.target)}"
        return name if self.step is None else f"{name} at step {self.step:,}"

    @property
    def superlative(self) -> str:
        """What the best is called."""
        return "highest" if self.sign < 0 else "lowest"


class Outcomes(NamedTuple):
    """What came of one step size: a number per seed, where less is better."""

    key: Key
    seeds: tuple[int, ...]
    losses: Floats  # (seeds,): infinite where a trial diverged or never came to the target
    tried: tuple[float, ...] = ()  # the grid from which the run's step sizes were chosen, if any

    @property
    def failed(self) -> int:
        """How many trials have no finite number."""
        return int(np.isinf(self.losses).sum())


def outcomes(results: Results, by: Criterion) -> tuple[Criterion, dict[Key, Outcomes]]:
    """Return what came of every step size, and by what exactly: at which step.

    Raises:
        ParameterError: if the metric was not recorded, or not at that step.
    """
    curves = results.curves(by.metric)
    by = by._replace(more_is_better=results.metric(by.metric).better == "more")
    if by.target is None:
        by = by._replace(step=_step(curves, by))
    made = {}
    for key, curve in curves.items():
        tried = tuple(results.tried.get(key.run, ()))
        made[key] = Outcomes(key, curve.seeds, _losses(curve, by), tried)
    return by, made


def _steps(curve: Curve) -> Iterable[set[int]]:
    """Return the recorded steps of every trial that did not diverge."""
    for values, end in zip(curve.values, curve.diverged_at, strict=True):
        if end is None:
            yield set(curve.steps[~np.isnan(values)].tolist())


def _step(curves: Mapping[Key, Curve], by: Criterion) -> int:
    """Return the step at which trials are compared: one that all have come to."""
    every = [steps for curve in curves.values() for steps in _steps(curve)]
    if not every:  # all diverged, and the last of them by then
        ends = [end for curve in curves.values() for end in curve.diverged_at if end is not None]
        return max(ends) if by.step is None else by.step
    common = set.intersection(*every)
    if not common or (by.step is not None and by.step not in common):
        at = "any common step" if by.step is None else f"step {by.step:,}"
        near = sorted(common, key=lambda step: abs(step - (by.step or 0)))[:3]
        hint = f"near it are {', '.join(f'{s:,}' for s in sorted(near))}" if near else ""
        hint = hint or "compare runs that were recorded at the same steps"
        what = f"not every trial recorded its {by.metric} at {at}"
        raise ParameterError(message(what, hint=hint))
    return max(common) if by.step is None else by.step


def _losses(curve: Curve, by: Criterion) -> Floats:
    if by.target is None:
        fell = np.array([end is not None and end <= (by.step or 0) for end in curve.diverged_at])
        place = int(np.searchsorted(curve.steps, by.step or 0))
        at = curve.values[:, min(place, len(curve.steps) - 1)]
        return np.where(fell | np.isnan(at), inf, by.sign * at)
    sign = -1 if by.more_is_better else 1
    there = sign * curve.values <= sign * by.target  # NaN is not
    first = curve.steps[there.argmax(axis=1)].astype(np.float64)
    return np.where(there.any(axis=1), first, inf)
