"""How a metric falls along a run: lines with bands, a panel per network."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from digrad.errors import ParameterError, lookup, message
from digrad.figures.arrows import WIDTH
from digrad.figures.drawing import COLOURS, INK, MARKERS
from digrad.trace import Curve, Floats, Integers, Key, Trace

# Solid, dashed, dotted and so on, in units of the line's width.
DASHES = ("-", (0, (3.5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (8, 1.5, 3, 1.5)))
MARKS = 6  # on a line, so that the algorithms differ in grey as well
FEW = 4  # seeds up to which percentiles say no more than the extremes
ACROSS = 4  # panels side by side that still have room for numbers below
BEYOND = 0.3  # of the others' range: how far a diverging line is followed out of it
LABELS = {
    "gradient_norm": r"gradient norm $\|\nabla f(\hat{x})\|$",
    "loss": r"loss $f(\hat{x})$",
    "gap": r"optimality gap $f(\hat{x}) - f^{\star}$",
    "consensus": "consensus error",
    "tracking": "tracking error",
    "accuracy": "accuracy",
}
ALONG = {"step": "step", "messages": "messages sent", "bytes": "bytes sent"}


class Line(NamedTuple):
    """A curve as drawn; NaN where nothing is."""

    curve: Curve
    x: Floats
    mean: Floats  # over all seeds, up to the first divergence
    rest: Floats  # over the trials that do not diverge, from there on
    low: Floats
    high: Floats


class Style(NamedTuple):
    """How a line looks, and the words for it."""

    label: str
    hue: int  # number of its colour and marker
    dash: int


def draw_curves(
    trace: Trace,
    metric: str = "gradient_norm",
    *,
    x: str = "step",
    log: bool | None = None,
    columns: str = "network",
    title: str = "",
) -> Figure:
    """Plot a metric: a line for the mean over the seeds, a band for their spread.

    A colour and marker per algorithm, a dash per step size. The band goes from the least to
    the largest value, or for more than four seeds from the 10th to the 90th percentile. The
    line ends in a cross where a trial diverges, and goes on thin for the trials that do not.

    Args:
        x: ``step``, ``messages`` or ``bytes``.
        log: whether y is logarithmic, where what is not positive is left out; None: unless
            the metric is the accuracy.
        columns: the field of ``Key`` that has a panel for each of its values.
    """
    lookup(dict.fromkeys(Key._fields), columns, "kind of columns")
    log = metric != "accuracy" if log is None else log
    lines = _lines(trace, metric, x, log)
    styles = _styles([line.curve.key for line in lines], columns)
    panels: dict[str | float, list[Line]] = {}
    for line in lines:
        panels.setdefault(getattr(line.curve.key, columns), []).append(line)
    figure = _empty(title, len(panels), _handles(lines, styles), _note(lines))
    limits = _limits(lines, log)
    for axes, (name, group) in zip(figure.axes, panels.items(), strict=True):
        axes.set(yscale="log" if log else "linear", ylim=limits)
        for line in group:
            _draw(axes, line, styles[line.curve.key])
        axes.set_title(name if isinstance(name, str) else f"γ = {name:g}", size=8, parse_math=False)
        _dress(axes, x)
    figure.axes[0].set_ylabel(LABELS[metric], size=8)
    return figure


def _lines(trace: Trace, metric: str, x: str, log: bool) -> list[Line]:
    lookup(LABELS, metric, "metric")
    lookup(ALONG, x, "x axis")
    curves = trace.curves(metric)
    costs = {} if x == "step" else trace.curves(x)
    band = (0.0, 1.0) if max(len(curve.seeds) for curve in curves.values()) <= FEW else (0.1, 0.9)
    lines = []
    for key, curve in curves.items():
        along = curve.steps.astype(np.float64)
        if x != "step" and key not in costs:
            what = f"{key.algorithm} on {key.network} has no {x}"
            raise ParameterError(message(what, hint="draw along the steps, or select others"))
        if x != "step":
            along = np.interp(along, costs[key].steps, np.nanmean(costs[key].values, axis=0))
        lines.append(_line(curve, along, band, log))
    return lines


def _line(curve: Curve, x: Floats, band: tuple[float, float], log: bool) -> Line:
    stays = np.array([step is None for step in curve.diverged_at])[:, None]
    first = min((step for step in curve.diverged_at if step is not None), default=np.inf)
    mean = np.where(curve.steps < first, curve.mean, np.nan)
    left = np.where((curve.steps < first) | stays, curve.values, np.nan)
    left = np.sort(np.where(np.isfinite(left), left, np.nan), axis=0)  # NaN last
    count = np.isfinite(left).sum(axis=0)
    low, high = (_quantile(left, count, q) for q in band)
    rest = np.nansum(left, axis=0) / np.where(count, count, np.nan)
    rest[np.isfinite(mean)] = np.nan
    for values in (mean, rest):
        values[~np.isfinite(values) | (log & (values <= 0))] = np.nan
    return Line(curve, x, mean, rest, low, high)


def _quantile(ordered: Floats, count: Integers, q: float) -> Floats:
    """NumPy's quantile of the numbers at the top of each column; NaN if there are none."""
    place = q * (count - 1)
    ends = np.stack([np.floor(place), np.ceil(place)]).astype(np.int64)
    below, above = np.take_along_axis(ordered, ends, axis=0)
    return np.asarray(below + (place - ends[0]) * (above - below))


def _styles(keys: list[Key], columns: str) -> dict[Key, Style]:
    """Colours for what differs within a panel, dashes for the step sizes."""
    many = {name: len({getattr(key, name) for key in keys}) > 1 for name in Key._fields}
    fields = [name for name in ("run", "network") if many[name]] + ["algorithm"]
    words = [[getattr(key, name) for name in fields if name != columns] for key in keys]
    sizes = sorted({key.step_size for key in keys}, reverse=True)
    hues = list(dict.fromkeys(map(tuple, words)))
    dashed = many["step_size"] and columns != "step_size"
    styles = {}
    for key, word in zip(keys, words, strict=True):
        hue, label = hues.index(tuple(word)), ", ".join(word + [f"γ = {key.step_size:g}"] * dashed)
        dash = sizes.index(key.step_size) if dashed else hue
        styles[key] = Style(label or key.network, hue, dash)
    return styles


def _limits(lines: list[Line], log: bool) -> tuple[float, float]:
    """The range of all lines and bands, but of those that diverge only the beginning."""
    calm = [line.mean if line.curve.diverged == 0 else line.mean[:1] for line in lines]
    calm += [line.rest for line in lines]
    every = [values for line in lines for values in (line.mean, line.low, line.high)]
    near, far = (_scaled(np.concatenate(part), log) for part in (calm, every))
    if not len(near):
        return 0.1, 1.0
    room = BEYOND * np.ptp(near)
    low, high = max(far.min(), near.min() - room), min(far.max(), near.max() + room)
    pad = 0.04 * (high - low) or 0.1
    ends = np.array([low - pad, high + pad])
    low, high = 10 ** ends.clip(-300, 300) if log else ends
    return float(low), float(high)


def _scaled(values: Floats, log: bool) -> Floats:
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    return np.asarray(np.log10(values) if log else values)


def _look(style: Style) -> dict[str, Any]:
    hue, dash = style.hue % len(COLOURS), style.dash % len(DASHES)
    line = {"color": COLOURS[hue], "linestyle": DASHES[dash], "linewidth": 1.1}
    mark = {"marker": MARKERS[style.hue % len(MARKERS)], "markersize": 3.8}
    return line | mark | {"markeredgecolor": "white", "markeredgewidth": 0.4}


def _draw(axes: Axes, line: Line, style: Style) -> None:
    look, (low, high) = _look(style), axes.get_ylim()
    if len(line.curve.seeds) > 1:
        edges = line.low.clip(low, high), line.high.clip(low, high)
        axes.fill_between(line.x, *edges, color=look["color"], alpha=0.16, lw=0, label="band")
    there = np.flatnonzero(~np.isnan(line.mean))
    x, y = line.x[there], line.mean[there]
    # Markers are even along x, at other places for each colour.
    even = (np.arange(MARKS) + (0.5 + 0.38 * style.hue) % 1) / MARKS
    marked = np.unique(np.searchsorted(x, line.x[0] + even * np.ptp(line.x)))
    places = [int(k) for k in marked if k < len(x)] or [0]
    axes.plot(x, y, **look, label=style.label, markevery=places)
    if not np.isnan(line.rest).all():
        axes.plot(line.x, line.rest, **look | {"lw": 0.6, "marker": ""}, label="rest")
    if line.curve.diverged and len(x):
        end = next(iter(np.flatnonzero((y < low) | (y > high))), -1)  # where it leaves the panel
        cross = {"color": look["color"], "clip_on": False, "zorder": 4, "label": "cross"}
        axes.plot(x[end], y[end].clip(low, high), "x", markersize=6, markeredgewidth=1.6, **cross)


def _handles(lines: list[Line], styles: dict[Key, Style]) -> list[Line2D]:
    """Return what the legend shows: one entry per style, whatever the number of panels."""
    handles = []
    for style in sorted(set(styles.values()), key=lambda style: style[1:]):
        group = [line for line in lines if styles[line.curve.key] == style]
        fell = [line.curve for line in group if line.curve.diverged]
        note = f" ({sum(c.diverged for c in fell)} of {sum(len(c.seeds) for c in fell)} diverged)"
        empty = all(np.isnan([line.mean, line.rest]).all() for line in group)
        label = style.label + note * bool(fell) + " (no value > 0)" * empty
        handles.append(Line2D([], [], **_look(style), label=label))
    return handles


def _note(lines: list[Line]) -> str:
    """Say what lines and bands are: a figure travels without its docstring."""
    counts = sorted({len(line.curve.seeds) for line in lines})
    if counts[-1] == 1:
        return "one seed"
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    band = "least to largest" if counts[-1] <= FEW else "10th to 90th percentile"
    cross = "; ×: a trial diverged" if any(line.curve.diverged for line in lines) else ""
    thin = ", thin line: the others" if not all(np.isnan(line.rest).all() for line in lines) else ""
    return f"line: mean over {seeds} seeds; band: {band}{cross}{thin}"


def _empty(title: str, panels: int, handles: list[Line2D], note: str) -> Figure:
    rows = -(-panels // ACROSS)
    across = -(-panels // rows)
    wide = WIDTH * min(2, panels)
    entry = 40 + 3.7 * max(len(str(handle.get_label())) for handle in handles)
    ncols = max(1, int(wide // entry))
    deep = 10 * -(-len(handles) // ncols)
    total = 150 * rows + 45 + deep + 14 * bool(title)
    figure = Figure(figsize=(wide / 72, total / 72), dpi=200, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0, 12 / total, 1, 1 - 12 / total))
    if title:
        figure.suptitle(title, size=min(9.0, 1.7 * wide / len(title)), color=INK)
    figure.text(0.5, 4 / total, note, size=7, color=INK, ha="center")
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        bbox_to_anchor=(0, 12 / total, 1, 1),
        ncols=ncols,
        frameon=False,
        fontsize=7,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.subplots(rows, across, sharey=True, squeeze=False)
    for axes in figure.axes[panels:]:
        axes.remove()
    return figure


def _dress(axes: Axes, x: str) -> None:
    axes.set_xlabel(ALONG[x], size=8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}" if x == "step" else EngFormatter(sep=""))
    axes.tick_params(labelsize=7, which="both")
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02)
