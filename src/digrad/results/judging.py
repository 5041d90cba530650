"""Who won, and is it so: methods compared at their own best steps, seed by seed.

Trials of one seed share their samples, whatever the method, so differences are taken seed by seed.
A method that tried more step sizes must not win by that alone, so each seed is also judged at the
step that the others pick. All intervals of an answer hold together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from digrad.base.errors import lookup
from digrad.base.text import number
from digrad.results.best import (
    Best,
    Criterion,
    Outcomes,
    best_of,
    group_by_method,
    outcomes,
    pick_best,
)
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
    several = len({(key.run, key.algorithm) for key in found}) > 1
    among = among or ("algorithm" if several else "network")
    lookup(dict.fromkeys(FIELDS), among, "kind of contender")
    groups = _contenders(found, among)
    pairs = max(1, sum(comb(len(names), 2) for names in groups.values()))
    rows = [row for where, names in groups.items() for row in _ranked(where, names, by, pairs)]
    return Verdict(by, among, tuple(rows), pairs)


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


MOST_GROUPS = 3  # up to which each is named
MOST_PAIRS = 3  # of which it is said how many more seeds would tell


def headline(by: Criterion, groups: Mapping[str, Sequence["Contender"]]) -> str:
    """Say who won on each network; where these are many, how often."""
    said = {where: sentence(by, rows) for where, rows in groups.items()}
    if len(said) == 1:
        return next(iter(said.values()))
    winners = {where: winner(rows) for where, rows in groups.items()}
    one = set(winners.values())
    every = "both networks" if len(groups) == 2 else f"all {len(groups)} networks"
    if len(one) == 1 and "" not in one:
        return f"{one.pop()} has the {by.superlative} {by.words} on {every}."
    if len(said) <= MOST_GROUPS:
        return " ".join(f"On {where}: {_lower(text)}" for where, text in said.items())
    count = Counter(name for name in winners.values() if name)
    parts = [f"{name} on {times}" for name, times in count.most_common()]
    open_ones = sum(not name for name in winners.values())
    parts += [f"on {open_ones} the best cannot be told apart"] * bool(open_ones)
    return f"The {by.superlative} {by.words}, of {len(groups)} networks: {'; '.join(parts)}."


def winner(rows: Sequence["Contender"]) -> str:
    """Name the contender that is significantly better than all others; empty if none is."""
    leader, *others = rows
    beaten = all(row.place in ("worse", "failed") for row in others)
    return leader.name if others and beaten and leader.place == "leads" else ""


def sentence(by: Criterion, rows: Sequence["Contender"]) -> str:
    """Name the best of some contenders, or say that none can be named."""
    leader, *others = rows
    if leader.place == "failed":
        what = "came to the target" if by.target is not None else "stayed finite"
        return f"No method {what} for every seed."
    value = f"{by.superlative} {by.words}, {number(leader.best.value, 3)}"
    if not others:
        return (
            f"{leader.name} comes to a {by.words} of {number(leader.best.value, 3)}; it is alone."
        )
    same = [row for row in others if row.place == "the same"]
    if same:
        agreed = _list([leader.name, *(row.name for row in same)])
        what = f"{agreed} have the same {by.words} to five digits, {number(leader.best.value, 5)}"
        others = [row for row in others if row not in same]
        if not others:
            return f"{what} ({leader.best.seeds} seeds)."
        return f"{what}. Of the others: {sentence(by, [leader, *others])}"
    level = [row for row in others if row.place == "cannot be told apart"]
    if not level:
        return f"{leader.name} has the {value}{_ahead(by, others)}."
    if leader.best.seeds < 2:
        return (
            f"{leader.name} has the {value}, but one seed cannot tell whether that is chance: "
            "run three or more."
        )
    names = [leader.name, *(row.name for row in level)]
    beaten = [row.name for row in others if row not in level]
    rest = f" {leader.name} is better than {_list(beaten)}." if beaten else ""
    note = f"{leader.best.seeds} seeds{_more(leader, level)}"
    what = f"{_list(names)} cannot be told apart by their {by.words}"
    return f"{what}{_within(level)} ({note}).{rest}"


def _ahead(by: Criterion, others: Sequence["Contender"]) -> str:
    """By how much the runner-up is behind."""
    second = others[0]
    if second.behind is None:
        what = "missed the target" if by.target is not None else "diverged"
        return f"; {second.name} {what} at every step size tried"
    return f": {second.name} is {gap_in_words(second.behind, by)} ({second.behind.seeds} seeds)"


def gap_in_words(gap: "Gap", by: Criterion) -> str:
    """Write a gap with its interval: ``14 % higher (95 % interval 11 to 17 %)``."""
    word = "lower" if by.sign < 0 else "higher"
    if not gap.relative:
        low, high = sorted((abs(gap.low), abs(gap.high)))
        value, *ends = (number(x, 3) for x in (abs(gap.value), low, high))
        return f"{value} {word} (95 % interval {' to '.join(ends)})"
    if gap.value >= 2:
        value, *ends = (number(x, 3) for x in (gap.value, gap.low, gap.high))
        return f"{value} times as high (95 % interval {' to '.join(ends)})"
    value, *ends = (_percent(x - 1) for x in (gap.value, gap.low, gap.high))
    return f"{value} % {word} (95 % interval {' to '.join(ends)} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if abs(share) >= 0.1 else f"{100 * share:.2g}"


def _within(level: Sequence["Contender"]) -> str:
    """Say how much they can differ at most, which may be all that matters."""
    gaps = [row.behind for row in level if row.behind is not None]
    if not gaps or not all(isfinite(gap.low) and isfinite(gap.high) for gap in gaps):
        return ""
    if not all(gap.relative for gap in gaps):
        most = max(max(abs(gap.low), abs(gap.high)) for gap in gaps)
        return f": they differ by at most {number(most, 2)}"
    share = max(max(gap.high, 1 / gap.low if gap.low > 0 else inf) for gap in gaps) - 1
    return f": they differ by at most {_percent(share)} %" if share < 1 else ""


def _more(leader: "Contender", level: Sequence["Contender"]) -> str:
    """Say how many more seeds would tell each of them from the leader."""
    gaps = [(row.name, row.behind.more_seeds) for row in level if row.behind is not None]
    known = sorted((seeds, name) for name, seeds in gaps if seeds is not None)[:MOST_PAIRS]
    parts = [
        f"about {seeds} more{(' seed' + 's' * (seeds > 1)) * (not k)} would tell {name} from "
        f"{leader.name}"
        for k, (seeds, name) in enumerate(known)
    ]
    never = [name for name, seeds in gaps if seeds is None]
    if never:
        most = f"not even {MOST_SEEDS:,} seeds would be likely to tell"
        parts.append(f"{most} {_list(never)} from {leader.name}")
    return "".join(f"; {part}" for part in parts)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:] if text.startswith("No ") else text


LEVEL = 0.95  # that all intervals of an answer hold together
POWER = 0.8  # the chance that as many seeds as are asked for decide
MOST_SEEDS = 1000  # more are not recommended


class Interval(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float
    std: float  # of one difference
    seeds: int

    @property
    def decided(self) -> bool:
        """Whether it lies on one side of zero."""
        return self.low > 0 or self.high < 0


def interval(differences: Floats, comparisons: int = 1) -> Interval:
    """Return Student's interval of a mean, one of so many that hold together (Bonferroni).

    >>> made = interval(np.array([1.0, 2.0, 3.0]))
    >>> made.mean, round(made.low, 3), made.decided
    (2.0, -0.484, False)
    """
    count = len(differences)
    mean = float(differences.mean()) if count else np.nan
    if count < 2:
        return Interval(mean, -inf, inf, np.nan, count)
    std = float(differences.std(ddof=1))
    half = _quantile(count, 1 - (1 - LEVEL) / (2 * comparisons)) * std / sqrt(count)
    return Interval(mean, mean - half, mean + half, std, count)


def more_seeds(seen: Interval, comparisons: int = 1) -> int | None:
    """Return how many more seeds would decide, if the difference is as large as it looks.

    With probability ``POWER``; none if that takes more than ``MOST_SEEDS``, or is not known.

    >>> more_seeds(interval(np.array([1.0, 2.0, 3.0])))
    2
    """
    if seen.seeds < 2 or not seen.mean:
        return None
    for count in range(seen.seeds + 1, MOST_SEEDS + 1):
        sure = _quantile(count, 1 - (1 - LEVEL) / (2 * comparisons)) + _quantile(count, POWER)
        if abs(seen.mean) * sqrt(count) >= sure * seen.std:
            return count - seen.seeds
    return None


def _quantile(count: int, p: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, p))
