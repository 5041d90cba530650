"""Tables of answers: each method's best step, how far the others are behind, on which samples."""

from collections.abc import Collection, Sequence

from digrad.base.metrics import METRICS
from digrad.base.text import number
from digrad.results import Best, Contender, Gap, Verdict
from digrad.results.experiment import Experiment
from digrad.show.tables import Row, Spread


def verdict_rows(verdict: Verdict) -> list[Row]:
    """Return a row per contender: its best step, what it came to, how far behind it is."""
    return [_row(standing, verdict) for standing in verdict.rows]


def _row(standing: Contender, verdict: Verdict) -> Row:
    best = standing.best
    head = {"run": best.run, "network": best.network, "algorithm": best.algorithm}
    spread = Spread(best.value, best.std if best.seeds - best.failed > 1 else None)
    what = f"steps to {verdict.by.metric}" if verdict.by.target is not None else verdict.by.metric
    return {
        **head,
        "lr": None if best.lr != best.lr else best.lr,
        "seeds": best.seeds,
        "diverged": best.failed,
        what: None if best.value != best.value else spread,
        "behind": behind(standing.behind),
        "verdict": standing.place,
        "note": note(best, missed=verdict.by.target is not None),
    }


def behind(gap: Gap | None) -> str:
    """Write how far somebody is behind, with its interval: in percent, times or as a difference.

    >>> behind(Gap(True, 1.25, 1.1, 1.4, True, 5, None))
    '+25 % [10, 40]'
    >>> behind(Gap(True, 1.25, 0.6, 2.1, False, 5, None))
    '+25 % [-40, 110]'
    """
    if gap is None:
        return ""
    percent = gap.relative and gap.value < 2
    mark, unit = ("+" if percent and gap.value >= 1 else "", " %" * percent)
    times = "x " if gap.relative and not percent else ""
    value, low, high = (100 * (x - 1) if percent else x for x in gap[1:4])
    size, *ends = (_short(x, percent) for x in (value, low, high))
    between = f" [{', '.join(ends)}]"
    return f"{mark}{times}{size}{unit}{between * (gap.seeds > 1)}"


def _short(x: float, percent: bool) -> str:
    """Write a number with two or three digits, large percentages as whole ones."""
    return f"{x:,.0f}" if percent and 100 <= abs(x) < 1e6 else number(x, 2 if percent else 3)


def note(best: Best, *, missed: bool = False) -> str:
    """Say what to know of a best step: ties, an edge of the grid, trials that diverged."""
    parts = [best.advice] if best.edge else []
    if best.tied:
        parts.append(f"as good: {', '.join(f'{size:g}' for size in best.tied)}")
    if best.diverged:
        what = "missed the target" if missed else "diverged"
        parts.append(f"{best.diverged} of {best.trials} trials {what}")
    return "; ".join(parts)


def closing(verdict: Verdict) -> Sequence[str]:
    """Return the sentences below a table: who won; nothing where nobody had a rival."""
    if all(len(rows) < 2 for rows in verdict.groups.values()):
        return []
    return [verdict.headline]


def judged_on(experiment: Experiment, metrics: Collection[str], where: str = "") -> list[str]:
    """Say which of the test samples recorded accuracies are on; nothing if they are on all.

    Args:
        experiment: what was run.
        metrics: that are shown.
        where: which run it is, if there are several.
    """
    said, named = list[str](), f" in {where}" if where else ""
    params, shown = experiment.problem.params, _bounded("test_samples", metrics)
    tested, judged = (params.get(key, 0) for key in ("test_samples", "node_samples"))
    if tested and shown:
        names = " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
        said.append(
            f"{names.replace('_', ' ')}{named}: on at most {tested:,} of the test samples, "
            "evenly spread (test_samples)"
        )
    if judged and _bounded("node_samples", metrics):
        said.append(
            f"worst and mean accuracy{named}: of each node's own model, on at most {judged:,} test "
            "samples, evenly spread (node_samples)"
        )
    return said


def _bounded(key: str, metrics: Collection[str]) -> list[str]:
    """Return the metrics that a key of a problem bounds the samples of."""
    return [m.name for m in METRICS.values() if key in m.samples and m.name in metrics]
