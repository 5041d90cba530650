"""Each method's best step size, found by successive halving instead of a whole sweep.

All step sizes of a grid run for a short while; the better half of them runs twice as long, and so
on up to the whole length (Jamieson & Talwalkar, 2016). Every method gets the same rounds on every
network, so the same budget. The seeds that choose are not those of the final comparison, which is
an ordinary run of the experiment with each method's chosen steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from digrad.answers.best import Best, best_of, grouped
from digrad.answers.criterion import Criterion, Outcomes, outcomes
from digrad.base.errors import ParameterError, message
from digrad.runs.experiment import AlgorithmSpec, Experiment
from digrad.runs.folder import RunFolder
from digrad.runs.results import Results

ROUNDS = 4  # each twice as long as the one before
LEAST_STEPS = 8  # of the first round


class Grid(NamedTuple):
    """Step sizes, evenly apart on a logarithmic scale."""

    least: float = 1e-3
    most: float = 10.0
    points: int = 16

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """Read ``LEAST:MOST:POINTS``.

        >>> [round(size, 4) for size in Grid.parse("0.01:1:3").sizes]
        [0.01, 0.1, 1.0]
        """
        try:
            least, most, points = text.split(":")
            return cls(float(least), float(most), int(points)).checked()
        except ValueError as error:
            if isinstance(error, ParameterError):
                raise
            hint = "write LEAST:MOST:POINTS, as in 0.001:10:16"
            raise ParameterError(message(f"{text!r} is no grid", hint=hint)) from None

    def checked(self) -> "Grid":
        """Return it if there is something to choose from."""
        if not 0 < self.least < self.most < float("inf") or not 2 <= self.points <= 1000:
            what = f"a grid of {self.points} step sizes from {self.least:g} to {self.most:g}"
            hint = "take 2 to 1000 of them, from a small to a large number above 0"
            raise ParameterError(message(f"{what} leaves no choice", hint=hint))
        return self

    @property
    def sizes(self) -> tuple[float, ...]:
        """The step sizes, with four digits: nobody needs more."""
        exact = np.geomspace(self.least, self.most, self.points)
        return tuple(float(f"{size:.4g}") for size in exact)


class Tried(NamedTuple):
    """One round of one method on one network."""

    steps: int
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Tuning:
    """What was chosen, and what was tried to choose it."""

    best: tuple[Best, ...]  # of each method on each network, as the last round saw it
    tried: Mapping[tuple[str, str], tuple[Tried, ...]]  # by network and algorithm
    by: Criterion
    seed: int  # that chose
    sweep: int  # trial-steps of a whole sweep with the experiment's seeds

    @property
    def spent(self) -> int:
        """Trial-steps that the choice took."""
        return sum(t.steps * len(t.sizes) for rounds in self.tried.values() for t in rounds)


def tune(
    experiment: Experiment,
    out: str | Path,
    *,
    metric: str = "",
    grid: Grid | None = None,
    resume: bool = False,
    **options: Any,
) -> Tuning:
    """Choose every method's step on every network, then run the experiment with what was chosen.

    Args:
        experiment: whose step sizes are chosen; its own are not looked at.
        out: the folder of the final run; those of the rounds are in ``OUT.tuning`` beside it.
        metric: that is to be best at the end; the first that was recorded by default.
        grid: the step sizes to choose from.
        resume: go on with what is in the folders.
        options: ``device``, ``workers``, ``progress``, ``checkpoint_seconds`` of a run.
    """
    sizes = (grid or Grid()).checked().sizes
    folder, seed = Path(out), max(experiment.seeds) + 1
    if not resume:
        RunFolder(folder).check(experiment, resume=False)  # now, not after all rounds
    rounds = Path(f"{folder}.tuning")
    found: list[Best] = []
    tried: dict[tuple[str, str], tuple[Tried, ...]] = {}
    by = Criterion(metric)
    for network in experiment.networks:
        one = replace(experiment, networks=(network,), seeds=(seed,), grown_from=())
        search = _Search(one, rounds / network.label, resume, options)
        by, best, told = search.all_rounds(sizes, by)
        found += best
        tried |= {(network.label, name): tuple(parts) for name, parts in told.items()}
    final = chosen(experiment, found)
    _run(final, folder, resume, options)
    pairs = len(experiment.networks) * len(experiment.algorithms)
    sweep = pairs * len(sizes) * len(experiment.seeds) * experiment.steps
    return Tuning(tuple(found), tried, by, seed, sweep)


def chosen(experiment: Experiment, best: Sequence[Best]) -> Experiment:
    """Return the experiment in which each method has the steps that were chosen for it."""

    def sized(spec: AlgorithmSpec) -> AlgorithmSpec:
        own = {b.lr for b in best if b.algorithm == spec.label and b.lr == b.lr}
        if not own:
            what = f"{spec.label} diverged with every step size of the grid"
            raise ParameterError(message(what, hint="begin the grid at a smaller one: --grid"))
        return replace(spec, step_sizes=tuple(sorted(own, reverse=True)))

    every = tuple(map(sized, experiment.algorithms))
    return replace(experiment, algorithms=every, step_sizes=())


@dataclass(frozen=True)
class _Search:
    """The rounds on one network."""

    experiment: Experiment
    folder: Path
    resume: bool
    options: Mapping[str, Any]

    def all_rounds(
        self, sizes: Sequence[float], by: Criterion
    ) -> tuple[Criterion, list[Best], dict[str, list[Tried]]]:
        """Halve until one is left to choose from those that ran the whole length."""
        left = {spec.label: tuple(sizes) for spec in self.experiment.algorithms}
        told: dict[str, list[Tried]] = {name: [] for name in left}
        best: list[Best] = []
        for k, steps in enumerate(lengths(self.experiment.steps)):
            results = self._round(k, steps, left)
            by = Criterion(by.metric or results.metrics[0])
            at, found = outcomes(results, by)
            groups = {key[2]: same for key, same in grouped(found).items()}
            for name, same in groups.items():
                told[name].append(Tried(steps, left[name]))
                left[name] = survivors(same)
            best = [best_of(same, at)._replace(tried=tuple(sizes)) for same in groups.values()]
        return by, [_edged(one, sizes) for one in best], told

    def _round(self, k: int, steps: int, left: Mapping[str, tuple[float, ...]]) -> Results:
        algorithms = tuple(
            replace(spec, step_sizes=left[spec.label]) for spec in self.experiment.algorithms
        )
        name = f"{self.experiment.name}-round-{k + 1}"
        this = replace(
            self.experiment, steps=steps, algorithms=algorithms, step_sizes=(), name=name
        )
        return Results.read(_run(this, self.folder / f"round-{k + 1}", self.resume, self.options))


def lengths(steps: int) -> list[int]:
    """Return how long the rounds are.

    >>> lengths(1500)
    [188, 375, 750, 1500]
    """
    found = (-(-steps // 2**k) for k in reversed(range(ROUNDS)))
    return sorted({length for length in found if length >= min(LEAST_STEPS, steps)})


def survivors(same: Sequence[Outcomes]) -> tuple[float, ...]:
    """Return the better half of some step sizes, with the one below the best.

    The longer a run, the smaller its best step, as noise has to average out.
    """

    def rank(one: Outcomes) -> tuple[int, float]:
        return one.failed, float(one.losses.mean())

    ranked = [one.key.step_size for one in sorted(same, key=rank)]
    below = [size for size in ranked if size < ranked[0]]
    first = [ranked[0], *([max(below)] if below else [])]
    kept = dict.fromkeys([*first, *ranked])  # in this order, each once
    return tuple(sorted(list(kept)[: max(2, len(ranked) // 2)], reverse=True))


def _edged(best: Best, sizes: Sequence[float]) -> Best:
    """Say whether a best step is at the edge of the whole grid, not of the last round."""
    edge = {max(sizes): "largest", min(sizes): "smallest"}.get(best.lr, "")
    return best._replace(edge=edge)


def _run(experiment: Experiment, folder: Path, resume: bool, options: Mapping[str, Any]) -> Path:
    from digrad.runs.execute import run

    going = resume and RunFolder(folder).holds_run
    return run(experiment, folder, resume=going, **options)
