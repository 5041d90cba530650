"""Loss against bytes, one panel for each network."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from digrad.results.trials import Results
from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK
from digrad_studies.compression import METRIC

MARKERS = "osD^vP*X"


def draw_compression(results: Results, target: float) -> Figure:
    """Draw the gradient norm along the bytes sent so far, both axes logarithmic.

    Lines are means over seeds; those that end early diverged. The dotted line is the target.
    """
    wide, tall, foot = 2 * WIDTH, 225.0, 14.0
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, foot / tall, 1, 1 - foot / tall), w_pad=5 / 72)
    curves, sent = results.curves(METRIC), results.curves("bytes")
    networks = list(dict.fromkeys(key.network for key in curves))
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        own = [key for key in curves if key.network == network]
        for k, key in enumerate(own):
            curve = curves[key]
            shown = (curve.steps > 0) & np.isfinite(curve.mean)
            x, y = sent[key].mean[shown] / 1e6, curve.mean[shown]
            look: dict[str, Any] = {"linewidth": 1.1, "markersize": 3.5, "markevery": 0.12}
            colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
            dash = "-" if k < len(COLOURS) else "--"
            axes.plot(x, y, dash, color=colour, marker=marker, label=key.algorithm, **look)
        axes.axhline(target, color=INK, linewidth=0.7, linestyle=":")
        axes.set_title(network, size=8, parse_math=False)
        axes.set(xscale="log", yscale="log", axisbelow=True)
        axes.set_xlabel("megabytes sent by all nodes", size=8)
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(labelsize=7)
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(r"$\|\nabla f(\hat{x})\|$", size=8)
    handles, labels = panels[0].get_legend_handles_labels()
    more: dict[str, Any] = {"loc": "outside upper center", "frameon": False, "fontsize": 7}
    figure.legend(handles, labels, ncols=len(labels), handlelength=1.5, columnspacing=1, **more)
    note = "lines: mean over seeds; dotted: the value that the table counts bytes to"
    figure.text(0.5, 4 / tall, note, size=7, ha="center", color=INK)
    return figure
