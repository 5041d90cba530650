"""Who won, and is it so: methods compared at their own best steps, seed by seed.

Trials of one seed share their samples, whatever the method, so differences are taken seed by seed.
A method that tried more step sizes must not win by that alone, so each seed is also judged at the
step that the others pick. All intervals of an answer hold together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp
from typing import NamedTuple

import numpy as np

from digrad.base.errors import lookup
from digrad.results.best import Best, best_of, group_by_method, pick_best
from digrad.results.criterion import Criterion, Outcomes, outcomes
from digrad.results.judgement_text import headline
from digrad.results.statistics import interval, more_seeds
from digrad.results.trials import Floats, Key, Results

SAME = 1e-5  # relative: two values that agree to five digits for every seed are one
FIELDS = ("algorithm", "network")  # what can be compared


class Gap(NamedTuple):
    """By how much one contender is behind the leader: of ratios if all values are positive."""

    relative: bool  # whether the numbers are ratios to the leader, else differences from it
    value: float
    low: float
    high: float
    decided: bool  # whether the interval leaves no doubt which of the two is better
    seeds: int  # that both have
    more_seeds: int | None  # that would decide it; none if too many, or if it is decided
    same: bool = False  # whether both agree to five digits, for every seed


class Contender(NamedTuple):
    """A contender, at its own best step."""

    group: str  # what it is compared on: a network or, among networks, an algorithm
    name: str
    best: Best
    behind: Gap | None  # none for the leader, and where no number is to be had

    @property
    def place(self) -> str:
        """How it came out: it leads, or is the same, worse, not to be told apart, or failed."""
        if self.best.failed or np.isnan(self.best.value):
            return "failed"
        if self.behind is None:
            return "leads"
        if self.behind.same:
            return "the same"
        return "worse" if self.behind.decided else "cannot be told apart"


@dataclass(frozen=True)
class Verdict:
    """The best on each network, or that the data do not decide."""

    by: Criterion
    among: str  # "algorithm" or "network": what the contenders are
    rows: tuple[Contender, ...]  # group by group, the best first
    comparisons: int  # pairs, for which all intervals are corrected

    @property
    def groups(self) -> dict[str, list[Contender]]:
        """The rows by what they were compared on."""
        found: dict[str, list[Contender]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return headline(self.by, self.groups)

    @property
    def advice(self) -> tuple[str, ...]:
        """What would make the answer surer: a wider grid for those at its edge."""
        told = (f"{r.name} on {r.group}: {r.best.advice}" for r in self.rows if r.best.edge)
        return tuple(told)


def judge(results: Results, by: Criterion | str = "", *, among: str = "") -> Verdict:
    """Compare the methods on each network, each at its own best step, seed by seed.

    Args:
        results: what was recorded.
        by: a metric, or what to compare by as in ``"loss@200"`` or ``"loss@target=0.1"``; the
            first metric that was recorded by default.
        among: ``algorithm``, or ``network`` to compare the networks for each algorithm; the
            networks only if there is one algorithm by default.
    """
    by = Criterion.parse(by or (*results.metrics, "loss")[0]) if isinstance(by, str) else by
    by, found = outcomes(results, by)
    among = among or _among(found)
    lookup(dict.fromkeys(FIELDS), among, "kind of contender")
    groups = _contenders(found, among)
    pairs = max(1, sum(comb(len(names), 2) for names in groups.values()))
    rows = [row for where, names in groups.items() for row in _ranked(where, names, by, pairs)]
    return Verdict(by, among, tuple(rows), pairs)


def _among(found: Iterable[Key]) -> str:
    methods = {(key.run, key.algorithm) for key in found}
    return "algorithm" if len(methods) > 1 else "network"


Contenders = dict[str, dict[str, list[Outcomes]]]


def _contenders(found: Mapping[Key, Outcomes], among: str) -> Contenders:
    """Return the step sizes of every contender, by what it is compared on."""
    groups = group_by_method(found)
    runs: dict[tuple[str, str], set[str]] = {}
    for run, network, algorithm in groups:
        runs.setdefault((network, algorithm), set()).add(run)
    made: Contenders = {}
    for (run, network, algorithm), same in groups.items():
        name, where = (algorithm, network) if among == "algorithm" else (network, algorithm)
        several = len(runs[network, algorithm]) > 1
        made.setdefault(where, {})[f"{name} ({run})" if several else name] = same
    return made


def _ranked(
    where: str, names: Mapping[str, list[Outcomes]], by: Criterion, pairs: int
) -> list[Contender]:
    bests = {name: best_of(same, by) for name, same in names.items()}

    def rank(name: str) -> tuple[bool, int, float]:
        best = bests[name]
        return bool(np.isnan(best.value)), best.failed, by.sign * best.value

    leader, *others = sorted(bests, key=rank)
    fit = {name for name, best in bests.items() if not best.failed and not np.isnan(best.value)}
    rows = [Contender(where, leader, bests[leader], None)]
    for name in others:
        there = {leader, name} <= fit
        gap = _gap(names[leader], names[name], by, pairs) if there else None
        rows.append(Contender(where, name, bests[name], gap))
    return rows


def _gap(leader: Sequence[Outcomes], other: Sequence[Outcomes], by: Criterion, pairs: int) -> Gap:
    """Compare at the steps that all seeds pick, and at those that the other seeds pick.

    The first alone would favour methods with more step sizes; the second varies too little, as
    picks share seeds. The interval spans both: they are one where the picks are clear.
    """
    seeds = [seed for seed in leader[0].seeds if seed in other[0].seeds]
    values = [[_at(one, seeds, apart) for one in (leader, other)] for apart in (False, True)]
    relative = by.sign > 0 and bool(seeds) and all(v.min() > 0 for both in values for v in both)
    full, crossed = (interval(_apart(best, rest, relative), pairs) for best, rest in values)
    seen = full._replace(low=min(full.low, crossed.low), high=max(full.high, crossed.high))
    more = None if seen.decided else more_seeds(full, pairs)
    same = bool(seeds) and all(np.allclose(a, b, rtol=SAME, atol=0) for a, b in values)
    value, low, high = (_ratio(x) if relative else x for x in seen[:3])
    if by.sign < 0:  # as the reader sees it: below the leader
        value, low, high = -value, -high, -low
    return Gap(relative, value, low, high, seen.decided, seen.seeds, more, same)


def _at(candidates: Sequence[Outcomes], seeds: Sequence[int], apart: bool) -> Floats:
    """Return the loss of each seed, at one step or each at the step that the others pick."""
    fit = [one for one in candidates if not one.failed]  # or its best would have failed too
    apart = apart and len(fit) > 1 and len(fit[0].seeds) > 1
    chosen = [pick_best(fit, without=seed if apart else None) for seed in seeds]
    return np.array(
        [one.losses[one.seeds.index(seed)] for one, seed in zip(chosen, seeds, strict=True)]
    )


def _apart(best: Floats, rest: Floats, relative: bool) -> Floats:
    apart = np.log(rest / best) if relative else rest - best
    size = 1.0 if relative else np.abs(best).max(initial=0.0)
    return np.where(np.abs(apart) <= 1e-12 * size, 0.0, apart)  # rounding alone


def _ratio(log: float) -> float:
    return exp(min(log, 700.0))
