"""Curves as figures and pages draw them: mean, band, divergence, and the range of the axes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from digrad.results.trials import Curve, Floats, Key, Results

FEW = 4  # seeds up to which percentiles say no more than the extremes
BEYOND = 0.3  # of the range: how far a diverging line is followed out of it
ALONG = {
    "step": "step",
    "time": "time on the clock",
    "seconds": "seconds",
    "rounds": "gradients per node",
    "messages": "messages sent",
    "bytes": "bytes sent",
}


class DrawnCurve(NamedTuple):
    """A curve as drawn; NaN where there is no number."""

    curve: Curve
    x: Floats
    mean: Floats  # over all seeds, up to the first divergence
    rest: Floats  # over the trials that do not diverge, where these are not all
    low: Floats  # the band, of the trials that do not diverge
    high: Floats

    @classmethod
    def of(cls, curve: Curve, x: Floats, seeds: int) -> "DrawnCurve":
        """Return mean and band of a curve; the band is that of curves of so many seeds."""
        stay = curve.values[[step is None for step in curve.diverged_at]]
        low, high, rest = np.full((3, len(x)), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(stay):
                low, high = np.quantile(stay, (0.0, 1.0) if seeds <= FEW else (0.1, 0.9), axis=0)
                rest = stay.mean(axis=0) if curve.diverged else rest
        mean, rest = (np.where(np.isfinite(v), v, np.nan) for v in (curve.mean, rest))
        return cls(curve, x, mean, rest, low, high)


def place(curve: Curve, costs: Mapping[Key, Curve]) -> Floats:
    """Return what a curve had cost at each of its steps: the mean over its seeds."""
    cost = costs[curve.key]
    return np.interp(curve.steps, cost.steps, np.nanmean(cost.values, axis=0))


def fallen(curve: Curve) -> list[str]:
    """Say which trials diverged: their states, or only this metric, which squares them."""
    pairs = zip(curve.seeds, curve.diverged_at, strict=True)
    fell = [f"seed {seed} at step {at:,}" for seed, at in pairs if at is not None]
    for seed, at, values in zip(curve.seeds, curve.diverged_at, curve.values, strict=True):
        if at is None and np.isinf(values).any():
            first = curve.steps[np.isinf(values).argmax()]
            fell.append(f"seed {seed} grew beyond all numbers by step {first:,}")
    return fell


def axis_range(curves: Sequence[DrawnCurve], *, log: bool) -> tuple[float, float] | None:
    """Return the ends of the y axis, as powers of ten if it is logarithmic; None: no values.

    Curves that diverge are followed a little way out of the range of the others.
    """
    calm = [a.mean[a.mean <= a.mean[0]] if fallen(a.curve) else a.mean for a in curves]
    calm += [a.rest for a in curves]
    every = [values for a in curves for values in (a.mean, a.rest, a.low, a.high)]
    near, far = (scaled(np.concatenate(part), log=log) for part in (calm, every))
    if not len(near):
        return None
    room = BEYOND * max(np.ptp(near), 1.0 if log else np.abs(near).max())
    low, high = max(far.min(), near.min() - room), min(far.max(), near.max() + room)
    pad = 0.04 * (high - low) or 0.1
    return float(low - pad), float(high + pad)


def scaled(values: Floats, *, log: bool) -> Floats:
    """Return the values that have a place on an axis, as powers of ten if it is logarithmic."""
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    return np.asarray(np.log10(values) if log else values)


def notes(curves: Sequence[Curve]) -> list[str]:
    """Say what lines, bands and marks are."""
    few, *_, most = sorted(len(curve.seeds) for curve in [*curves] * 2)
    seeds = f"line: mean over {few if few == most else f'{few} to {most}'} seeds"
    band = "min to max" if most <= FEW else "10th to 90th percentile"
    parts = [seeds, f"band: {band}"] if most > 1 else ["one seed"]
    sizes = {curve.key.lr for curve in curves}
    parts += [f"step size {size_label(size)}" for size in sizes if len(sizes) == 1]
    parts += ["×: a trial diverged"] * any(curve.diverged for curve in curves)
    some = any(0 < curve.diverged < len(curve.seeds) for curve in curves)
    return parts + ["thin: mean over the others"] * some


def size_label(size: float) -> str:
    """Return what a step size is called."""
    return f"γ = {size:g}"


def in_order(trace: Results, first: str) -> list[str]:
    """Return the metrics of a trace, one of them before all others."""
    return sorted(trace.metrics, key=lambda metric: metric != first)
