"""The page of a run under way, and what it hears every other second."""

from html import escape
from typing import Any

from digrad.show.pages.answer import curves
from digrad.show.pages.curves import plot_data
from digrad.show.pages.endings import lean
from digrad.show.pages.markup import to_html
from digrad.show.pages.page import Page, Section
from digrad.show.tables import final_values, one_table
from digrad.show.watching import RunView


def live_page(sight: RunView) -> Page:
    """Return the page as it is now; its script asks for the rest."""
    said = live_state(sight)
    more = ' data-more="yes"' if said["more"] else ""
    body = (
        f'<div class="live"{more}><p id="line">{escape(said["line"])}</p>'
        f'<progress id="done" max="1" value="{said["share"]:.4f}"></progress></div>'
    )
    sections = [Section("How far it is", body)]
    if said["plot"] and sight.results is not None:
        sections.append(Section("Curves", curves(sight.results, _leaders(sight)), plotted=True))
    sections.append(Section("Values so far", f'<div id="rows">{said["rows"]}</div>'))
    name = sight.run.experiment.name if sight.run.experiment else sight.run.path.name
    return Page(name, str(sight.run.path), sections)


def live_state(sight: RunView) -> dict[str, Any]:
    """Return what changes, as plain values; the rows of the table are HTML, escaped."""
    share = min(1.0, sight.run.done / sight.run.total) if sight.run.total else 0.0
    said: dict[str, Any] = {"line": sight.line, "share": share, "more": sight.under_way}
    if sight.results is None or not sight.results.metrics:
        return said | {"plot": None, "rows": '<p class="note">nothing recorded yet</p>'}
    rows = to_html(one_table(lean(final_values(sight.results))))
    return said | {"plot": plot_data(sight.results, _leaders(sight)), "rows": rows}


def _leaders(sight: RunView) -> frozenset[Any]:
    """Return the best step size of each method so far."""
    assert sight.results is not None
    panels = sight.leaders(sight.results.metrics[0])
    return frozenset(curve.key for curves in panels.values() for curve in curves)
