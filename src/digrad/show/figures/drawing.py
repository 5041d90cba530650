"""Figures for papers: networks as circles and arrows, slot by slot if they change; scaling with n.

Nothing here touches ``pyplot``: figures are plain objects, drawn in points (1/72 inch) at
the width of a column, so that circles, arrowheads and letters are as large as they say.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.path import Path as Outline
from matplotlib.ticker import NullLocator

from digrad.base.errors import ParameterError, lookup
from digrad.base.files import write_whole
from digrad.networks.digraph import Digraph
from digrad.networks.network import Network, Slot
from digrad.networks.timetable import Timetable
from digrad.show.figures.arrows import WIDTH, PanelScale, arrows, look_of
from digrad.show.figures.layouts import LAYOUTS, Floats, key_lines, labels
from digrad.theory.cycles import CyclicPerron

MOST_EDGES = 20_000
ROOT, PLAIN, INK, PALE = "#0072B2", "#FFFFFF", "#333333", "#8C8C8C"
# Okabe & Ito's colours; with the markers and dashes the lines differ in grey as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS, DASHES = "osD^vPX*<>h", ("-", "--", "-.", ":")
# What each format must leave out for equal figures to be equal bytes.
FORMATS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
MOST_SLOTS = 6  # that are drawn
POINTS = {"in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "pt": 1.0}
LEAST, MOST = 100.0, 3000.0  # points between which letters and lines have their places


def draw_network(
    network: Network, pi_R: Floats, *, title: str = "", layout: str = "auto"
) -> Figure:
    """Draw who sends to whom: an arrow per link, a circle per node with area ∝ π_R.

    Common roots are filled; names too long for a circle are in the key. One panel is enough
    when the push graph is the pull graph or its reverse. ``layout`` is one of ``LAYOUTS``.
    """
    pi = _checked_weights(network, pi_R)
    pull, push = network.pull_graph, network.push_graph
    look = place_nodes(network, pi, layout)
    panels, notes = {"pull graph": pull, "push graph": push}, []
    if push in (pull, pull.reverse()):
        panels, notes = {"": pull}, [f"push graph: {'same' if push == pull else 'reverse'}"]
    crowded = max(len(graph.edges) for graph in panels.values()) > MOST_EDGES
    if crowded:
        notes.append(f"links not drawn: there are more than {MOST_EDGES}")
    notes.append(_area_note(pi, look))
    drawn = {name: (network, None if crowded else graph) for name, graph in panels.items()}
    return _draw_panels(drawn, network, look, title, notes)


def place_nodes(network: Network, pi: Floats, layout: str = "auto") -> PanelScale:
    """Return where the nodes stand, and how large they are, on all panels of a network."""
    links = nx.Graph(network.pull_graph.to_networkx())
    links.add_edges_from(network.push_graph.edges.tolist())
    return look_of(lookup(LAYOUTS, layout, "layout")(links, int(network.roots[0])), pi)


def _draw_panels(
    panels: Mapping[str, tuple[Any, Digraph | None]],
    network: Network,
    look: PanelScale,
    title: str,
    notes: list[str],
) -> Figure:
    """Draw panels by name: a network for its nodes and a graph for its arrows."""
    names = key_lines(network, 72 * len(panels))
    figure = _empty(look, title, list(panels), key=16.0 + 9 * len(notes + names))
    for axes, (nodes, graph) in zip(figure.axes, panels.values(), strict=True):
        if graph is not None:
            _draw_arrows(axes, graph, look)
        _draw_nodes(axes, nodes, look)
    _draw_key(figure, network, notes, names)
    return figure


def _checked_weights(network: Network, pi_R: Floats) -> Floats:
    pi = np.asarray(pi_R, dtype=np.float64)
    if pi.shape != (network.n,) or not np.isfinite(pi).all() or pi.min() < 0 or pi.max() == 0:
        what = f"pi_R must be {network.n} weights, at least 0 and not all 0, got shape {pi.shape}"
        raise ParameterError(what, hint="pass the left Perron vector of network.R")
    return pi


def _empty(look: PanelScale, title: str, names: list[str], key: float) -> Figure:
    """Return a figure with a panel per name, one unit to the point, and room for a key."""
    low, high = look.xy.min(axis=0), look.xy.max(axis=0)
    margin = look.radii.max() + 4
    tall = high[1] - low[1] + 2 * margin
    wide, total = WIDTH * len(names), key + tall + 14.0 * bool(title) + 12.0 * bool(names[0])
    figure = Figure(figsize=(wide / 72, total / 72), dpi=200, facecolor="white")
    size = title_size(title, wide)
    figure.text(0.5, 1 - 4 / total, title, size=size, color=INK, ha="center", va="top")
    for k, name in enumerate(names):
        axes = figure.add_axes((k / len(names), key / total, 1 / len(names), tall / total))
        centre = (low[0] + high[0]) / 2
        axes.set(xlim=(centre - WIDTH / 2, centre + WIDTH / 2), aspect="equal")
        axes.set(ylim=(low[1] - margin, high[1] + margin))
        axes.set_title(name, size=8, color=INK, pad=2)
        axes.axis("off")
    return figure


def title_size(title: str, wide: float) -> float:
    """Return the size of letters with which a title fits."""
    return min(9.0, 1.7 * wide / max(1, len(title)))  # a letter is about half as wide as high


def _draw_arrows(axes: Axes, graph: Digraph, look: PanelScale) -> None:
    stems, heads = arrows(graph, look)
    lines = [Outline(stem, [Outline.MOVETO, Outline.CURVE3, Outline.CURVE3]) for stem in stems]
    shade = INK if look.labelled else PALE
    thin = float(np.sqrt(4 * graph.n / max(1, len(stems))))  # where there are many
    width = max(0.25, look.line * min(1.0, thin))
    drawn = PathCollection(lines, facecolors="none", edgecolors=shade, linewidths=width)
    points = PolyCollection(list(heads), facecolors=shade, linewidths=0)
    for collection, label in ((drawn, "lines"), (points, "heads")):
        collection.set(label=label, clip_on=False)
        axes.add_collection(collection, autolim=False)


def _draw_nodes(axes: Axes, network: Network, look: PanelScale) -> None:
    fill = np.where(np.isin(np.arange(network.n), network.roots), ROOT, PLAIN)
    circles = [Circle((x, y), radius) for (x, y), radius in zip(look.xy, look.radii, strict=True)]
    nodes = PatchCollection(circles, facecolors=fill, edgecolors=INK, linewidths=look.line)
    nodes.set(label="nodes", zorder=2)
    axes.add_collection(nodes, autolim=False)
    if not look.labelled:
        return
    texts = labels(network)
    for i, (x, y) in enumerate(look.xy):
        text = texts[i]
        size = min(9.0, max(6.0, 0.8 * look.radii[i])) * (1 if len(text) < 3 else 0.8)
        ink = "white" if fill[i] == ROOT else "black"
        label = axes.text(x, y, text, size=size, color=ink, zorder=3, parse_math=False)
        label.set(ha="center", va="center_baseline")


def _draw_key(figure: Figure, network: Network, notes: list[str], names: list[str]) -> None:
    kinds = {"common root": ROOT, "not a root": PLAIN}
    if len(network.roots) == network.n:
        kinds = {"common root (every node)": ROOT}
    dots = [
        Line2D([], [], marker="o", ls="", ms=6, mfc=fill, mec=INK, mew=0.8, label=kind)
        for kind, fill in kinds.items()
    ]
    point = 1 / (72 * figure.get_figheight())
    look: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 7, "handletextpad": 0.1}
    look |= {"loc": "lower center", "borderpad": 0, "borderaxespad": 0}
    place = (0.5, (9 * len(notes + names) + 4) * point)
    figure.legend(handles=dots, bbox_to_anchor=place, **look)
    for k, note in enumerate(reversed(notes + names)):
        size = 7 if k >= len(names) else 6
        text = figure.text(0.5, (9 * k + 4) * point, note, size=size, color=INK, ha="center")
        text.set_parse_math(k >= len(names))  # a name is no formula


def _area_note(pi: Floats, look: PanelScale) -> str:
    note = r"area: weight in $\pi_R$"
    raised = pi[look.radii <= look.smallest]
    if not len(raised) or np.ptp(pi) < 1e-9 * pi.max():
        return note
    most = raised.max() / pi.sum()
    return f"{note} (smallest circle: {f'up to {most:.2g}' if most > 1e-9 else '0'})"


def draw_scaling(
    curves: Mapping[str, Sequence[tuple[int, float]]], *, ylabel: str, title: str = ""
) -> Figure:
    """Plot a quantity against n on logarithmic axes, one line per topology.

    Values that are not finite or not positive have no place there and are left out.
    """
    size = (WIDTH / 72, 2.5 + 0.08 * len(curves))
    figure = Figure(figsize=size, dpi=200, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    shown = {
        name: [(n, y) for n, y in sorted(points) if np.isfinite(y) and y > 0]
        for name, points in curves.items()
    }
    for k, (name, points) in enumerate(shown.items()):
        label = name if points else f"{name} (no value > 0)"
        (line,) = axes.plot([n for n, _ in points], [y for _, y in points], label=label)
        line.set(color=COLOURS[k % len(COLOURS)], linestyle=DASHES[k % len(DASHES)])
        line.set(marker=MARKERS[k % len(MARKERS)], markersize=4, linewidth=1.2)
    _dress(axes, sorted({n for points in shown.values() for n, _ in points}))
    axes.set_ylabel(ylabel, size=8)
    axes.set_title(title, size=title_size(title, 0.8 * WIDTH))
    last = [points[-1][1] if points else 0.0 for points in shown.values()]
    order = [axes.lines[k] for k in np.argsort(last)[::-1]]  # as the lines end, from above
    figure.legend(handles=order, loc="outside lower center", ncols=2, frameon=False, fontsize=7)
    return figure


def _dress(axes: Axes, sizes: list[int]) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("number of nodes n", size=8)
    ticks = sizes[:1]
    for n in sizes[1:]:
        if n >= ticks[-1] * (sizes[-1] / sizes[0]) ** 0.12:  # nearer ones would overlap
            ticks.append(n)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=7, which="both")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def check_suffix(path: str | Path) -> str:
    """Return the suffix of a picture's file, or refuse one that names no known format."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        what = f"cannot write a figure as {Path(path).name!r}: its suffix names no known format"
        raise ParameterError(what, hint=f"end the name in {', '.join(FORMATS)}")
    return suffix


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a PNG, SVG or PDF, as the suffix says: whole or not at all, equal bytes each time.

    Raises:
        ParameterError: for another suffix.
        WriteError: where nothing can be written.
    """
    target, suffix = Path(path), check_suffix(path)
    image = BytesIO()
    with rc_context({"svg.hashsalt": "digrad", "pdf.fonttype": 42}):
        figure.savefig(image, format=suffix[1:], dpi=200, metadata=FORMATS[suffix])
    return write_whole(target, image.getvalue())


def draw_timetable(timetable: Timetable, vectors: CyclicPerron, *, title: str = "") -> Figure:
    """Draw who sends to whom in each slot; of links left to chance, in the first steps.

    Nodes stand in the same places in all panels, with area ∝ their weight in the answer.
    """
    shown, look = shown_slots(timetable), place_slots(timetable, vectors)
    notes = [_note(timetable, len(shown))]
    if any(slot.pull_graph != slot.push_graph for slot in shown.values()):
        notes.append("drawn: whom models come from; trackers have other links")
    panels = {
        name: (with_roots(slot, timetable), graph if len(graph.edges) <= MOST_EDGES else None)
        for name, slot in shown.items()
        if (graph := slot.pull_graph)
    }
    return _draw_panels(panels, timetable.union, look, title, notes)


def shown_slots(timetable: Timetable) -> dict[str, Slot]:
    """Return what is drawn, by name: the slots, or the first steps of what is left to chance."""
    count = min(MOST_SLOTS, len(timetable.slots))
    if not timetable.is_random:
        return {f"slot {k}": timetable.slots[k] for k in range(count)}
    turns = [k * timetable.exchange_every for k in range(max(4, count))]
    return {f"step {t}": timetable.at(t) for t in turns}


def place_slots(timetable: Timetable, vectors: CyclicPerron) -> PanelScale:
    """Return where the nodes stand, and how large they are, in every slot."""
    n = timetable.union.n
    pi = np.full(n, 1 / n) if timetable.is_random else vectors.phi.mean(axis=0)
    return place_nodes(timetable.union, pi)


def with_roots(slot: Slot, timetable: Timetable) -> Any:
    """Return a slot that says which nodes are roots of a whole period."""
    made = copy(slot)
    object.__setattr__(made, "roots", timetable.roots)
    return made


def _note(timetable: Timetable, drawn: int) -> str:
    if timetable.is_random:
        return str(timetable.chances)
    more = f"; {drawn} of {len(timetable.slots)} slots are drawn" * (drawn < len(timetable.slots))
    return f"period: {timetable.period} steps; area: mean weight in the answer{more}"


def points(text: str) -> float:
    """Return a width in points, 1/72 inch.

    >>> round(points("3.4in")), round(points("8.6cm"))
    (245, 244)
    """
    unit = text.strip()[-2:]
    try:
        width = float(text.strip()[:-2]) * POINTS[unit]
    except (KeyError, ValueError):
        hint = "write a number and in, cm, mm or pt, as in 3.4in"
        raise ParameterError(f"a figure cannot be {text!r} wide", hint=hint) from None
    if not LEAST <= width <= MOST:
        hint = f"take {LEAST / 72:.1f}in to {MOST / 72:.0f}in; a column of a journal is 3.4in"
        raise ParameterError(f"a figure cannot be {text} wide", hint=hint)
    return width
