"""What the interactive plot shows, as plain data: a line and a band per curve, both scales."""

from collections.abc import Callable, Collection, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from digrad.base.metrics import Metric
from digrad.results.trials import Curve, Floats, Integers, Key, Results
from digrad.show.figures.curves import ALONG, FEW

POINTS = 1_000  # of a curve: a screen has no more columns
ALL_POINTS = 60_000  # of all curves together: about 2 MB of digits
BEYOND = 0.3  # of the range: how far a diverging curve is followed out of it
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
        "sizes": [f"γ = {size:g}" for size in names.sizes],
        "views": {name: text for name, (text, _) in views.items()},
        "metrics": {
            metric: _metric(
                trace.metric(metric),
                [_thin(c, most) for c in curves.values()],
                names,
                views,
                places,
            )
            for metric, curves in every.items()
        },
        "along": {"step": ALONG["step"], **{name: COSTS[name] for name in places.costs}},
        "x": places.kept,
    }


def in_order(trace: Results, first: str) -> list[str]:
    """Return the metrics of a trace, one of them before all others."""
    return sorted(trace.metrics, key=lambda metric: metric != first)


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
        views[f"size {k}"] = (f"γ = {size:g}", lambda key, size=size: key.lr == size)  # type: ignore[misc]
    return views


def _metric(
    metric: Metric, curves: list[Curve], names: _Names, views: dict[str, View], places: "_Places"
) -> dict[str, Any]:
    ranges = {
        view: {scale: _range(shown, log=scale == "log") for scale in ("log", "linear")}
        for view, (_, fits) in views.items()
        if (shown := [curve for curve in curves if fits(curve.key)])
    }
    no_log = any(ends["log"] is None for ends in ranges.values())
    return {
        "label": metric.label,
        "scale": "log" if metric.log and not no_log else "linear",
        "range": ranges,
        "curves": [
            {
                **names.place(curve.key),
                "views": [view for view, (_, fits) in views.items() if fits(curve.key)],
                "x": places.of(curve),
                **_values(curve),
            }
            for curve in curves
        ],
    }


def note(trace: Results) -> str:
    """Say what lines, bands and marks are."""
    curves = [curve for metric in trace.metrics for curve in trace.curves(metric).values()]
    most = max(len(curve.seeds) for curve in curves)
    band = "smallest to largest" if most <= FEW else "10th to 90th percentile"
    parts = [f"line: mean over {most} seeds", f"band: {band}"] if most > 1 else ["one seed"]
    if any(curve.diverged for curve in curves):
        parts += ["×: a trial diverged", "thin: mean over the trials that did not"]
    if max(len(curve.steps) for curve in curves) > POINTS:
        parts.append(f"of many records about {POINTS:,} are drawn")
    return "; ".join(parts)


class _Places:
    """Where curves have their points: each list of numbers once, however many share it."""

    def __init__(self, trace: Results, keys: Sequence[Key]) -> None:
        there = [
            name
            for name in COSTS
            if name in trace.columns and not np.isnan(trace.columns[name]).all()
        ]
        costs = {name: trace.curves(name) for name in there}
        self.costs = {name: curves for name, curves in costs.items() if set(keys) <= set(curves)}
        self.kept: list[list[float]] = []
        self._index: dict[bytes, int] = {}

    def of(self, line: Curve) -> dict[str, int]:
        """Return the number of the list of steps, and of messages and bytes at these steps."""
        found = {"step": self._number(line.steps.astype(np.float64))}
        for name, curves in self.costs.items():
            cost = curves[line.key]
            sent = np.nanmean(cost.values, axis=0)
            found[name] = self._number(np.interp(line.steps, cost.steps, sent))
        return found

    def _number(self, values: Floats) -> int:
        found = self._index.setdefault(values.tobytes(), len(self.kept))
        if found == len(self.kept):
            self.kept.append([int(x) if x == int(x) else x for x in values.tolist()])
        return found


def _thin(curve: Curve, most: int) -> Curve:
    if len(curve.steps) <= most:
        return curve
    kept: Integers = np.unique(np.linspace(0, len(curve.steps) - 1, most).astype(np.int64))
    steps, values = curve.steps[kept], curve.values[:, kept]
    return Curve(curve.key, curve.seeds, curve.diverged_at, steps, values)


def _stay(curve: Curve) -> Floats:
    return curve.values[[step is None for step in curve.diverged_at]]


def _band(curve: Curve) -> Floats:
    stay, ends = _stay(curve), (0.0, 1.0) if len(curve.seeds) <= FEW else (0.1, 0.9)
    return np.asarray(np.quantile(stay, ends, axis=0))


def _values(curve: Curve) -> dict[str, Any]:
    """Return the line, and where there are any: the band, the mean of the rest, who fell."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: dict[str, Any] = {"mean": _digits(curve.mean), "seeds": len(curve.seeds)}
        if len(curve.seeds) > 1 and len(_stay(curve)):
            found["low"], found["high"] = map(_digits, _band(curve))
        if fell := fallen(curve):
            found["fell"] = fell[:6] + [f"and {len(fell) - 6} more"] * (len(fell) > 6)
        if curve.diverged and len(_stay(curve)):
            found["rest"] = _digits(_stay(curve).mean(axis=0))
    return found


def fallen(curve: Curve) -> list[str]:
    """Say which trials diverged: their states, or only this metric, which squares them."""
    pairs = zip(curve.seeds, curve.diverged_at, strict=True)
    fell = [f"seed {seed} at step {at:,}" for seed, at in pairs if at is not None]
    for seed, at, values in zip(curve.seeds, curve.diverged_at, curve.values, strict=True):
        if at is None and np.isinf(values).any():
            first = curve.steps[np.isinf(values).argmax()]
            fell.append(f"seed {seed} grew beyond all numbers by step {first:,}")
    return fell


def _digits(values: Floats) -> list[float | None]:
    """Five digits are more than a screen shows; None where there is no number."""
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in values.tolist()]


def _words(name: str) -> str:
    """Return a name so that plotly, which knows tags and templates, shows it as it is."""
    short = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
    return escape(short).replace("%{", "%&#123;")


def _range(curves: Sequence[Curve], *, log: bool) -> list[float] | None:
    """Return the ends of the axis, as powers of ten if it is logarithmic; None: nothing to show.

    Curves that diverge are followed a little way out of the range of the others.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        means = [curve.mean for curve in curves]
        pairs = list(zip(curves, means, strict=True))
        calm = [mean[~(mean > mean[0])] if fallen(c) else mean for c, mean in pairs]
        every = [*means, *(_band(c).ravel() for c in curves if len(_stay(c)))]
    near, far = (_scaled(np.concatenate(part), log) for part in (calm, every))
    if not len(near):
        return None
    room = BEYOND * max(float(np.ptp(near)), 1.0 if log else float(np.abs(near).max()))
    low, high = max(far.min(), near.min() - room), min(far.max(), near.max() + room)
    pad = 0.05 * (high - low) or 0.1
    return [float(low - pad), float(high + pad)]


def _scaled(values: Floats, log: bool) -> Floats:
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    return np.asarray(np.log10(values) if log else values)
