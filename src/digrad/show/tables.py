"""Tables of what runs reached: values at the end, and steps to a target."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from math import floor, inf, isfinite, log10
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.base.atomic import write_whole
from digrad.base.errors import ParameterError, lookup, message
from digrad.base.text import number
from digrad.runs.columns import GROWING, METRICS
from digrad.runs.results import Curve, Key, Results

NAMES = ("run", "network", "algorithm")
HEADS = {
    "step_size": "γ",
    "by_mean": "steps (mean)",
    "by_median": "steps (median)",
    "time": "time (mean)",
}
STEPS = ("by_mean", "by_median")
ACROSS = 5  # metrics side by side


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
        lookup(dict.fromkeys(METRICS), name, "metric")
    curves = {name: trace.curves(name) for name in names}
    return [
        {**row, **{name: _final(curves[name].get(key)) for name in names}}
        for key, row in _heads(trace).items()
    ]


def steps_to(trace: Results, metric: str, target: float) -> list[Row]:
    """Return the first recorded steps at which a metric reaches a target, a row per curve.

    ``by_mean`` is when the mean over all seeds does, ``by_median`` the median over the seeds
    of when each of them does; None: never. To reach is to be at or below the target, for the
    accuracy at or above. A mean over all seeds ends where one of them diverges. With a clock,
    ``time`` is when the mean does.
    """
    lookup(dict.fromkeys(METRICS), metric, "metric")
    if not isfinite(target):
        what = f"the target of {metric} must be a number, got {target}"
        raise ParameterError(message(what, hint="pass the value to be reached, as in 0.01"))
    curves, sign = trace.curves(metric), -1 if metric in GROWING else 1
    rows: list[Row] = []
    times = trace.curves("time") if not np.isnan(trace.columns["time"]).all() else {}
    for key, row in _heads(trace).items():
        found = _reached(curves.get(key), sign, target)
        when = {"time": _when(times.get(key), found["by_mean"])} if times else {}
        rows.append({**row, **found, **when})
    return rows


def _when(times: Curve | None, step: Cell) -> float | None:
    """Return the time of a step, the same for all seeds."""
    if times is None or not isinstance(step, int | float):
        return None
    return float(np.nanmean(times.values[:, times.steps == step]))


def _heads(trace: Results) -> dict[Key, dict[str, Cell]]:
    """Return the columns that all tables begin with."""
    ends: dict[Key, list[bool]] = {}
    for trial in trace.trials:
        ends.setdefault(trial.key, []).append(trial.diverged_at is not None)
    return {
        key: {**key._asdict(), "seeds": len(fell), "diverged": sum(fell)}
        for key, fell in ends.items()
    }


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
        return dict.fromkeys(STEPS)
    there = sign * np.vstack([curve.mean, curve.values]) <= sign * target  # NaN is not
    first = np.where(there.any(axis=1), curve.steps[there.argmax(axis=1)], inf)
    found = dict(zip(STEPS, (float(first[0]), float(np.median(first[1:]))), strict=True))
    return {name: _whole(step) if isfinite(step) else None for name, step in found.items()}


def _whole(step: float) -> float:
    return int(step) if step.is_integer() else step  # the median of an even number may not be


def render(rows: Sequence[Row]) -> RenderableType:
    """Lay rows out for a terminal: many metrics make several tables, one below the other."""
    heads = [name for name in _shown(rows) if name in (*Key._fields, "seeds", "diverged")]
    values = [name for name in _shown(rows) if name not in heads]
    parts = [values[k : k + ACROSS] for k in range(0, len(values), ACROSS)] or [[]]
    tables = [_table(rows, [*heads, *part]) for part in parts]
    return Group(*[part for table in tables for part in (Text(), table)][1:])


def one_table(rows: Sequence[Row]) -> Table:
    """Lay rows out side by side, however wide that is."""
    return _table(rows, _shown(rows))


def _shown(rows: Sequence[Row]) -> list[str]:
    """Return the columns: no run if all rows are of one, no divergence if there is none."""
    shown = {"run": len({row["run"] for row in rows}) > 1}
    shown |= {"diverged": any(row["diverged"] for row in rows)}
    return [name for name in (rows[0] if rows else {}) if shown.get(name, True)]


def _table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    out = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    for name in names:
        side: Literal["left", "right"] = "left" if name in NAMES else "right"
        out.add_column(HEADS.get(name, name.replace("_", " ")), justify=side, overflow="fold")
    for row in rows:
        out.add_row(*(Text(_text(row, name)) for name in names))  # labels are no markup
    return out


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
    out, target = StringIO(), Path(path)
    flat = [_flat(row) for row in rows]
    writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return write_whole(target, out.getvalue().encode())


def _flat(row: Row) -> dict[str, str | float | None]:
    flat: dict[str, str | float | None] = {}
    for name, cell in row.items():
        flat[name] = cell.mean if isinstance(cell, Spread) else cell
        if name in METRICS:
            flat[f"{name}_std"] = cell.std if isinstance(cell, Spread) else None
    return flat
