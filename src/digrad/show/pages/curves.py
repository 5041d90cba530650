"""What the interactive plot shows, as plain data: a line and a band per curve, both scales."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import numpy as np

from digrad.base.metrics import Metric
from digrad.results.trials import Curve, Floats, Integers, Key, Results
from digrad.show.drawn_curves import (
    ALONG,
    DrawnCurve,
    axis_range,
    fallen,
    in_order,
    notes,
    place,
    size_label,
)

POINTS = 1_000  # of a curve: a screen has no more columns
ALL_POINTS = 60_000  # of all curves together: about 2 MB of digits
COSTS = {name: text for name, text in ALONG.items() if name != "step"}
LONGEST = 48  # letters of a name that there is room for


def plot_data(trace: Results, best: Collection[Key] = (), first: str = "") -> dict[str, Any]:
    """Return every metric of a trace for ``page.plot``; names are escaped for plotly.

    Where there are more than ``POINTS`` records, evenly chosen ones are kept.

    Args:
        trace: what was recorded.
        best: the best step size of each method; the first view shows these alone.
        first: the metric that is shown first.
    """
    every = {metric: trace.curves(metric) for metric in in_order(trace, first)}
    keys = list(dict.fromkeys(key for curves in every.values() for key in curves))
    most = max(2, min(POINTS, ALL_POINTS // max(1, sum(map(len, every.values())))))
    names = _Names.of(keys)
    views = _views(names, best)
    places = _Places(trace, keys)
    return {
        "networks": [_words(name) for name in names.networks],
        "methods": [_words(name) for name in names.methods],
        "sizes": [size_label(size) for size in names.sizes],
        "views": {name: text for name, (text, _) in views.items()},
        "metrics": {
            name: _metric(trace.metric(name), _thinned(curves, most), names, views, places)
            for name, curves in every.items()
        },
        "along": {"step": ALONG["step"], **{name: COSTS[name] for name in places.costs}},
        "x": places.kept,
    }


class _Names(NamedTuple):
    """What curves are called, in the order in which they are shown."""

    networks: list[str]
    methods: list[str]
    sizes: list[float]
    several_runs: bool

    @classmethod
    def of(cls, keys: Sequence[Key]) -> "_Names":
        several = len({key.run for key in keys}) > 1
        networks = list(dict.fromkeys(key.network for key in keys))
        methods = list(dict.fromkeys(_method(key, several) for key in keys))
        return cls(networks, methods, sorted({key.lr for key in keys}, reverse=True), several)

    def place(self, key: Key) -> dict[str, int]:
        """Return the numbers of a key's network, method and step size."""
        method = self.methods.index(_method(key, self.several_runs))
        size = self.sizes.index(key.lr)
        return {"network": self.networks.index(key.network), "method": method, "size": size}


def _method(key: Key, several_runs: bool) -> str:
    return f"{key.run}, {key.algorithm}" if several_runs else key.algorithm


View = tuple[str, Callable[[Key], bool]]


def _views(names: _Names, best: Collection[Key]) -> dict[str, View]:
    """Return what can be looked at: what it is called, and which curves it shows."""
    if len(names.sizes) == 1:
        return {"all": ("every step size", lambda key: True)}
    views: dict[str, View] = {}
    if best:
        views["best"] = ("the best of each method", lambda key: key in best)
    views["all"] = ("every step size", lambda key: True)
    for k, size in enumerate(names.sizes):
        views[f"size {k}"] = (size_label(size), lambda key, size=size: key.lr == size)  # type: ignore[misc]
    return views


def _metric(
    metric: Metric, curves: list[Curve], names: _Names, views: dict[str, View], places: "_Places"
) -> dict[str, Any]:
    seeds = max(len(curve.seeds) for curve in curves)
    lines = [DrawnCurve.of(curve, curve.steps.astype(np.float64), seeds) for curve in curves]
    ranges = {
        view: {scale: axis_range(shown, log=scale == "log") for scale in ("log", "linear")}
        for view, (_, fits) in views.items()
        if (shown := [line for line in lines if fits(line.curve.key)])
    }
    no_log = any(ends["log"] is None for ends in ranges.values())
    return {
        "label": metric.label,
        "scale": "log" if metric.log and not no_log else "linear",
        "range": ranges,
        "curves": [
            {
                **names.place(line.curve.key),
                "views": [view for view, (_, fits) in views.items() if fits(line.curve.key)],
                "x": places.of(line.curve),
                **_values(line),
            }
            for line in lines
        ],
    }


def note(trace: Results) -> str:
    """Say what lines, bands and marks are."""
    curves = [curve for metric in trace.metrics for curve in trace.curves(metric).values()]
    many = max(len(curve.steps) for curve in curves) > POINTS
    return "; ".join([*notes(curves), *[f"of many records about {POINTS:,} are drawn"] * many])


class _Places:
    """Where curves have their points: each list of numbers once, however many share it."""

    def __init__(self, trace: Results, keys: Sequence[Key]) -> None:
        known = [name for name in COSTS if name in trace.columns]
        there = [name for name in known if not np.isnan(trace.columns[name]).all()]
        costs = {name: trace.curves(name) for name in there}
        self.costs = {name: curves for name, curves in costs.items() if set(keys) <= set(curves)}
        self.kept: list[list[float]] = []
        self._index: dict[bytes, int] = {}

    def of(self, line: Curve) -> dict[str, int]:
        """Return the number of the list of steps, and of messages and bytes at these steps."""
        found = {"step": self._number(line.steps.astype(np.float64))}
        for name, costs in self.costs.items():
            found[name] = self._number(place(line, costs))
        return found

    def _number(self, values: Floats) -> int:
        found = self._index.setdefault(values.tobytes(), len(self.kept))
        if found == len(self.kept):
            self.kept.append([int(x) if x == int(x) else x for x in values.tolist()])
        return found


def _values(line: DrawnCurve) -> dict[str, Any]:
    """Return the line, and where there are any: the band, the mean of the rest, who fell."""
    curve = line.curve
    found: dict[str, Any] = {"mean": _digits(line.mean), "seeds": len(curve.seeds)}
    stay = curve.diverged < len(curve.seeds)
    if len(curve.seeds) > 1 and stay:
        found["low"], found["high"] = _digits(line.low), _digits(line.high)
    if fell := fallen(curve):
        found["fell"] = fell[:6] + [f"and {len(fell) - 6} more"] * (len(fell) > 6)
    if curve.diverged and stay:
        found["rest"] = _digits(line.rest)
    return found


def _thinned(curves: Mapping[Key, Curve], most: int) -> list[Curve]:
    """Keep so many points of each curve, evenly chosen."""
    thin = []
    for curve in curves.values():
        count = len(curve.steps)
        kept: Integers = np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
        thin.append(replace(curve, steps=curve.steps[kept], values=curve.values[:, kept]))
    return thin


def _digits(values: Floats) -> list[float | None]:
    """Five digits are more than a screen shows; None where there is no number."""
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in values.tolist()]


def _words(name: str) -> str:
    """Return a name so that plotly, which knows tags and templates, shows it as it is."""
    short = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
    return escape(short).replace("%{", "%&#123;")
