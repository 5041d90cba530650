"""A network that changes on a page: its slots side by side beside the verdict."""

from html import escape
from typing import Any, NamedTuple

from digrad.analysis import TimetableAnalysis
from digrad.show.figures.names import key
from digrad.show.figures.slots import look_at, rooted, shown_slots
from digrad.show.pages.drawing import MOST_NODES, _key, _panel, node_rows
from digrad.show.pages.markup import chapters, fold


class _SlotPanel(NamedTuple):
    """One slot, as a panel wants it."""

    network: Any
    vectors: Any


def timetable_body(analysis: TimetableAnalysis) -> str:
    """Return the slots drawn beside the verdict; facts and nodes below, to unfold."""
    parts = chapters(analysis.report())
    side = parts.pop("Verdict")
    folded = "".join(fold(name, body) for name, body in parts.items())
    union: Any = _SlotPanel(analysis.network.union, analysis.vectors)
    folded += fold("Nodes", node_rows(union), printed=False)
    return f'<div class="network">{_draw(analysis)}<div>{side}</div></div>{folded}'


def _draw(analysis: TimetableAnalysis) -> str:
    net = analysis.network
    if net.n > MOST_NODES:
        return f'<p class="note">not drawn: there are more than {MOST_NODES:,} nodes</p>'
    look, drawn = look_at(net, analysis.vectors), ""
    for name, slot in shown_slots(net).items():
        seen: Any = _SlotPanel(rooted(slot, net), analysis.vectors)
        drawn += _panel(name, seen, slot.pull_graph, look)
    notes = ["area: weight in the answer"] + [
        f"nodes: {', '.join(n)}" for n in [key(net.union)] if n
    ]
    caption = f"{_key(net.union)}{escape('; '.join(notes))}"
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"
