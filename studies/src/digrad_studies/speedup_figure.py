"""The speedup study as one picture: averages against n with two steps, against T, the condition."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import COLOURS, INK
from digrad_studies.speedup import CENTRALIZED, MATCHED, THEOREM, SpeedupPoint

MARKERS = "osD^vP"
AVERAGE = r"mean of $\|\nabla f(\hat{x})\|^2$ over $\sqrt{\Delta_f \sigma^2 L}$"
NOTE = (
    "points: means over the seeds, bars: from the least to the largest; hollow: T is below the "
    "predicted transient time, which triangles mark (at a side: it lies beyond); dotted: 1/√(nT), "
    "in the last panel n"
)


def draw_speedup(points: Sequence[SpeedupPoint]) -> Figure:
    """Draw four panels: against n at the theorem's and at the matched step, against T, Q/(nπ²)."""
    T, n = max(p.T for p in points), max(p.n for p in points)
    figure = _empty(list(dict.fromkeys(p.family for p in points)))
    theorem, matched, along, condition = figure.axes
    _averages(theorem, points, "n", rule=THEOREM, T=T)
    _averages(matched, points, "n", rule=MATCHED, T=T)
    _averages(along, points, "T", rule=THEOREM, n=n)
    _transients(along, [p for p in points if (p.n, p.T, p.rule) == (n, T, THEOREM)])
    _indicators(condition, [p for p in points if p.T == T and p.rule == THEOREM])
    limits = [axes.get_ylim() for axes in (theorem, matched)]
    for axes in (theorem, matched):  # so that the eye may compare them
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    theorem.set_title(f"the theorem's step, T = {T:,}", size=8)
    matched.set_title(f"the centralized step over nπ, T = {T:,}", size=8)
    along.set_title(f"the theorem's step, n = {n}", size=8)
    condition.set_title("the condition of Corollary 4.2", size=8)
    for axes, label in zip(figure.axes, (AVERAGE, "", AVERAGE, r"$Q/(n\pi^2)$"), strict=True):
        axes.set_ylabel(label, size=8)
    return figure


def _averages(axes: Axes, points: Sequence[SpeedupPoint], along: str, **where: object) -> None:
    """Draw every family against n or T, and the centralized method, whose rule is its own."""
    families = list(dict.fromkeys(p.family for p in points))
    for k, family in enumerate(families):
        wanted = where | {"rule": MATCHED} if family == CENTRALIZED else where
        line = [p for p in points if p.family == family and _fits(p, wanted)]
        x = [getattr(p, along) for p in line]
        _errors(axes, x, line, _line(k, family)["color"])
        axes.plot(
            x, [p.mean for p in line], zorder=1 if family == CENTRALIZED else 2, **_line(k, family)
        )
        for p, at in zip(line, x, strict=True):
            axes.plot(at, p.mean, zorder=3, **_mark(k, family, hollow=p.transient > p.T))
    reference = [
        p for p in points if p.family == CENTRALIZED and _fits(p, where | {"rule": MATCHED})
    ]
    x = [getattr(p, along) for p in reference]
    axes.plot(x, [1 / np.sqrt(p.n * p.T) for p in reference], color=INK, ls=":", lw=1)
    _dress(axes, x, "number of nodes n" if along == "n" else "number of steps T")


def _fits(point: SpeedupPoint, wanted: dict[str, object]) -> bool:
    return all(getattr(point, name) == value for name, value in wanted.items())


def _errors(axes: Axes, x: Sequence[float], line: Sequence[SpeedupPoint], colour: str) -> None:
    low, high = ([f(p.values) for p in line] for f in (np.min, np.max))
    axes.vlines(x, low, high, color=colour, lw=0.6, alpha=0.6)


def _transients(axes: Axes, points: Sequence[SpeedupPoint]) -> None:
    """Mark predicted transient times on the lower edge, those outside the picture at its side."""
    ends = axes.get_xlim()
    for k, p in enumerate(points):
        at = float(np.clip(p.transient, *ends))
        look = _mark(k, p.family, hollow=False) | {"marker": "^", "ms": 6}
        beyond = {"marker": ">"} if p.transient > ends[1] else {"marker": "<"}
        inside = ends[0] <= p.transient <= ends[1]
        look |= {} if inside else beyond
        height = 0.0 if inside else 0.05 + 0.05 * k
        axes.plot(at, height, transform=axes.get_xaxis_transform(), clip_on=False, **look)


def _indicators(axes: Axes, points: Sequence[SpeedupPoint]) -> None:
    families = list(dict.fromkeys(p.family for p in points))
    for k, family in enumerate(families):
        line = [p for p in points if p.family == family]
        x, y = [p.n for p in line], [p.indicator for p in line]
        axes.plot(x, y, **_line(k, family))
        axes.plot(x, y, ls="", **_mark(k, family, hollow=False))
    sizes = sorted({p.n for p in points})
    axes.plot(sizes, sizes, color=INK, ls=":", lw=1)
    _dress(axes, sizes, "number of nodes n")


def _line(k: int, family: str) -> dict[str, Any]:
    """Return a thin line, or for the yardstick a broad pale one for others to lie upon."""
    broad = family == CENTRALIZED
    return {"color": "#C8C8C8" if broad else COLOURS[k % len(COLOURS)], "lw": 5 if broad else 1}


def _mark(k: int, family: str, *, hollow: bool) -> dict[str, Any]:
    """Return a marker, smaller for later families: where they coincide all are seen."""
    if family == CENTRALIZED:
        return {"marker": "", **_line(k, family)}
    colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
    look = {"mfc": "white" if hollow else colour, "mec": colour, "mew": 0.9, "ms": 7 - 0.8 * k}
    return {"marker": marker, "color": colour, "lw": 1, **look}


def _empty(families: Sequence[str]) -> Figure:
    """Return two rows of panels, with the legend and the note below."""
    wide, tall = 2 * WIDTH, 440.0
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    foot = 24.0
    figure.set_layout_engine("constrained", rect=(0, foot / tall, 1, 1 - foot / tall), w_pad=5 / 72)
    notes = "\n".join(wrap(NOTE, int(wide / 3.6)))
    figure.text(0.5, 4 / tall, notes, size=7, ha="center", color=INK)
    handles = [
        Line2D([], [], label=family, **_mark(k, family, hollow=False))
        for k, family in enumerate(families)
    ]
    look: dict[str, Any] = {
        "loc": "outside lower center",
        "borderaxespad": (foot + 2) / 7,
        "borderpad": 0,
    }
    figure.legend(handles=handles, ncols=3, frameon=False, fontsize=7, **look)
    figure.subplots(2, 2)
    return figure


def _dress(axes: Axes, ticks: Sequence[float], label: str) -> None:
    axes.set(xscale="log", yscale="log", axisbelow=True)
    axes.set_xlabel(label, size=8, labelpad=2)
    axes.set_xticks(list(ticks), [f"{x:,}" for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if high < 100 * low:  # powers of ten alone would be one or two
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set(major_formatter="{x:g}", minor_formatter=NullFormatter())
    axes.tick_params(labelsize=7, which="both")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
