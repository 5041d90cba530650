"""A picture of who computes and who waits: a lane for each node, a panel for each method."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK

COMPUTING, WAITING = COLOURS[0], "#DDDDDD"
MOST_LANES = 24  # of which a panel has room
LANE = 7.5  # points


def draw_timeline(timelines: Sequence[Any], title: str = "") -> Figure:
    """Draw what nodes do: a bar is a gradient, grey is waiting.

    Of more than 24 nodes the first are drawn. ``digrad.runs.timeline`` finds the timelines.
    """
    lanes = min(MOST_LANES, max(len(one.lanes) for one in timelines))
    tall = len(timelines) * (LANE * lanes + 30) + 34 + 14 * bool(title)
    figure = Figure(figsize=(2 * WIDTH / 72, tall / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained")
    if title:
        figure.suptitle(title, size=9, color=INK)
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    several = len({one.network for one in timelines}) > 1
    for axes, one in zip(panels, timelines, strict=True):
        _panel(axes, one, f"{one.algorithm} on {one.network}" if several else one.algorithm)
    panels[-1].set_xlabel("time on the clock", size=8, labelpad=2)
    names = {"computes a gradient": COMPUTING, "waits for messages": WAITING}
    handles = [Patch(facecolor=colour, label=name) for name, colour in names.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=7)
    return figure


def _panel(axes: Axes, one: Any, name: str) -> None:
    for node, lane in enumerate(one.lanes[:MOST_LANES]):
        for spans, colour in ((lane.computing, COMPUTING), (lane.waiting, WAITING)):
            bars = [(start, end - start) for start, end in spans if start < one.until]
            axes.broken_barh(
                bars, (node - 0.38, 0.76), facecolors=colour, edgecolor="white", linewidth=0.5
            )
    shown = min(MOST_LANES, len(one.lanes))
    axes.set(xlim=(0, one.until), ylim=(shown - 0.4, -0.6))
    axes.set_title(name, size=8, loc="left", pad=2, parse_math=False)
    axes.set_ylabel("node", size=8)
    axes.set_yticks(range(0, shown, 1 if shown <= 10 else 5))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
