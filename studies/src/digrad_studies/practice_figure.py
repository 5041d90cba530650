"""Theory beside practice: two scatter plots and the predictors' rank correlations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK
from digrad_studies.practice import Sample
from digrad_studies.statistics import Estimate

MARKERS = "osD^vP*"
NAMES = {
    "certified_transient": r"our transient time $T_z$",
    "1/certified_step": "1 / our largest step",
    "predicted_transient": "the paper's transient time",
    "transient_to_central": "transient time, against SGD",
    "1/predicted_step": r"$1/\gamma_{\max}$",
    "indicator": r"$Q/(n\pi^2)$",
    "n_pi": r"$n\pi$",
    "mixing": "mixing time",
}
TARGETS = {"transient": "measured transient time", "step": "1 / largest stable step"}


def draw_practice(
    samples: Sequence[Sample], correlations: Sequence[Mapping[str, str | Estimate]]
) -> Figure:
    """Draw predicted against measured transient times and steps, and what predicts them."""
    wide, tall, foot = 2 * WIDTH, 560.0, 15.0
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, foot / tall, 1, 1 - foot / tall), w_pad=5 / 72)
    note = f"{len(samples)} networks; dotted: equal; bars: 95 % intervals, networks resampled"
    figure.text(0.5, 4 / tall, note, size=7, ha="center", color=INK)
    # Parts of their own: the predictors' long names should not push the panels above.
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.4), squeeze=False)[:, 0]
    times, steps = above.subplots(1, 2)
    _scatter(times, samples, "certified_transient", "transient")
    times.set(title="transient time", xlabel="certified $T_z$", ylabel="measured")
    _scatter(steps, samples, "certified_step", "step")
    title, label = "step size", "largest certified"
    steps.set(title=title, xlabel=label, ylabel="largest stable")
    _forest(below.add_subplot(), correlations)
    for axes in figure.axes:
        _dress(axes)
    handles, labels = times.get_legend_handles_labels()
    look: dict[str, Any] = {"loc": "outside upper center", "fontsize": 7, "frameon": False}
    above.legend(handles, labels, ncols=4, handletextpad=0.1, **look)
    return figure


def _scatter(axes: Axes, samples: Sequence[Sample], predicted: str, measured: str) -> None:
    everything: list[float] = []
    for k, family in enumerate(dict.fromkeys(s.family for s in samples)):
        own = [s for s in samples if s.family == family]
        x, y = [s.predicted[predicted] for s in own], [getattr(s, measured) for s in own]
        look: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k]}
        axes.plot(x, y, ls="", ms=4, mec="white", mew=0.4, label=family, **look)
        everything += [v for v in (*x, *y) if np.isfinite(v) and v > 0]
    axes.set(xscale="log", yscale="log")
    ends = min(everything), max(everything)
    limits = axes.get_xlim(), axes.get_ylim()
    axes.plot(ends, ends, color=INK, ls=":", lw=1)
    axes.set(xlim=limits[0], ylim=limits[1])  # the diagonal may lie far outside


def _forest(axes: Axes, correlations: Sequence[Mapping[str, str | Estimate]]) -> None:
    """Draw a line per predictor, the best for the transient time on top."""
    rows = sorted(correlations, key=lambda row: _value(row["transient"]))
    for k, (target, label) in enumerate(TARGETS.items()):
        found = [row[target] for row in rows]
        estimates = [e for e in found if isinstance(e, Estimate)]
        y = np.arange(len(rows)) + 0.15 - 0.3 * k
        look: dict[str, Any] = {"color": COLOURS[k], "zorder": 3}
        axes.hlines(y, [e.low for e in estimates], [e.high for e in estimates], lw=1, **look)
        axes.plot([e.value for e in estimates], y, "os"[k], ms=3.5, label=label, **look)
    names = [NAMES.get(str(row["predictor"]), str(row["predictor"])) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlim=(-0.75, 1), ylim=(-0.7, len(rows) - 0.3))
    axes.set(xlabel="Spearman's rank correlation", title="what predicts practice")
    axes.axvline(0, color=INK, lw=0.6)
    axes.legend(loc="upper left", fontsize=7, frameon=False)


def _value(estimate: str | Estimate) -> float:
    return estimate.value if isinstance(estimate, Estimate) else 0.0


def _dress(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.title.set_fontsize(8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(8)
        if axis.get_scale() == "log":
            axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=7, which="both")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
