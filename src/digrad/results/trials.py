"""What runs recorded: the metrics of one or several run folders as NumPy columns."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from digrad.base.checks import kind_of
from digrad.base.errors import (
    FileFormatError,
    ParameterError,
    UnknownNameError,
    lookup,
    param,
    short_repr,
)
from digrad.base.files import plain_bytes, toml_of
from digrad.base.former_names import present_name, with_present_names
from digrad.base.metrics import METRICS, SENT, TIMED, VALUES, WALL, Metric, by_interest
from digrad.results.experiment import Experiment
from digrad.results.folder import JobFile, read_metrics_table
from digrad.results.launches import read_seconds

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CHUNK = 2_000  # rows held as text at a time: more do not fit into the cache
STOPPED = "run it again: it may have been stopped while it was writing"


class Key(NamedTuple):
    """What the trials of a curve have in common: all but the seed."""

    run: str
    network: str
    algorithm: str
    lr: float  # before any scaling


class Trial(NamedTuple):
    """One run of one algorithm on one network with one seed."""

    key: Key
    seed: int
    diverged_at: int | None  # the step at which it became infinite


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of all trials that differ in the seed only."""

    key: Key
    seeds: tuple[int, ...]
    diverged_at: tuple[int | None, ...]
    steps: Integers  # (steps,): those at which some trial has a value
    values: Floats  # (seeds, steps): NaN where a trial has none, as from its divergence on

    @property
    def mean(self) -> Floats:
        """Arithmetic mean over all seeds; NaN where one of them has no value."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.values.mean(axis=0))

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(step is not None for step in self.diverged_at)


@dataclass(frozen=True, eq=False)
class Results:
    """The recorded metrics of many trials: a row per trial and recorded step, in this order."""

    trials: tuple[Trial, ...]
    trial: Integers  # (rows,): place in ``trials``
    step: Integers  # (rows,)
    columns: Mapping[str, Floats]  # (rows,) for each of VALUES and TIMED, NaN where not recorded;
    # and of ``seconds``, where real processes took them
    planned: Mapping[str, int] = field(default_factory=dict)  # steps of each run, where known
    # The grid of each run from which its step sizes were chosen before, by other seeds.
    tried: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # The metrics that each run was asked for, the one to compare by first.
    asked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own: Mapping[str, Metric] = field(default_factory=dict)  # that problems declare, by name

    @property
    def unfinished(self) -> dict[Key, int]:
        """The step that trials have come to which neither are at their end nor diverged."""
        last = np.zeros(len(self.trials), dtype=np.int64)
        np.maximum.at(last, self.trial, self.step)
        found: dict[Key, int] = {}
        for trial, step in zip(self.trials, last.tolist(), strict=True):
            if trial.diverged_at is None and step < self.planned.get(trial.key.run, 0):
                found[trial.key] = min(step, found.get(trial.key, step))
        return found

    def finished(self, steps: int) -> int:
        """Count the trials that have come to this many steps, or diverged before."""
        reached = set(self.trial[self.step == steps].tolist())
        ended = {k for k, trial in enumerate(self.trials) if trial.diverged_at is not None}
        return len(reached | ended)

    @classmethod
    def of(cls, experiment: Experiment, jobs: Iterable[JobFile]) -> "Results":
        """Take over what jobs have recorded, as a run folder would give it back."""
        run, jobs = experiment.name, list(jobs)
        own = _merge_metrics([job.own for job in jobs])
        trials, parts = list[Trial](), list[tuple[Any, Any, Any]]()
        for job in jobs:
            for k, (network, algorithm, size, seed) in enumerate(job.labels):
                end = int(job.diverged_at[k])
                kept = job.steps < end if end >= 0 else np.ones(len(job.steps), dtype=bool)
                place = np.full(int(kept.sum()), len(trials))
                times = np.full((len(job.steps), len(TIMED)), nan) if job.axes is None else job.axes
                numbers = np.hstack([job.records[kept, k], times[kept]])
                parts.append((place, job.steps[kept], numbers))
                key = Key(run, network, algorithm, size)
                trials.append(Trial(key, seed, end if end >= 0 else None))
        if not parts:
            hint = f"go on with the run first: {param('resume', True)}"
            raise ParameterError(f"the run {run} has recorded nothing yet", hint=hint)
        trial, step, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        columns = dict(zip((*VALUES, *own, *TIMED), values.T, strict=True))
        steps_at = trial.astype(np.int64), step.astype(np.int64)
        said = {run: experiment.tried}, {run: experiment.metrics}
        return cls(tuple(trials), *steps_at, columns, {run: experiment.steps}, *said, own)

    @classmethod
    def read(cls, *folders: str | Path) -> "Results":
        """Read run folders; a run is called by the ``name`` in its ``experiment.toml``.

        Runs that share a name are called by their folders instead.

        Raises:
            ParameterError: if a folder is missing or given twice.
            FileFormatError: if a file cannot be read as what it should be.
        """
        paths = [_folder(folder) for folder in folders]
        if not paths or len({path.resolve() for path in paths}) < len(paths):
            what = f"cannot read {len(paths)} folders: {', '.join(map(str, paths)) or 'none given'}"
            raise ParameterError(what, hint="pass one or more folders, each of them once")
        index: dict[Trial, int] = {}
        parts: list[list[Floats]] = []
        told = [_read_run_header(path) for path in paths]
        names = _names(paths, [one.name for one in told])
        own = _merge_metrics([read_metrics_table(path) for path in paths])
        recorded = (*VALUES, *own, *TIMED)
        for path, run in zip(paths, names, strict=True):
            try:
                parts += _read(path / "metrics.csv", run, index, recorded)
            except (OSError, csv.Error) as error:
                what = f"{path / 'metrics.csv'} cannot be read: {error}"
                raise FileFormatError(what, hint=STOPPED) from error
        who, step, *columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((step, who))
        trial, step = who[order].astype(np.int64), step[order]
        _check_unique(tuple(index), trial, step)
        ends = np.array([np.inf if t.diverged_at is None else t.diverged_at for t in index])
        kept = [np.where(step < ends[trial], column[order], nan) for column in columns]
        named = dict(zip(recorded, kept, strict=True))
        seconds = [read_seconds(path) for path in paths]
        if any(seconds):
            of_run = dict(zip(names, seconds, strict=True))
            known = [of_run[t.key.run].get((*t.key[1:], t.seed), {}) for t in index]
            at = zip(trial.tolist(), step.astype(np.int64).tolist(), strict=True)
            named[WALL] = np.array([known[k].get(t, nan) for k, t in at])
        of = dict(zip(names, told, strict=True))
        return cls(
            tuple(index),
            trial,
            step.astype(np.int64),
            named,
            planned={run: one.steps for run, one in of.items()},
            tried={run: one.tried for run, one in of.items()},
            asked={run: one.metrics for run, one in of.items()},
            own=own,
        )

    def metric(self, name: str) -> Metric:
        """Return what is to be known of a metric that was recorded, or of what was sent."""
        return {**METRICS, **self.own}.get(name) or Metric(name)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were recorded at least once: those that runs asked for come first."""
        wanted = [name for names in self.asked.values() for name in names]
        first = by_interest({**METRICS, **self.own}, wanted)
        return tuple(name for name in first if not np.isnan(self.columns[name]).all())

    def curves(self, metric: str) -> dict[Key, Curve]:
        """Return a curve for each key that has values of a metric, of messages or of bytes.

        Raises:
            ParameterError: if none has.
        """
        if metric not in self.columns:
            lookup(dict.fromkeys(self.metrics), metric, "metric")
        column, groups = self.columns[metric], dict[Key, list[int]]()
        for k, trial in enumerate(self.trials):
            groups.setdefault(trial.key, []).append(k)
        curves = [self._curve(group, column) for group in groups.values()]
        found = {curve.key: curve for curve in curves if len(curve.steps)}
        if not found:
            hint = f"recorded are: {', '.join(self.metrics) or 'none'}"
            raise ParameterError(f"no trial recorded its {metric}", hint=hint)
        return found

    def _curve(self, group: list[int], column: Floats) -> Curve:
        sides = (np.searchsorted(self.trial, group, side) for side in ("left", "right"))
        rows = [np.arange(start, end) for start, end in zip(*sides, strict=True)]
        rows = [part[~np.isnan(column[part])] for part in rows]
        steps = np.unique(np.concatenate([self.step[part] for part in rows]))
        values = np.full((len(rows), len(steps)), nan)
        for line, part in zip(values, rows, strict=True):
            line[np.searchsorted(steps, self.step[part])] = column[part]
        keys, seeds, diverged_at = zip(*(self.trials[k] for k in group), strict=True)
        return Curve(keys[0], seeds, diverged_at, steps, values)

    def select(self, **wanted: str | float | Iterable[str | float]) -> "Results":
        """Keep the trials that have one value or another in fields of their key, or as seed.

        As in ``results.select(network="ring", lr=[0.1, 0.05])``.
        """
        keep = np.ones(len(self.trials), dtype=bool)
        for part, choice in with_present_names(wanted, "field").items():
            lookup(dict.fromkeys((*Key._fields, "seed")), part, "field")
            have = [
                str(trial.seed if part == "seed" else getattr(trial.key, part))
                for trial in self.trials
            ]
            several = [choice] if isinstance(choice, str | float | int) else choice
            names = [_format_value(value, part) for value in several]
            for name in names:
                _check_there(name, have, part)
            keep &= np.array([name in names for name in have])
        if not keep.any():
            said = ", ".join(f"{part}={short_repr(choice)}" for part, choice in wanted.items())
            hint = "ask for fewer things at once"
            raise ParameterError(f"no trial has all of {said}", hint=hint)
        return self._some(keep)

    def kept(self, wanted: Callable[[Trial], bool]) -> "Results":
        """Keep the trials that a function wants.

        Raises:
            ParameterError: if it wants none.
        """
        keep = np.array([wanted(trial) for trial in self.trials], dtype=bool)
        if not keep.any():
            what = "every trial diverged, or none came to the target"
            raise ParameterError(what, hint="try smaller step sizes, or another target")
        return self._some(keep)

    def _some(self, keep: NDArray[np.bool_]) -> "Results":
        rows, place = keep[self.trial], np.cumsum(keep) - 1
        columns = {name: column[rows] for name, column in self.columns.items()}
        trials = tuple(self.trials[k] for k in np.flatnonzero(keep))
        known = self.planned, self.tried, self.asked, self.own
        return Results(trials, place[self.trial[rows]], self.step[rows], columns, *known)


def _check_there(name: str, have: Sequence[str], part: str) -> None:
    """Say what is near a value that no trial has: in size, if it is a number."""
    if name in have or part not in ("lr", "seed"):
        lookup(dict.fromkeys(have), name, part)
        return
    said = _number(name)
    near = sorted(dict.fromkeys(have), key=lambda one: abs(_number(one) - said))[:3]
    hint = f"nearest are {', '.join(sorted(near, key=_number))}"
    raise UnknownNameError(f"no trial has {part} {name}", hint=hint)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _format_value(value: str | float, part: str) -> str:
    """Return how a value of a field is written."""
    if part != "lr":
        return str(value)
    try:
        return str(float(value))
    except ValueError:
        what = f"a step size is a number, got {short_repr(value)}"
        raise ParameterError(what, hint="as in lr=0.1") from None


def _merge_metrics(declared: Sequence[Iterable[Metric]]) -> dict[str, Metric]:
    """Put the metrics that problems declare together; one name must not mean two things."""
    own: dict[str, Metric] = {}
    for metric in (metric for some in declared for metric in some):
        if own.setdefault(metric.name, metric).better != metric.better:
            what = f"the metric {metric.name} is better the less in one run, the more in another"
            raise ParameterError(what, hint="look at these runs one by one")
    return own


def _folder(folder: str | Path) -> Path:
    hint = "pass a folder that a run has written"
    path = Path(kind_of(folder, "a folder", str, Path, hint=hint))
    if not (path / "metrics.csv").is_file():
        lacks = "has no metrics.csv" if path.is_dir() else "is not a folder"
        if (path / "study.json").is_file():
            hint = f"it is a study, not a run; see {path / 'report.html'}"
        raise ParameterError(f"{path} {lacks}", hint=hint)
    return path


def _names(paths: Sequence[Path], names: list[str]) -> list[str]:
    for others in ([path.resolve().name for path in paths], [str(path) for path in paths]):
        count = Counter(names)
        names = [a if count[a] == 1 else b for a, b in zip(names, others, strict=True)]
    return names


class _RunHeader(NamedTuple):
    """What a run says of itself."""

    name: str
    steps: int  # planned; 0: unknown
    tried: tuple[float, ...]
    metrics: tuple[str, ...]


def _read_run_header(path: Path) -> _RunHeader:
    """Read what a run says of itself; its folder's name where it says nothing."""
    file, said = path / "experiment.toml", dict[str, Any]()
    try:
        if file.exists():  # metrics can be read without
            said = toml_of(plain_bytes(file))
    except (OSError, ValueError) as error:
        hint = "mend the file, or remove it to call the run by its folder"
        raise FileFormatError(f"{file} cannot be read: {error}", hint=hint) from error
    name, steps = said.get("name"), said.get("steps")
    known = name if isinstance(name, str) and name else path.resolve().name
    tried, metrics = _listed(said, "tried", float), _listed(said, "metrics", str)
    return _RunHeader(known, steps if isinstance(steps, int) else 0, tried, metrics)


def _listed(said: Mapping[str, Any], key: str, kind: type) -> tuple[Any, ...]:
    values = said.get(key)
    return tuple(x for x in values if isinstance(x, kind)) if isinstance(values, list) else ()


# How to read the cells that are no metrics.
PARSERS: dict[str, Callable[[str], float | str]] = {
    **dict.fromkeys(("network", "algorithm"), str),
    **dict.fromkeys(("step", "seed"), int),
    "lr": float,
    "diverged_at": lambda text: int(text) if text else nan,
}
# Columns that a file must have; what is measured on test data need not be there.
REQUIRED = (*PARSERS, *list(METRICS)[: list(METRICS).index("test_loss")], *SENT)


def _number_or_nan(text: str) -> float:
    return float(text) if text else nan


def _read(
    path: Path, run: str, index: dict[Trial, int], recorded: Sequence[str]
) -> list[list[Floats]]:
    """Read rows by the thousands; trials that are not in the index yet are added to it."""
    parts = []
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        first = next(reader, list(REQUIRED))  # an empty file is one without rows
        header = [present_name(name, "field", quiet=True) for name in first]
        for name in (name for name in REQUIRED if name not in header):
            hint = f"the first line must have: {','.join(REQUIRED)}"
            raise FileFormatError(f"{path} has no column {name!r}", hint=hint)
        while chunk := list(islice(reader, CHUNK)):
            try:
                cells = zip(header, *filter(None, chunk), strict=True)
                parts.append(_part({name: texts for name, *texts in cells}, run, index, recorded))
            except (ValueError, OverflowError) as error:
                where = _blame(header, chunk, reader.line_num - len(chunk) + 1, recorded)
                raise FileFormatError(f"{path}, {where}", hint=STOPPED) from error
    if not any(len(part[0]) for part in parts):
        raise FileFormatError(f"{path} has no rows", hint=STOPPED)
    return parts


def _part(
    cells: dict[str, list[str]], run: str, index: dict[Trial, int], recorded: Sequence[str]
) -> list[Floats]:
    """Return columns: places of the trials, steps, then what was recorded."""
    labels = ("network", "algorithm", "lr", "seed", "diverged_at")
    texts, places = list(zip(*(cells[name] for name in labels), strict=True)), {}
    for text in dict.fromkeys(texts):
        network, algorithm, size, seed, at = text
        key = Key(run, network, algorithm, float(size))
        places[text] = index.setdefault(Trial(key, int(seed), int(at) if at else None), len(index))
    found = [places[text] for text in texts], np.array([*map(int, cells["step"])], np.int64)
    none = [""] * len(texts)
    values = ([*map(_number_or_nan, cells.get(name, none))] for name in recorded)
    return [np.array(column, np.float64) for column in (*found, *values)]


def _blame(header: list[str], rows: list[list[str]], line: int, recorded: Sequence[str]) -> str:
    """Name the first bad line: reading by the thousands only tells that there is one."""
    parsers = {**PARSERS, **dict.fromkeys(recorded, _number_or_nan)}
    for number, row in enumerate(rows, line):
        if row and len(row) != len(header):
            return f"line {number}: {len(row)} cells instead of {len(header)}"
        for name, text in zip(header, row, strict=False):
            try:
                parsers.get(name, str)(text)
            except ValueError:
                return f"line {number}: {name} is {text!r}"
    return f"from line {line} on: a number is too large"


def _check_unique(trials: Sequence[Trial], who: Integers, steps: Floats) -> None:
    count = Counter((trial.key, trial.seed) for trial in trials)
    again = [trials[k] for k in who[1:][(np.diff(who) == 0) & (np.diff(steps) == 0)][:1]]
    again += [trial for trial in trials if count[trial.key, trial.seed] > 1]
    if again:
        run, network, algorithm, lr = again[0].key
        what = f"{run}: {algorithm} on {network}, step size {lr:g}, seed {again[0].seed}"
        hint = "give each network and each algorithm of a run a label of its own"
        raise FileFormatError(f"{what} is there twice", hint=hint)
