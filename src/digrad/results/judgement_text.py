"""An answer in one sentence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING

from digrad.base.text import number
from digrad.results.criterion import Criterion
from digrad.results.statistics import MOST_SEEDS

if TYPE_CHECKING:
    from digrad.results.judging import Contender, Gap

MOST_GROUPS = 3  # up to which each is named
MOST_PAIRS = 3  # of which it is said how many more seeds would tell


def headline(by: Criterion, groups: Mapping[str, Sequence["Contender"]]) -> str:
    """Say who won on each network; where these are many, how often."""
    said = {where: sentence(by, rows) for where, rows in groups.items()}
    if len(said) == 1:
        return next(iter(said.values()))
    winners = {where: winner(rows) for where, rows in groups.items()}
    one = set(winners.values())
    if len(one) == 1 and "" not in one:
        return f"{one.pop()} has the {by.superlative} {by.words} on {_all(groups)}."
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
        return _the_same(by, leader, same, [row for row in others if row not in same])
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


def _the_same(
    by: Criterion, leader: "Contender", same: Sequence["Contender"], others: Sequence["Contender"]
) -> str:
    """Say that some agree to five digits, then how the others stand to the first of them."""
    names = _list([leader.name, *(row.name for row in same)])
    what = f"{names} have the same {by.words} to five digits, {number(leader.best.value, 5)}"
    if not others:
        return f"{what} ({leader.best.seeds} seeds)."
    return f"{what}. Of the others: {sentence(by, [leader, *others])}"


def _ahead(by: Criterion, others: Sequence["Contender"]) -> str:
    """By how much the runner-up is behind."""
    second = others[0]
    if second.behind is None:
        return f"; {second.name} {_failure(by, second)}"
    return f": {second.name} is {gap_in_words(second.behind, by)} ({second.behind.seeds} seeds)"


def _failure(by: Criterion, row: "Contender") -> str:
    what = "missed the target" if by.target is not None else "diverged"
    return f"{what} at every step size tried"


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
        f"about {seeds} more{_seeds(seeds) * (not k)} would tell {name} from {leader.name}"
        for k, (seeds, name) in enumerate(known)
    ]
    never = [name for name, seeds in gaps if seeds is None]
    if never:
        most = f"not even {MOST_SEEDS:,} seeds would be likely to tell"
        parts.append(f"{most} {_list(never)} from {leader.name}")
    return "".join(f"; {part}" for part in parts)


def _seeds(count: int) -> str:
    return " seed" if count == 1 else " seeds"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _all(groups: Mapping[str, object]) -> str:
    return "both networks" if len(groups) == 2 else f"all {len(groups)} networks"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:] if text.startswith("No ") else text
