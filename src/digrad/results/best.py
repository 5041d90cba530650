"""What trials are compared by, each method's own best step size, and a selection of results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from typing import NamedTuple

import numpy as np

from digrad.base.errors import ParameterError, lookup
from digrad.base.text import number
from digrad.results.trials import Curve, Floats, Key, Results, Trial

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
        raise ParameterError(f"cannot compare by {text!r}", hint=f"write {FORMS}")

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
    tried = results.tried
    return by, {
        key: Outcomes(key, curve.seeds, _losses(curve, by), tuple(tried.get(key.run, ())))
        for key, curve in curves.items()
    }


def _step(curves: Mapping[Key, Curve], by: Criterion) -> int:
    """Return the step at which trials are compared: one that all have come to."""
    every = [
        set(curve.steps[~np.isnan(values)].tolist())
        for curve in curves.values()
        for values, end in zip(curve.values, curve.diverged_at, strict=True)
        if end is None
    ]
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
        raise ParameterError(what, hint=hint)
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


class Best(NamedTuple):
    """The step size with which a method did best on a network."""

    network: str
    algorithm: str
    lr: float  # NaN if every trial diverged, or none came to the target
    value: float  # the mean over its seeds
    std: float
    diverged: int  # trials of all step sizes; of a target, those that never came to it
    edge: str  # "largest" or "smallest" if no step size beyond it was tried, else ""
    run: str = ""
    seeds: int = 0
    failed: int = 0  # trials that diverged with this very step size
    trials: int = 0  # of all step sizes
    tried: tuple[float, ...] = ()  # step sizes, from the smallest on
    tied: tuple[float, ...] = ()  # others that are within one standard error of the best

    @property
    def advice(self) -> str:
        """What to do about a step size at the edge of the grid."""
        if not self.edge:
            return ""
        return f"best step is the {self.edge} you tried: extend the grid"


def best_steps(results: Results, by: Criterion | str) -> list[Best]:
    """Return the best step size of each method on each network of each run.

    That is the one with the fewest diverged trials and, among these, the best mean over seeds.

    Args:
        results: what was recorded.
        by: a metric, or what to compare by as in ``"loss@200"`` or ``"loss@target=0.1"``.
    """
    by = Criterion.parse(by) if isinstance(by, str) else by
    by, found = outcomes(results, by)
    return [best_of(same, by) for same in group_by_method(found).values()]


def only_best(results: Results, by: Criterion | str) -> Results:
    """Keep the trials of each method's own best step size on each network; none that failed."""
    wanted = {(b.run, b.network, b.algorithm, b.lr) for b in best_steps(results, by)}
    return results.kept(lambda trial: tuple(trial.key) in wanted)


def group_by_method(found: Mapping[Key, Outcomes]) -> dict[tuple[str, str, str], list[Outcomes]]:
    """Put the step sizes of each method on each network together."""
    groups: dict[tuple[str, str, str], list[Outcomes]] = {}
    for key, outcome in found.items():
        groups.setdefault((key.run, key.network, key.algorithm), []).append(outcome)
    return groups


def pick_best(candidates: Sequence[Outcomes], without: int | None = None) -> Outcomes:
    """Return the best of some step sizes, as seen on all seeds or on all but one."""

    def rank(one: Outcomes) -> tuple[int, float]:
        kept = np.array([seed != without for seed in one.seeds])
        seen = one.losses[kept]
        finite = seen[np.isfinite(seen)]
        return len(seen) - len(finite), float(finite.mean()) if len(finite) else np.inf

    return min(candidates, key=rank)


def best_of(candidates: Sequence[Outcomes], by: Criterion) -> Best:
    """Return the best of one method's step sizes."""
    chosen = pick_best(candidates)
    run, network, algorithm, lr = chosen.key
    seen = chosen.losses[np.isfinite(chosen.losses)]
    own = {one.key.lr for one in candidates}
    tried = tuple(sorted(own.union(*(one.tried for one in candidates))))
    edges = {tried[-1]: "largest", tried[0]: "smallest"} if len(tried) > 1 else {}
    spread = float(seen.std(ddof=1)) if len(seen) > 1 else 0.0
    return Best(
        network,
        algorithm,
        lr if len(seen) else nan,
        by.sign * float(seen.mean()) if len(seen) else nan,
        spread if len(seen) else nan,
        sum(one.failed for one in candidates),
        edges.get(lr, "") if len(seen) else "",
        run,
        len(chosen.seeds),
        chosen.failed,
        sum(len(one.seeds) for one in candidates),
        tried,
        tuple(sorted(one.key.lr for one in candidates if _ties(one, chosen))),
    )


def _ties(one: Outcomes, best: Outcomes) -> bool:
    """Say whether another step size is as good, within a standard error of the difference."""
    if one is best or one.failed or best.failed or one.seeds != best.seeds:
        return False
    apart = one.losses - best.losses
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return bool(apart.mean() <= error)


FIELDS = {
    **dict.fromkeys(("run", "network", "algorithm", "seed")),
    **dict.fromkeys(("lr", "step_size"), "lr"),
}
NAMED = ("run", "network", "algorithm")  # fields whose values are names


def select(
    results: Results,
    where: Iterable[str] = (),
    only: Iterable[str] = (),
    label: Iterable[str] = (),
) -> Results:
    """Keep some trials and rename what they are called.

    Args:
        results: what was recorded.
        where: conditions such as ``"algorithm=sgp,push-pull,lr=0.1"``: all must hold; what has
            several values may have any of them.
        only: names of runs, networks or algorithms to keep; what none of them names is kept.
        label: new names, such as ``"push-pull=S-PP"``.
    """
    for text in where:
        for field, values in conditions(text).items():
            results = results.select(**{field: values})
    known = {name: field for field in NAMED for name in _called(results, field)}
    wanted: dict[str, list[str]] = {}
    for name in only:
        wanted.setdefault(lookup(known, name, "run, network or algorithm"), []).append(name)
    for field, names in wanted.items():
        results = results.select(**{field: names})
    return _renamed(results, label)


def conditions(text: str) -> dict[str, list[str]]:
    """Read conditions: after a comma comes another one, or another value.

    >>> conditions("algorithm=sgp,push-pull,lr=0.1")
    {'algorithm': ['sgp', 'push-pull'], 'lr': ['0.1']}
    """
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() in FIELDS:
            values = found.setdefault(FIELDS[name.strip()] or name.strip(), [])
        elif values is None:
            if equals:
                lookup(FIELDS, name.strip(), "field")
            hint = "write FIELD=VALUE, as in algorithm=push-pull,lr=0.1"
            raise ParameterError(f"cannot select by {text!r}", hint=hint)
        else:  # a value, whatever it looks like
            value = part
        values.append(value.strip())
    return found


def _called(results: Results, field: str) -> list[str]:
    return list(dict.fromkeys(str(getattr(trial.key, field)) for trial in results.trials))


def _renamed(results: Results, labels: Iterable[str]) -> Results:
    names = {field: {name: name for name in _called(results, field)} for field in NAMED}
    for text in labels:  # wherever the old name is one; names may have a = of their own
        fitting = [n for new in names.values() for n in new if text.startswith(f"{n}=")]
        if not fitting:
            if "=" not in text:
                hint = "write OLD=NEW, as in push-pull=S-PP"
                raise ParameterError(f"cannot relabel by {text!r}", hint=hint)
            every = dict.fromkeys(name for new in names.values() for name in new)
            lookup(every, text.rpartition("=")[0], "run, network or algorithm")
        old = max(fitting, key=len)
        for new in names.values():
            if old in new:
                new[old] = text[len(old) + 1 :]
    for field, new in names.items():
        twice = next((n for n in new.values() if [*new.values()].count(n) > 1), None)
        if twice is not None:
            what = f"two of the {field}s would be called {twice!r}"
            raise ParameterError(what, hint="give each a label of its own")

    def renamed(trial: Trial) -> Trial:
        run, network, algorithm = (names[f][getattr(trial.key, f)] for f in NAMED)
        return trial._replace(key=Key(run, network, algorithm, trial.key.lr))

    called = names["run"]
    planned = {called.get(run, run): steps for run, steps in results.planned.items()}
    tried = {called.get(run, run): sizes for run, sizes in results.tried.items()}
    trials = tuple(map(renamed, results.trials))
    return replace(results, trials=trials, planned=planned, tried=tried)
