"""How a metric falls along a run: lines with bands, a panel per network."""

from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

from digrad.base.errors import ParameterError, lookup
from digrad.base.metrics import METRICS
from digrad.results.trials import Floats, Key, Results
from digrad.show.drawn_curves import ALONG, DrawnCurve, axis_range, notes, place, scaled
from digrad.show.figures.arrows import WIDTH
from digrad.show.figures.drawing import INK, title_size
from digrad.show.figures.styles import Style, arrange

MARKS = 6  # on a line, so that the algorithms differ in grey as well
ACROSS = 4  # panels side by side that still have room for numbers below
LEAST_PANEL = 95.0  # points
MOST_ENTRIES = 24  # in a legend


def draw_curves(
    trace: Results,
    metric: str = "gradient_norm",
    *,
    x: str = "step",
    counted: tuple[str, float] = ("step", 1),
    log: bool | None = None,
    columns: str = "",
    color_by: str = "",
    title: str = "",
    width: float | None = None,
) -> Figure:
    """Plot a metric along ``x``: the step, the messages or bytes sent, or the time on a clock.

    A line is the mean over the seeds, with a colour and marker per algorithm and a dash per
    step size. Where there are more than six step sizes, or more than twelve lines in a panel,
    step sizes are shades and each algorithm has panels of its own.

    A band goes from the least to the largest value, or for more than four seeds
    from the 10th to the 90th percentile. Where a trial diverges the line ends in a cross;
    line and band of the trials that do not diverge go on, thin. y is logarithmic, and what is
    not positive left out, if ``log`` is true, or None and the metric no accuracy.

    Args:
        trace: what was recorded.
        metric: what to draw.
        x: along what.
        counted: what steps are counted in, as ("tokens", 16384): its name, and how many a step is.
        log: whether y is logarithmic.
        columns: the field that has a panel for each value, or two of them: ``network``,
            ``algorithm``, ``lr``, ``run``, ``"network,algorithm"``.
        color_by: the field that colours tell.
        title: above all panels.
        width: in points; one column of a paper, or two where there are several panels.
    """
    xlabel, shown = lookup(ALONG, x, "x axis"), lookup({**METRICS, **trace.own}, metric, "metric")
    unit, each = counted if x == "step" else (xlabel, 1)
    log = bool(shown.log) if log is None else log
    lines = _lines(trace, metric, x, each, log=log)
    plan = arrange([line.curve.key for line in lines], columns, color_by)
    shape = _Shape(len(plan.panels), plan.across, width or WIDTH * min(2, len(plan.panels)))
    figure = _empty(title, shown.mathtext, shape, _handles(lines, plan.styles), _note(lines, trace))
    ends = axis_range(lines, log=log)
    limits = (0.1, 1.0) if ends is None else 10 ** np.clip(ends, -250, 250) if log else ends
    for axes, (panel, name) in zip(figure.axes, plan.panels.items(), strict=True):
        axes.set(yscale="log" if log else "linear", ylim=limits, axisbelow=True, xmargin=0.02)
        for line in lines:
            if plan.panel(line.curve.key) == panel:
                _draw(axes, line, plan.styles[line.curve.key])
        _dress(axes, name, unit, shape)
    return figure


def _lines(trace: Results, metric: str, x: str, each: float, *, log: bool) -> list[DrawnCurve]:
    """Return the curves along x; what a logarithmic axis has no place for is left out."""
    curves = trace.curves(metric)
    if x == "seconds" and x not in trace.columns:
        what = "no seconds recorded: only runs on real processes take them"
        raise ParameterError(what, hint="use digrad train; time is that of a clock")
    costs = {} if x == "step" else trace.curves(x)
    seeds = max(len(curve.seeds) for curve in curves.values())
    lines = []
    for key, curve in curves.items():
        if x != "step" and key not in costs:
            what = f"{key.algorithm} on {key.network}: no {x} recorded"
            raise ParameterError(what, hint="draw along the steps: x='step'")
        along = place(curve, costs) if costs else curve.steps.astype(np.float64)
        line, least = DrawnCurve.of(curve, each * along, seeds), 0 if log else -np.inf
        mean, rest = (np.where(v > least, v, np.nan) for v in (line.mean, line.rest))
        lines.append(line._replace(mean=mean, rest=rest))
    return lines


def _draw(axes: Axes, line: DrawnCurve, style: Style) -> None:
    look, (low, high) = style.look, axes.get_ylim()
    if len(line.curve.seeds) > 1:
        edges = line.low.clip(low, high), line.high.clip(low, high)
        axes.fill_between(line.x, *edges, color=look["color"], alpha=0.16, lw=0, label="band")
    there = np.flatnonzero(~np.isnan(line.mean))
    # Markers are even along x, at other places for each colour.
    even = line.x[0] + np.ptp(line.x) * (np.arange(MARKS) + (0.5 + 0.38 * style.hue) % 1) / MARKS
    marked = [int(there[k]) for k in np.searchsorted(line.x[there], even) if k < len(there)]
    # Or every point would be marked, and the last curve hide the others.
    if len(there) <= MARKS + 2:
        marked = there[style.hue % 3 :: 3].tolist() or there[-1:].tolist()
    axes.plot(line.x, line.mean, **look, label=style.label, markevery=marked)
    if not np.isnan(line.rest).all():
        axes.plot(line.x, line.rest, **look | {"linewidth": 0.6, "marker": ""}, label="rest")
    if line.curve.diverged and len(there):
        end = _end(line.x[there], line.mean[there], high, axes.get_yscale() == "log")
        cross = {"color": look["color"], "clip_on": False, "zorder": 4, "label": "cross"}
        axes.plot(*end, "x", markersize=6, markeredgewidth=1.6, **cross)


def _end(x: Floats, y: Floats, top: float, log: bool) -> tuple[float, float]:
    """Where a line stops, or leaves the panel before."""
    k = int(np.argmax(y > top))
    if k == 0:
        return x[-1], min(y[-1], top)
    before, edge, after = scaled(np.array([y[k - 1], top, y[k]]), log=log)
    return float(np.interp(edge, [before, after], x[k - 1 : k + 1])), top


def _handles(lines: list[DrawnCurve], styles: dict[Key, Style]) -> list[Line2D]:
    """Return what the legend shows: one entry per style, whatever the number of panels."""
    handles = []
    for style in sorted(set(styles.values())):
        group = [line for line in lines if styles[line.curve.key] == style]
        fell = [line.curve for line in group if line.curve.diverged]
        note = f" ({sum(c.diverged for c in fell)} of {sum(len(c.seeds) for c in fell)} diverged)"
        empty = all(np.isnan([line.mean, line.rest]).all() for line in group)
        label = style.label + note * bool(fell) + " (nothing to draw)" * empty
        handles.append(Line2D([], [], **style.look, label=label))
    if len(handles) <= MOST_ENTRIES:
        return handles
    some = np.linspace(0, len(handles) - 1, MOST_ENTRIES).round().astype(int)  # of a long scale
    return [handles[k] for k in some]


def _note(lines: list[DrawnCurve], trace: Results) -> str:
    """Say what lines and bands are: a figure travels without its docstring."""
    parts = notes([line.curve for line in lines])
    shown = {line.curve.key for line in lines}
    late = {key.run for key in trace.unfinished if key in shown}
    parts += [f"unfinished: ends at step {trace.planned[run]:,}" for run in sorted(late)]
    return "; ".join(part.replace(" ", "\xa0") for part in parts)  # lines break between them


class _Shape(NamedTuple):
    """How panels are laid out; lengths are in points."""

    panels: int
    across: int
    width: float

    @property
    def columns(self) -> int:
        """Panels side by side: as many as have room for numbers below, in rows of equal length."""
        most = max(1, min(ACROSS, int(self.width // LEAST_PANEL)))
        if 0 < self.across <= most:
            return self.across
        return -(-self.panels // -(-self.panels // most))

    @property
    def rows(self) -> int:
        return -(-self.panels // self.columns)


def _empty(title: str, ylabel: str, shape: _Shape, handles: list[Line2D], note: str) -> Figure:
    """Return a figure with panels side by side, in rows where they are many."""
    wide, rows = shape.width, shape.rows
    ncols, notes = _ncols(handles, wide), wrap(note, int(wide / 3.8))
    foot = 9 * len(notes) + 3  # in points, as all lengths
    high = 160.0 if rows == 1 else max(105.0, 160.0 - 15 * rows)
    tall = high * rows + 10 * -(-len(handles) // ncols) + 14 * bool(title) + foot + 20
    figure = Figure(figsize=(wide / 72, tall / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, foot / tall, 1, 1 - foot / tall), w_pad=5 / 72)
    if title:
        figure.suptitle(title, size=title_size(title, wide), color=INK)
    figure.text(0.5, 4 / tall, "\n".join(notes).replace("\xa0", " "), size=7, ha="center")
    look: dict[str, Any] = {"frameon": False, "fontsize": 7, "handlelength": 2.8, "borderpad": 0}
    look |= {"loc": "outside lower center", "borderaxespad": (foot + 2) / 7}
    for label in figure.legend(handles=handles, ncols=ncols, **look).get_texts():
        label.set_parse_math(False)
    grid = figure.subplots(rows, shape.columns, sharey=True, squeeze=False)
    for axes in grid.flat[shape.panels :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel, size=8)
    return figure


def _ncols(handles: list[Line2D], wide: float) -> int:
    """How many columns of the legend fit, if possible with whole algorithms in each."""
    lengths = [len(str(handle.get_label())) for handle in handles]
    block = len(handles) / len({handle.get_marker() for handle in handles})
    splits = {ncols: np.array_split(lengths, ncols) for ncols in range(1, len(handles) + 1)}
    fits = [n for n, s in splits.items() if n == 1 or sum(40 + 3.6 * max(p) for p in s) <= wide]
    tidy = max(n for n in fits if n == 1 or len(handles) / n % block == 0)
    chosen = tidy if 2 * tidy >= max(fits) else max(fits)
    lines = -(-len(handles) // chosen)
    return -(-len(handles) // lines)  # as many lines, of nearly the same length


def _dress(axes: Axes, name: str, xlabel: str, shape: _Shape) -> None:
    room, ticks = shape.width / shape.columns, 8 - min(shape.columns, ACROSS)
    axes.set_title(name, size=min(8.0, 1.9 * room / max(1, len(name))), parse_math=False)
    axes.set_xlabel(xlabel, size=8, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 2.5, 5, 10]))
    long = axes.get_xlim()[1] > 2e4
    axes.xaxis.set_major_formatter(EngFormatter(sep="") if long else "{x:,.0f}")
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and 1e-3 < low < high < min(1e4, 30 * low):  # no powers of ten
        ticks_at = LogLocator(subs=(2, 3, 5) if high > 8 * low else range(2, 10))
        axes.yaxis.set(minor_locator=ticks_at, major_formatter="{x:g}", minor_formatter="{x:g}")
    axes.tick_params(labelsize=7, which="both")
    axes.yaxis.get_offset_text().set_fontsize(7)
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
