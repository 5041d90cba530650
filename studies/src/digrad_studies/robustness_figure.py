"""Final accuracy against the step size and against the number of nodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from digrad.results.trials import Curve, Results
from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK

MARKERS = "osD^v"
METRIC = "test_accuracy"
Ends = dict[str, dict[float, Curve]]  # by algorithm and place on the x axis


def draw_robustness(sizes: Results, nodes: Mapping[int, Results]) -> Figure:
    """Draw two panels: many step sizes on one network, and one step size on many networks.

    Points are means over the seeds that did not diverge, bars go from the least to the
    largest; a cross at 0 marks a setting in which a trial diverged.
    """
    wide, tall, foot = 2 * WIDTH, 215.0, 14.0
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, foot / tall, 1, 1 - foot / tall), w_pad=5 / 72)
    left, right = figure.subplots(1, 2, sharey=True)
    along_sizes, along_nodes = Ends(), Ends()
    for key, curve in sizes.curves(METRIC).items():
        left.set_title(key.network, size=8, parse_math=False)
        along_sizes.setdefault(key.algorithm, {})[key.lr] = curve
    for n, trace in nodes.items():
        for key, curve in trace.curves(METRIC).items():
            right.set_title(f"γ = {key.lr:g}", size=8)
            along_nodes.setdefault(key.algorithm, {})[float(n)] = curve
    _panel(left, along_sizes, "step size γ")
    _panel(right, along_nodes, "nodes n")
    left.set_ylabel(r"final test accuracy at $\hat{x}$", size=8)
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    handles, labels = left.get_legend_handles_labels()
    look: dict[str, Any] = {"loc": "outside upper center", "frameon": False, "fontsize": 7}
    figure.legend(handles, labels, ncols=len(labels), **look)
    note = (
        "points: mean over seeds that do not diverge; bars: least to largest; ×: a trial diverged"
    )
    figure.text(0.5, 4 / tall, note, size=7, ha="center", color=INK)
    return figure


def _panel(axes: Axes, ends: Ends, label: str) -> None:
    places = sorted({at for curves in ends.values() for at in curves})
    beside = max(10.0, places[-1] / places[0]) ** 0.025  # methods that agree would hide one another
    for k, (algorithm, curves) in enumerate(ends.items()):
        x = np.array(sorted(curves))
        shifted = x * beside ** (k - (len(ends) - 1) / 2)
        low, mean, high = np.array([_end(curves[at]) for at in x]).T
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        look: dict[str, Any] = {"marker": marker, "markersize": 4, "linewidth": 1.2, "capsize": 2}
        bars = np.array([mean - low, high - mean])
        axes.errorbar(shifted, mean, bars, color=colour, label=algorithm, **look)
        lost = [at for at, xk in zip(shifted, x, strict=True) if curves[xk].diverged]
        cross: dict[str, Any] = {"markersize": 6, "markeredgewidth": 1.6, "clip_on": False}
        if lost:  # an empty line that is not clipped would have no place, and no layout
            axes.plot(lost, [0] * len(lost), "x", color=colour, zorder=4, **cross)
    axes.set(xscale="log", ylim=(0, 1.02), axisbelow=True)
    axes.set_xlabel(label, size=8)
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.tick_params(labelsize=7)
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _end(curve: Curve) -> tuple[float, float, float]:
    """Return the least, mean and largest last value of the trials that did not diverge."""
    last = curve.values[[step is None for step in curve.diverged_at], -1]
    return (last.min(), last.mean(), last.max()) if len(last) else (np.nan, np.nan, np.nan)
