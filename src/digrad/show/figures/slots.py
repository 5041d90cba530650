"""A network that changes, drawn slot by slot, side by side."""

from copy import copy
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

from digrad.networks.slot import Slot
from digrad.networks.timetable import Timetable
from digrad.show.figures.arrows import PanelScale, look_of
from digrad.show.figures.drawing import MOST_EDGES, _draw_arrows, _draw_key, _draw_nodes, _empty
from digrad.show.figures.layouts import LAYOUTS
from digrad.show.figures.names import key_lines
from digrad.theory.cycles import CyclicPerron

MOST_SLOTS = 6  # that are drawn


def draw_timetable(timetable: Timetable, vectors: CyclicPerron, *, title: str = "") -> Figure:
    """Draw who sends to whom in each slot; of links left to chance, in the first steps.

    Nodes stand in the same places in all panels, with area ∝ their weight in the answer.
    """
    shown, look = shown_slots(timetable), look_at(timetable, vectors)
    panels = list(shown)
    notes = [_note(timetable, len(shown))]
    if any(slot.pull_graph != slot.push_graph for slot in shown.values()):
        notes.append("drawn: whom models come from; trackers have other links")
    names = key_lines(timetable.union, 72 * len(panels))
    figure = _empty(look, title, panels, key=16.0 + 9 * len(notes + names))
    for axes, slot in zip(figure.axes, shown.values(), strict=True):
        if len(slot.pull_graph.edges) <= MOST_EDGES:
            _draw_arrows(axes, slot.pull_graph, look)
        _draw_nodes(axes, rooted(slot, timetable), look)
    _draw_key(figure, timetable.union, notes, names)
    return figure


def shown_slots(timetable: Timetable) -> dict[str, Slot]:
    """Return what is drawn, by name: the slots, or the first steps of what is left to chance."""
    count = min(MOST_SLOTS, len(timetable.slots))
    if not timetable.is_random:
        return {f"slot {k}": timetable.slots[k] for k in range(count)}
    turns = [k * timetable.exchange_every for k in range(max(4, count))]
    return {f"step {t}": timetable.at(t) for t in turns}


def look_at(timetable: Timetable, vectors: CyclicPerron) -> PanelScale:
    """Return where the nodes stand, and how large they are, in every slot."""
    union = timetable.union
    links = nx.Graph(union.pull_graph.to_networkx())
    links.add_edges_from(union.push_graph.edges.tolist())
    weights = np.full(union.n, 1 / union.n) if timetable.is_random else vectors.phi.mean(axis=0)
    return look_of(LAYOUTS["auto"](links, int(union.roots[0])), weights)


def rooted(slot: Slot, timetable: Timetable) -> Any:
    """Return a slot that says which nodes are roots of a whole period."""
    made = copy(slot)
    object.__setattr__(made, "roots", timetable.roots)
    return made


def _note(timetable: Timetable, drawn: int) -> str:
    if timetable.is_random:
        return str(timetable.chances)
    more = f"; {drawn} of {len(timetable.slots)} slots are drawn" * (drawn < len(timetable.slots))
    return f"period: {timetable.period} steps; area: mean weight in the answer{more}"
