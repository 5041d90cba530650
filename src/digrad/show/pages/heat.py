"""A sweep at one glance: step size by method, the deeper the colour the better the end."""

from collections.abc import Collection, Mapping, Sequence
from html import escape

import numpy as np

from digrad.base.metrics import Metric
from digrad.base.text import number
from digrad.results.trials import Key, Results
from digrad.show.drawn_curves import in_order
from digrad.show.pages.markup import LONG, whole_names
from digrad.show.tables import Row, Spread, final_values

Ends = Mapping[Key, tuple[Row, float | None]]  # the row of the table, and the mean in it


def heat_maps(trace: Results, best: Collection[Key], first: str = "") -> str:
    """Return a table per metric and network; a chooser on the page shows one metric at a time.

    Args:
        trace: what was recorded.
        best: the best step size of each method, to be framed.
        first: the metric that is shown first.
    """
    rows = final_values(trace)
    keys = [Key(*(row[name] for name in Key._fields)) for row in rows]  # type: ignore[arg-type]
    maps: list[str] = []
    for metric in in_order(trace, first):
        ends = {key: (row, _mean(row, metric)) for key, row in zip(keys, rows, strict=True)}
        deep = _depths({key: mean for key, (_, mean) in ends.items()}, trace.metric(metric))
        tables = "".join(
            _table(network, metric, ends, deep, best)
            for network in dict.fromkeys(key.network for key in keys)
        )
        label = escape(trace.metric(metric).label, quote=True)
        hidden = "" if not maps else " hidden"
        maps.append(f'<div data-metric="{metric}" data-label="{label}"{hidden}>{tables}</div>')
    told = "final mean over seeds; deeper: better; framed: the best of each method"
    return f'<div class="heat">{"".join(maps)}<p class="note">{told}</p></div>'


def _mean(row: Row, metric: str) -> float | None:
    cell = row.get(metric)
    return cell.mean if isinstance(cell, Spread) and np.isfinite(cell.mean) else None


def _depths(means: Mapping[Key, float | None], metric: Metric) -> dict[Key, float]:
    """Return how deep the colours are, from 0 to 1: even on the scale on which curves are drawn."""
    known = {key: mean for key, mean in means.items() if mean is not None}
    log = bool(metric.log) and all(mean > 0 for mean in known.values())
    scaled = {key: float(np.log10(mean)) if log else mean for key, mean in known.items()}
    low, high = min(scaled.values(), default=0.0), max(scaled.values(), default=0.0)
    sign = -metric.sign
    middle, half = (low + high) / 2, (high - low) / 2
    return {
        key: 0.5 + 0.5 * sign * (value - middle) / half if half > 0 else 0.5
        for key, value in scaled.items()
    }


def _table(
    network: str, metric: str, ends: Ends, deep: Mapping[Key, float], best: Collection[Key]
) -> str:
    there = [key for key in ends if key.network == network]
    sizes = sorted({key.lr for key in ends})
    methods = list(dict.fromkeys((key.run, key.algorithm) for key in there))
    several = len({key.run for key in ends}) > 1
    head = "".join(f'<th scope="col">{size:g}</th>' for size in sizes)
    body = ""
    for run, algorithm in methods:
        cells = [Key(run, network, algorithm, size) for size in sizes]
        name = f"{run}, {algorithm}" if several else algorithm
        long = ' class="long"' if len(name) > LONG else ""
        body += f'<tr><th scope="row"{long}>{whole_names(name)}</th>'
        body += "".join(_cell(key, ends, deep, framed=key in best) for key in cells) + "</tr>"
    return (
        f'<div class="scroll"><table class="map"><caption>{escape(network)}</caption>'
        f'<thead><tr><th scope="col">γ</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(key: Key, ends: Ends, deep: Mapping[Key, float], *, framed: bool) -> str:
    if key not in ends:
        return "<td></td>"
    row, mean = ends[key]
    if mean is None:
        lost = "diverged" if row["diverged"] == row["seeds"] else "–"
        return f'<td class="lost">{lost}</td>'
    kind = ' class="framed"' if framed else ""
    fell = f'<br><small class="fell">{row["diverged"]} of {row["seeds"]} diverged</small>'
    return (
        f'<td{kind} style="--deep:{100 * deep[key]:.0f}%">{number(mean, 3)}'
        f"{fell if row['diverged'] else ''}</td>"
    )


def is_sweep(keys: Sequence[Key]) -> bool:
    """Say whether some method was tried with several step sizes."""
    tried: dict[tuple[str, str, str], set[float]] = {}
    for key in keys:
        tried.setdefault((key.run, key.network, key.algorithm), set()).add(key.lr)
    return any(len(sizes) > 1 for sizes in tried.values())
