"""What a page about runs opens on: who won, the best curves, and the whole sweep behind them."""

from html import escape

from digrad.base.errors import DigradError
from digrad.results import Verdict, judge
from digrad.results.trials import Key, Results
from digrad.show.pages.curves import note, plot_data
from digrad.show.pages.endings import endings, lean
from digrad.show.pages.heat import heat_maps, is_sweep
from digrad.show.pages.markup import fold, to_html, whole_names
from digrad.show.pages.page import Section, plot
from digrad.show.tables import one_table
from digrad.show.verdicts import closing, verdict_rows

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
    sweep, first = is_sweep(keys), verdict.by.metric if verdict else ""
    body = _headline(verdict) if verdict else trouble
    body += curves(trace, best if sweep else (), first)
    if not sweep:
        return [Section("Answer", body + endings(trace), plotted=True)]
    body += to_html(one_table(lean(verdict_rows(verdict)))) if verdict else ""
    whole = heat_maps(trace, best, first)
    rows = endings(trace)
    whole += fold(f"All {len(keys)} final values", rows) if len(keys) > FEW_ROWS else rows
    return [Section("Answer", body, plotted=True), Section("The whole sweep", whole)]


def best_keys(verdict: Verdict) -> frozenset[Key]:
    """Return the best step size of each method on each network of each run."""
    bests = (row.best for row in verdict.rows)
    return frozenset(Key(best.run, best.network, best.algorithm, best.lr) for best in bests)


def curves(trace: Results, best: frozenset[Key] | tuple[()] = (), first: str = "") -> str:
    """Return the interactive plot and what is to be known of it."""
    script = '<noscript><p class="note">The curves need JavaScript.</p></noscript>'
    return f'{script}{plot(plot_data(trace, best, first))}<p class="note">{escape(note(trace))}</p>'


def _headline(verdict: Verdict) -> str:
    return "".join(f'<p class="headline">{whole_names(line)}</p>' for line in closing(verdict))
