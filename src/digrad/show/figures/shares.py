"""Who holds what: for each class a row of bars, a bar for each node."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from digrad.base.errors import ParameterError
from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK, PALE, title_size

# All in points.
WIDEST = 2 * WIDTH  # both columns of a page
NODE = 11.0  # width that a node would like to have
ROW, TOTALS = 16.0, 30.0  # heights of a class and of the sums above
BELOW, BETWEEN = 36.0, 10.0
LETTER = 4.1  # width of a letter of size 7
LEAST, MOST = 0.7, 14.0  # heights of bars: the smallest still shows that there is something


def draw_shares(counts: ArrayLike, classes: Sequence[str], *, title: str = "") -> Figure:
    """Draw how many samples of each class a node holds, as heights of bars of one scale.

    The bars above are all samples of a node. Bars need no colours, so that there may be many
    classes, and little width, so that a hundred nodes fit on a page.

    Args:
        counts: a row for each node, a column for each class.
        classes: the names of the classes.
        title: above it all.
    """
    table = _checked(counts, classes)
    nodes, sums = len(table), table.sum(axis=1)
    letters = max(map(len, (f"{1.1 * sums.max():,.0f}", *classes)))
    left, right = 12 + LETTER * letters, 8.0
    wide = min(max(WIDTH, left + right + NODE * nodes), max(WIDEST, left + right + WIDTH))
    room, rows = wide - left - right, ROW * len(classes)
    tall = BELOW + rows + BETWEEN + TOTALS + (20.0 if title else 8.0)
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    start, across, above = left / wide, room / wide, (BELOW + rows + BETWEEN) / tall
    axes = figure.add_axes((start, BELOW / tall, across, rows / tall))
    top = figure.add_axes((start, above, across, TOTALS / tall), sharex=axes)
    bar = min(0.8, 14 * nodes / room)  # of a node's width
    _draw_rows(axes, table, bar)
    _dress_rows(axes, classes, nodes)
    _draw_sums(top, sums, bar)
    size = title_size(title, wide)
    head = figure.text(0.5, 1 - 5 / tall, title, size=size, color=INK, ha="center", va="top")
    head.set_parse_math(False)
    note = f"grey: all samples of a node; blue: of a class, at most {table.max():,}"
    figure.text(0.5, 4 / tall, note, size=7, color=INK, ha="center")
    return figure


def _checked(counts: ArrayLike, classes: Sequence[str]) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] != len(classes) or not table.size:
        what = f"counts have shape {table.shape} for {len(classes)} classes"
        hint = "give a row for each node and a column for each class"
        raise ParameterError(what, hint=hint)
    if not np.issubdtype(table.dtype, np.integer) or table.min() < 0 or table.max() == 0:
        hint = "count them with digrad.data.counts_of"
        raise ParameterError("counts must be whole, at least 0 and not all 0", hint=hint)
    return table.astype(np.int64)


def _draw_rows(axes: Axes, table: NDArray[np.int64], bar: float) -> None:
    """Draw a bar upwards from the row of its class; y grows downwards, a row is one unit."""
    node, kind = np.nonzero(table)
    height = np.maximum(MOST * table[node, kind] / table.max(), LEAST) / ROW
    left, right, low, high = node - bar / 2, node + bar / 2, kind + 0.5, kind + 0.5 - height
    corners = [[left, low], [left, high], [right, high], [right, low]]
    bars = PolyCollection(np.array(corners).transpose(2, 0, 1).tolist(), linewidths=0)
    bars.set(facecolor=COLOURS[0], label="shares", zorder=2)
    axes.add_collection(bars, autolim=False)


def _dress_rows(axes: Axes, classes: Sequence[str], nodes: int) -> None:
    axes.set(xlim=(-0.5, nodes - 0.5), ylim=(len(classes) - 0.5, -0.5), axisbelow=True)
    axes.set_yticks(range(len(classes)), classes, parse_math=False)
    axes.set_xlabel("node", size=8, labelpad=1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(labelsize=7, length=0)
    axes.hlines(np.arange(len(classes)) + 0.5, -0.5, nodes - 0.5, color="#CCCCCC", linewidth=0.4)
    axes.spines[:].set_visible(False)


def _draw_sums(axes: Axes, sums: NDArray[np.int64], bar: float) -> None:
    axes.bar(range(len(sums)), sums, width=bar, color=PALE, label="sums")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(labelsize=7, length=0)
    axes.tick_params(axis="x", labelbottom=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color="#CCCCCC", linewidth=0.4)
