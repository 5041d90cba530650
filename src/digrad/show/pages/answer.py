"""What a page about runs opens on: the best method, its curves, the sweep, the final values."""

from collections.abc import Sequence
from html import escape
from math import isfinite, sqrt
from typing import Any

from digrad.base.errors import DigradError
from digrad.results import judge
from digrad.results.trials import Key, Results
from digrad.show.drawn_curves import fallen
from digrad.show.pages.curves import note, plot_data
from digrad.show.pages.heat import heat_maps, is_sweep
from digrad.show.pages.markup import fold, to_html, whole_names
from digrad.show.pages.page import Section, plot
from digrad.show.tables import Row, Spread, closing, final_values, one_table, verdict_rows

FEW_ROWS = 12  # of a table that is not folded away


def answer_sections(trace: Results, *, by: str = "") -> list[Section]:
    """Return the sections: the answer and, if step sizes were tried, the whole sweep.

    Args:
        trace: what was recorded.
        by: what the methods are compared by; the first metric that was recorded by default.
    """
    if not trace.metrics:
        return [Section("Final values", endings(trace))]
    keys = list(dict.fromkeys(trial.key for trial in trace.trials))
    try:
        verdict, trouble = judge(trace, by), ""
    except DigradError as error:  # as of runs that were recorded at other steps
        verdict, trouble = None, f'<p class="warning">{escape(str(error))}</p>'
    bests = [row.best for row in verdict.rows] if verdict else []
    best = frozenset(Key(one.run, one.network, one.algorithm, one.lr) for one in bests)
    sweep, first = is_sweep(keys), verdict.by.metric if verdict else ""
    lines = closing(verdict) if verdict else ()
    body = "".join(f'<p class="headline">{whole_names(line)}</p>' for line in lines) + trouble
    body += curves(trace, best if sweep else (), first)
    if not sweep:
        return [Section("Answer", body + endings(trace), plotted=True)]
    body += to_html(one_table(lean(verdict_rows(verdict)))) if verdict else ""
    whole = heat_maps(trace, best, first)
    rows = endings(trace)
    whole += fold(f"All {len(keys)} final values", rows) if len(keys) > FEW_ROWS else rows
    return [Section("Answer", body, plotted=True), Section("The whole sweep", whole)]


def curves(trace: Results, best: frozenset[Key] | tuple[()] = (), first: str = "") -> str:
    """Return the interactive plot and what is to be known of it."""
    script = '<noscript><p class="note">The curves need JavaScript.</p></noscript>'
    return f'{script}{plot(plot_data(trace, best, first))}<p class="note">{escape(note(trace))}</p>'


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
