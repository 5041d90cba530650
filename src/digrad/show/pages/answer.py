"""What a page about runs opens on: who won, the best curves, and the whole sweep behind them."""

from html import escape
from math import isnan

from digrad.answers import Best, Standing, Verdict, judge
from digrad.answers.words import far
from digrad.base.errors import DigradError
from digrad.base.text import number
from digrad.runs.results import Key, Results
from digrad.show.pages.curves import note, plot_data
from digrad.show.pages.endings import endings
from digrad.show.pages.heat import heat_maps, is_sweep
from digrad.show.pages.markup import fold
from digrad.show.pages.page import Section, plot
from digrad.show.tables import Spread

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
    best = best_keys(verdict) if verdict else frozenset()
    sweep = is_sweep(keys)
    body = _headline(verdict) if verdict else trouble
    body += curves(trace, best if sweep else ())
    if not sweep:
        return [Section("Answer", body + endings(trace), plotted=True)]
    body += _standings(verdict) if verdict else ""
    whole = heat_maps(trace, best)
    rows = endings(trace)
    whole += fold(f"All {len(keys)} final values", rows) if len(keys) > FEW_ROWS else rows
    return [Section("Answer", body, plotted=True), Section("The whole sweep", whole)]


def best_keys(verdict: Verdict) -> frozenset[Key]:
    """Return the best step size of each method on each network of each run."""
    bests = (row.best for row in verdict.rows)
    return frozenset(Key(best.run, best.network, best.algorithm, best.lr) for best in bests)


def curves(trace: Results, best: frozenset[Key] | tuple[()] = ()) -> str:
    """Return the interactive plot and what is to be known of it."""
    script = '<noscript><p class="note">The curves need JavaScript.</p></noscript>'
    return f'{script}{plot(plot_data(trace, best))}<p class="note">{escape(note(trace))}</p>'


def _headline(verdict: Verdict) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in verdict.advice)
    advice = fold(f"{len(verdict.advice)} at the edge of the grid", f"<ul>{lines}</ul>")
    return f'<p class="headline">{escape(verdict.headline)}</p>' + (advice if lines else "")


def _standings(verdict: Verdict) -> str:
    """Return a table of the contenders, each at its own best step; empty columns are left out."""
    one, other = ("method", "network") if verdict.among == "algorithm" else ("network", "method")
    value = verdict.by.words
    rows = [
        {
            other: row.group if len(verdict.groups) > 1 else "",
            one: row.name,
            "best γ": number(row.best.lr),
            value: _value(row.best),
            "behind the first": _behind(row, verdict),
            "seeds": str(row.best.seeds),
            "diverged": f"{row.best.diverged} of {row.best.trials}" if row.best.diverged else "",
            "grid": row.best.advice,
        }
        for row in verdict.rows
    ]
    heads = [name for name in rows[0] if any(row[name] for row in rows)]
    sides = [" class=right" * (h in ("best γ", value, "seeds", "diverged")) for h in heads]
    head = "".join(f"<th{s}>{escape(h)}</th>" for h, s in zip(heads, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{s}>{escape(row[h])}</td>" for h, s in zip(heads, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _value(best: Best) -> str:
    return "diverged" if isnan(best.value) else str(Spread(best.value, best.std))


def _behind(row: Standing, verdict: Verdict) -> str:
    if row.behind is not None and row.behind.decided:
        return far(row.behind, verdict.by)
    return {"leads": "first", "failed": ""}.get(row.place, row.place)
