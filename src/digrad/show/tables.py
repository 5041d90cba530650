"""Tables of what runs reached: values at the end, steps to a target, and how methods compare."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor, inf, isfinite, log10
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import RenderableType
from rich.table import Table

from digrad.base.errors import ParameterError, lookup
from digrad.base.metrics import METRICS
from digrad.base.text import number
from digrad.results import Best, Contender, Gap, Verdict
from digrad.results.experiment import Experiment
from digrad.results.trials import Curve, Key, Results
from digrad.show.layout import Columns, Fitted, write_csv

WORDS = ("run", "network", "algorithm", "behind", "verdict", "note")
FIRST = (*Key._fields, "seeds", "diverged", "unfinished")  # repeated where a table is cut
HEADS = {
    "lr": "γ",
    "unfinished": "so far",
    "by_mean": "steps (mean curve)",
    "by_median": "steps (median seed)",
    "time": "time (mean curve)",
}
STEPS = ("by_mean", "by_median")
SAMPLES = ("test_samples", "node_samples")  # keys of problems


class Spread(NamedTuple):
    """Mean and sample standard deviation over seeds; a single one has no deviation."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        """Write both, the mean with as many digits as the deviation leaves it.

        >>> print(Spread(0.2000232, 8.58e-06), Spread(12.3456, 4.5), Spread(0.5, None))
        0.2000232 ± 8.6e-06 12.3 ± 4.5 0.5
        """
        if self.std is None or not isfinite(self.std):
            return number(self.mean, 4)
        if not self.std > 1e-12 * abs(self.mean):  # equal but for rounding
            return f"{number(self.mean, 4)} ± 0"
        digits = floor(log10(abs(self.mean) or 1)) - floor(log10(self.std)) + 2
        return f"{number(self.mean, min(12, max(2, digits)))} ± {number(self.std, 2)}"


Cell = str | float | Spread | None
Row = Mapping[str, Cell]


def final_values(trace: Results, metrics: Iterable[str] | None = None) -> list[Row]:
    """Return a row per run, network, algorithm and step size: what each metric ended at.

    Means and deviations are over the trials that did not diverge and have a value at the
    last recorded step of the metric; None where there is no such trial. Without ``metrics``
    all that were recorded are shown.
    """
    names = list(trace.metrics if metrics is None else metrics)
    for name in names:
        lookup({**METRICS, **trace.own}, name, "metric")
    curves = {name: trace.curves(name) for name in names}
    return [
        {**row, **{name: _final(curves[name].get(key)) for name in names}}
        for key, row in _heads(trace).items()
    ]


def steps_to(trace: Results, metric: str, target: float) -> list[Row]:
    """Return the first recorded steps at which a metric reaches a target, a row per curve.

    ``by_mean`` is when the mean over all seeds does, ``by_median`` the median over the seeds
    of when each of them does, ``reached`` how many do; None: never. To reach is to be at or below
    the target, for the accuracy at or above. A mean over all seeds ends where one of them diverges.
    With a clock, ``time`` is when the mean does.
    """
    sign = lookup({**METRICS, **trace.own}, metric, "metric").sign
    if not isfinite(target):
        what = f"the target of {metric} must be a number, got {target}"
        raise ParameterError(what, hint="pass the value to be reached, as in 0.01")
    curves = trace.curves(metric)
    rows: list[Row] = []
    times = trace.curves("time") if not np.isnan(trace.columns["time"]).all() else {}
    for key, row in _heads(trace).items():
        found = _reached(curves.get(key), sign, target)
        if times:  # the same for all seeds
            step, clock = found["by_mean"], times.get(key)
            when = None if clock is None or step is None else clock.values[:, clock.steps == step]
            found["time"] = None if when is None else float(np.nanmean(when))
        rows.append({**row, **found})
    return rows


def _heads(trace: Results) -> dict[Key, dict[str, Cell]]:
    """Return the columns that all tables begin with."""
    ends: dict[Key, list[bool]] = {}
    for trial in trace.trials:
        ends.setdefault(trial.key, []).append(trial.diverged_at is not None)
    heads: dict[Key, dict[str, Cell]] = {
        key: {**key._asdict(), "seeds": len(fell), "diverged": sum(fell)}
        for key, fell in ends.items()
    }
    if late := trace.unfinished:
        for key, row in heads.items():
            planned = trace.planned[key.run]
            row["unfinished"] = f"step {late[key]:,} of {planned:,}" if key in late else ""
    return heads


def _final(curve: Curve | None) -> Spread | None:
    if curve is None:
        return None
    last = curve.values[[step is None for step in curve.diverged_at], -1]
    last = last[~np.isnan(last)]
    if not len(last):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return Spread(float(last.mean()), float(last.std(ddof=1)) if len(last) > 1 else None)


def _reached(curve: Curve | None, sign: int, target: float) -> dict[str, Cell]:
    if curve is None:
        return {**dict.fromkeys(STEPS), "reached": "none"}
    there = sign * np.vstack([curve.mean, curve.values]) <= sign * target  # NaN is not
    first = np.where(there.any(axis=1), curve.steps[there.argmax(axis=1)], inf)
    found = dict(zip(STEPS, (float(first[0]), float(np.median(first[1:]))), strict=True))
    # The median of an even number of steps may not be whole.
    whole = {name: int(s) if s.is_integer() else s for name, s in found.items() if isfinite(s)}
    steps = dict.fromkeys(STEPS) | whole
    return {**steps, "reached": f"{int(np.isfinite(first[1:]).sum())} of {len(first) - 1}"}


def columns(rows: Sequence[Row]) -> Columns:
    """Write rows as text: no run if all rows are of one, no divergence if there is none."""
    names = _shown(rows)
    heads = [HEADS.get(name, name.replace("_", " ")) for name in names]
    lines = [[_text(row, name) for name in names] for row in rows]
    return Columns(heads, [name in WORDS for name in names], lines)


def render(rows: Sequence[Row]) -> RenderableType:
    """Lay rows out for a terminal: several tables, one below the other, where one is too wide."""
    return Fitted(columns(rows), sum(name in FIRST for name in _shown(rows)))


def one_table(rows: Sequence[Row]) -> Table:
    """Lay rows out side by side, however wide that is."""
    return columns(rows).rich()


def _shown(rows: Sequence[Row]) -> list[str]:
    names = list(rows[0] if rows else {})
    shown = {"run": len({row["run"] for row in rows}) > 1}
    shown |= {
        name: any(row[name] for row in rows) for name in ("diverged", "note") if name in names
    }
    return [name for name in names if shown.get(name, True)]


def _text(row: Row, name: str) -> str:
    cell = row[name]
    if cell is None:
        lost = row["diverged"] == row["seeds"]
        return "never" if name in (*STEPS, "time") else "diverged" if lost else "-"
    return str(cell) if isinstance(cell, str | Spread) else number(cell)


def to_csv(rows: Sequence[Row], path: str | Path) -> Path:
    """Write rows with all their digits, whole or not at all; deviations are ``<metric>_std``.

    Raises:
        WriteError: where nothing can be written.
    """
    spread = {name for row in rows for name, cell in row.items() if isinstance(cell, Spread)}
    return write_csv([_flat(row, {*METRICS, *spread}) for row in rows], path)


def _flat(row: Row, spread: Collection[str]) -> dict[str, str | float | None]:
    flat: dict[str, str | float | None] = {}
    for name, cell in row.items():
        flat[name] = cell.mean if isinstance(cell, Spread) else cell
        if name in spread:
            flat[f"{name}_std"] = cell.std if isinstance(cell, Spread) else None
    return flat


def verdict_rows(verdict: Verdict) -> list[Row]:
    """Return a row per contender: its best step, what it came to, how far behind it is."""
    return [_verdict_row(standing, verdict) for standing in verdict.rows]


def _verdict_row(standing: Contender, verdict: Verdict) -> Row:
    best = standing.best
    spread = Spread(best.value, best.std if best.seeds - best.failed > 1 else None)
    what = f"steps to {verdict.by.metric}" if verdict.by.target is not None else verdict.by.metric
    return {
        "run": best.run,
        "network": best.network,
        "algorithm": best.algorithm,
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
    tested, judged = (experiment.problem.params.get(key, 0) for key in SAMPLES)
    shown, own = (
        [m.name for m in METRICS.values() if key in m.samples and m.name in metrics]
        for key in SAMPLES
    )
    if tested and shown:
        names = " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
        said.append(
            f"{names.replace('_', ' ')}{named}: on at most {tested:,} of the test samples, "
            "evenly spread (test_samples)"
        )
    if judged and own:
        said.append(
            f"worst and mean accuracy{named}: of each node's own model, on at most {judged:,} test "
            "samples, evenly spread (node_samples)"
        )
    return said
