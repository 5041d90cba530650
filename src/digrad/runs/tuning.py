"""Each method's best step size, found by successive halving instead of a whole sweep.

All step sizes of a grid run for a short while; the better half of them runs twice as long, and so
on up to the whole length (Jamieson & Talwalkar, 2016). Every method gets the same rounds on every
network, so the same budget. The seeds that choose are not those of the final comparison, which is
an ordinary run of the experiment in which each method has, on each network, the step chosen there.

A round is measured now and then only: measuring costs about the same for few trials as for many,
and would cost more than the steps.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from digrad.base.errors import ParameterError
from digrad.results.best import Best, Criterion, Outcomes, best_of, group_by_method, outcomes
from digrad.results.experiment import AlgorithmSpec, Experiment
from digrad.results.folder import JobFile, RunFolder
from digrad.results.trials import Results
from digrad.runs.execute import run, run_in_memory
from digrad.runs.planning import Overrides, Plan, plan, resolve_defaults

ROUNDS = 4  # each twice as long as the one before
LEAST_STEPS = 8  # of the first round
RECORDS = 4  # of a round, beside that of the start


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
            raise ParameterError(f"{text!r} is no grid", hint=hint) from None

    def checked(self) -> "Grid":
        """Return it if there is something to choose from."""
        if not 0 < self.least < self.most < float("inf") or not 2 <= self.points <= 1000:
            what = f"a grid of {self.points} step sizes from {self.least:g} to {self.most:g}"
            hint = "take 2 to 1000 of them, from a small to a large number above 0"
            raise ParameterError(f"{what} leaves no choice", hint=hint)
        return self

    @property
    def sizes(self) -> tuple[float, ...]:
        """The step sizes, with four digits."""
        exact = np.geomspace(self.least, self.most, self.points)
        return tuple(float(f"{size:.4g}") for size in exact)


class TuningRound(NamedTuple):
    """One round of one method on one network."""

    steps: int
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Tuning:
    """What was chosen, and what was tried to choose it; ``print`` says both."""

    best: tuple[Best, ...]  # of each method on each network, as the last round saw it
    tried: Mapping[tuple[str, str], tuple[TuningRound, ...]]  # by network and algorithm
    by: Criterion
    seed: int  # that chose
    sweep: int  # trial-steps of a whole sweep with the experiment's seeds

    @property
    def spent(self) -> int:
        """Trial-steps that the choice took."""
        return sum(t.steps * len(t.sizes) for rounds in self.tried.values() for t in rounds)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about steps at the edge of the grid."""
        return tuple(f"{b.algorithm} on {b.network}: {b.advice}" for b in self.best if b.edge)

    def __str__(self) -> str:
        """Say what was tried and what was chosen."""
        rounds = next(iter(self.tried.values()))
        parts = ", ".join(f"{len(t.sizes)} for {t.steps:,} steps" for t in rounds)
        share = f"{100 * self.spent / self.sweep:.0f} % of the steps of a whole sweep"
        lines = [
            f"tried with seed {self.seed}, for each method on each network: {parts}; {share}",
            *(
                f"  {b.algorithm} on {b.network}: {b.lr:g} of {len(b.tried)} step sizes"
                for b in self.best
            ),
        ]
        return "\n".join(lines)


Watch = Callable[[Experiment], AbstractContextManager[Any]]  # its value takes the progress of a run


@dataclass(frozen=True)
class TuningFolders:
    """The final run in a folder, those of the rounds in ``FOLDER.tuning`` beside it."""

    path: Path
    resume: bool
    options: Mapping[str, Any]
    watch: Watch

    def carry_out(self, experiment: Experiment, given: Overrides, part: str) -> Results:
        """Run one of them, or go on with what is there; the final one's part has no name."""
        folder = Path(f"{self.path}.tuning") / part if part else self.path
        going = self.resume and RunFolder(folder).holds_run
        with self.watch(experiment) as tell:
            run(experiment, folder, resume=going, given=given, progress=tell, **self.options)
        return Results.read(folder)


@dataclass
class TuningInMemory:
    """Nothing is written; the final run is kept."""

    options: Mapping[str, Any]
    watch: Watch
    final: tuple[Plan, list[JobFile]] | None = None

    def carry_out(self, experiment: Experiment, given: Overrides, part: str) -> Results:
        """Run, and forget all but the last."""
        with self.watch(experiment) as tell:
            self.final = run_in_memory(experiment, given=given, progress=tell, **self.options)
        work, jobs = self.final
        return Results.of(work.experiment, jobs)


TuningPlace = TuningFolders | TuningInMemory  # where the rounds and the final run are carried out


def tune(
    experiment: Experiment,
    place: TuningPlace,
    *,
    metric: str = "",
    grid: Grid | None = None,
    device: str = "cpu",
    given: Overrides | None = None,
) -> Tuning:
    """Choose every method's step on every network, then run the experiment with what was chosen.

    Args:
        experiment: whose step sizes are chosen; its own are not looked at.
        place: where runs are carried out.
        metric: that is to be best at the end; the first that was recorded by default.
        grid: the step sizes to choose from.
        device: where the nodes live.
        given: objects that stand for names of the experiment.
    """
    sizes = (grid or Grid()).checked().sizes
    seed = max(experiment.seeds) + 1
    work = plan(resolve_defaults(experiment), device, given=given)  # refuses all that cannot be run
    given = replace(given or Overrides(), problem=work.problem, networks=work.networks)
    found: list[Best] = []
    tried: dict[tuple[str, str], tuple[TuningRound, ...]] = {}
    by = Criterion(metric)
    for network in experiment.networks:
        one = replace(experiment, networks=(network,), seeds=(seed,), grown_from=(), tried=sizes)
        by, best, told = _search(one, place, given, by)
        found += best
        tried |= {(network.label, name): tuple(parts) for name, parts in told.items()}
    place.carry_out(chosen(experiment, found, sizes), given, "")
    pairs = len(experiment.networks) * len(experiment.algorithms)
    sweep = pairs * len(sizes) * len(experiment.seeds) * experiment.steps
    return Tuning(tuple(found), tried, by, seed, sweep)


def chosen(experiment: Experiment, best: Sequence[Best], tried: Sequence[float]) -> Experiment:
    """Return the experiment in which each method has on each network the step chosen there.

    Where it diverged with every one it has the smallest, so that the run shows it.
    """

    def with_own(spec: AlgorithmSpec) -> AlgorithmSpec:
        own = {b.network: b.lr for b in best if b.algorithm == spec.label}
        if all(lr != lr for lr in own.values()):
            what = f"{spec.label} diverged with every step size of the grid"
            raise ParameterError(what, hint="begin the grid at a smaller one")
        sized: dict[str, tuple[float, ...]] = {
            network: (min(tried) if lr != lr else lr,) for network, lr in own.items()
        }
        return replace(spec, lr=(), lr_on=sized)

    every = tuple(map(with_own, experiment.algorithms))
    return replace(experiment, algorithms=every, lr=(), tried=tuple(tried))


def _search(
    experiment: Experiment, place: TuningPlace, given: Overrides, by: Criterion
) -> tuple[Criterion, list[Best], dict[str, list[TuningRound]]]:
    """Halve the step sizes on one network, down to a choice of those that ran the whole length."""
    left = {spec.label: experiment.tried for spec in experiment.algorithms}
    told: dict[str, list[TuningRound]] = {name: [] for name in left}
    best: list[Best] = []
    for k, steps in enumerate(round_lengths(experiment.steps), 1):
        algorithms = (replace(a, lr=left[a.label], lr_on={}) for a in experiment.algorithms)
        this = replace(
            experiment,
            steps=steps,
            algorithms=tuple(algorithms),
            lr=(),
            name=f"{experiment.name}-round-{k}",
            metrics=(by.metric,) if by.metric else experiment.metrics,
            metrics_every=-(-steps // RECORDS),
        )
        results = place.carry_out(this, given, f"{experiment.networks[0].label}/round-{k}")
        by = Criterion(by.metric or results.metrics[0])
        at, found = outcomes(results, by)
        groups = {key[2]: same for key, same in group_by_method(found).items()}
        for name, same in groups.items():
            told[name].append(TuningRound(steps, left[name]))
            left[name] = better_half(same)
        best = [best_of(same, at) for same in groups.values()]
    return by, best, told


def round_lengths(steps: int) -> list[int]:
    """Return how long the rounds are.

    >>> round_lengths(1500)
    [188, 375, 750, 1500]
    """
    found = (-(-steps // 2**k) for k in reversed(range(ROUNDS)))
    return sorted({length for length in found if length >= min(LEAST_STEPS, steps)})


def better_half(same: Sequence[Outcomes]) -> tuple[float, ...]:
    """Return the better half of some step sizes, with the one below the best.

    The longer a run, the smaller its best step, as noise has to average out.
    """

    def rank(one: Outcomes) -> tuple[int, float]:
        return one.failed, float(one.losses.mean())

    ranked = [one.key.lr for one in sorted(same, key=rank)]
    below = [size for size in ranked if size < ranked[0]]
    first = [ranked[0], *([max(below)] if below else [])]
    kept = dict.fromkeys([*first, *ranked])  # in this order, each once
    return tuple(sorted(list(kept)[: max(2, len(ranked) // 2)], reverse=True))
