"""How the trials of a page ended: the table of final values, and who diverged."""

from collections.abc import Sequence
from html import escape
from math import isfinite, sqrt
from typing import Any

from digrad.results.trials import Key, Results
from digrad.show.drawn_curves import fallen
from digrad.show.pages.markup import to_html
from digrad.show.tables import Row, Spread, final_values, one_table


def endings(trace: Results) -> str:
    """Return the table, the best values bold, and a line for each curve with diverged trials."""
    rows = final_values(trace)
    laid_out = one_table(lean(rows))
    heads = [str(column.header) for column in laid_out.columns]
    best = {(r, heads.index(name.replace("_", " "))) for r, name in best_values(trace)}
    body = to_html(laid_out, best)
    if best:
        told = "bold: the best on its network, and what is within two standard errors of it"
        body += f'<p class="note">{told}</p>'
    fell = "".join(f"<li>{escape(line)}</li>" for line in divergences(trace))
    return body + (f'<h4>Diverged</h4><ul class="fell">{fell}</ul>' if fell else "")


def lean(rows: Sequence[Row]) -> list[Row]:
    """Leave out the network where there is but one: a phone has little room."""
    one = len({row["network"] for row in rows}) == 1
    return [{k: v for k, v in row.items() if k != "network" or not one} for row in rows]


def best_values(trace: Results) -> set[tuple[int, str]]:
    """Return (row, metric) of the best mean of each metric on each network of each run.

    What is within two standard errors of the best is as good. Rows with diverged trials are out
    of the running, and nobody is the best who has no rival or none that is worse.
    """
    rows = final_values(trace)
    groups: dict[tuple[Any, Any], list[int]] = {}
    for r, row in enumerate(rows):
        groups.setdefault((row["run"], row["network"]), []).append(r)
    found = set()
    for group in groups.values():
        for metric in trace.metrics:
            ends = {r: rows[r].get(metric) for r in group if not rows[r]["diverged"]}
            known = {r: end for r, end in ends.items() if isinstance(end, Spread)}
            good = _as_good(known, rows, trace.metric(metric).sign)
            if len(good) < len(known):
                found |= {(r, metric) for r in good}
    return found


def _as_good(ends: dict[int, Spread], rows: Sequence[Row], sign: int) -> set[int]:
    ends = {r: end for r, end in ends.items() if isfinite(end.mean)}
    if not ends:
        return set()
    best = min(ends, key=lambda r: sign * ends[r].mean)

    def variance(r: int) -> float:
        seeds = rows[r]["seeds"]
        return (ends[r].std or 0.0) ** 2 / (seeds if isinstance(seeds, int) else 1)

    return {
        r
        for r, end in ends.items()
        if sign * (end.mean - ends[best].mean) <= 2 * sqrt(variance(r) + variance(best))
    }


def divergences(trace: Results) -> list[str]:
    """Name the trials that diverged, a line per curve."""
    fell: dict[Key, list[str]] = {}
    for metric in trace.metrics:
        for key, curve in trace.curves(metric).items():
            fell.setdefault(key, fallen(curve))
    return [
        f"{key.algorithm} on {key.network}, γ = {key.lr:g}: {', '.join(trials)}"
        for key, trials in fell.items()
        if trials
    ]
