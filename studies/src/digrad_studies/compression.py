"""Loss against bytes: S-PP with messages of different sizes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec
from digrad.results.trials import Results
from digrad.show.tables import Row
from digrad_studies.logistic import logistic

PLAIN = "S-PP"
CODES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "bf16": {"kind": "bf16"},
    "4 bits": {"kind": "nearest", "bits": 4},
    "2 bits": {"kind": "nearest", "bits": 2},
    "top 10 %": {"kind": "top-k", "k": 1, "block": 10},
    "top 1 %": {"kind": "top-k", "k": 1, "block": 100},
    "random 10 %": {"kind": "random-k", "k": 1, "block": 10},
    "sign": {"kind": "sign"},
}
METRIC = "gradient_norm"


def compression(quick: bool = False) -> Experiment:
    """Return nonconvex logistic regression as in Figure 2, S-PP with messages of all sizes.

    Minibatches of 16 and a step of 0.05 that stays: so the noise does not hide what compression
    does. Step sizes are the same for all; ζ is each compressor's own.
    """
    figure = logistic(quick)
    specs = (AlgorithmSpec("push-pull", name, compress=code) for name, code in CODES.items())
    return replace(
        figure,
        name="compression-quick" if quick else "compression",
        algorithms=tuple(specs),
        problem=replace(figure.problem, params={**figure.problem.params, "batch": 16}),
        schedule=KindSpec("constant"),
        steps=600 if quick else 4000,
        lr=(0.05,),
        seeds=(0,) if quick else (0, 1, 2),
        metrics_every=5 if quick else 10,
    )


def target_of(results: Results) -> float:
    """Return a value that the plain method reaches two thirds of the way, on every network."""
    ends = []
    for key, curve in results.curves(METRIC).items():
        if key.algorithm == PLAIN:
            mean = curve.mean[np.isfinite(curve.mean)]
            ends.append(float(mean[2 * len(mean) // 3]))
    return 1.1 * max(ends)


def bytes_to(results: Results, target: float) -> list[Row]:
    """Return a row per network and code: bytes and steps until the target, beside the plain ones.

    Of the mean over the seeds, at recorded steps; nothing where it is not reached.
    """
    curves, sent = results.curves(METRIC), results.curves("bytes")
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for key, curve in curves.items():
        below = np.flatnonzero(curve.mean <= target)
        if len(below):
            at = int(below[0])
            found[key.network, key.algorithm] = int(curve.steps[at]), float(sent[key].mean[at])
    rows: list[Row] = []
    for key in curves:
        steps, spent = found.get((key.network, key.algorithm), (None, None))
        plain = found.get((key.network, PLAIN), (0, 0.0))[1]
        rows.append(
            {
                "run": key.run,
                "network": key.network,
                "algorithm": key.algorithm,
                "seeds": len(curves[key].seeds),
                "diverged": curves[key].diverged,
                "bytes a step": _each(sent[key].mean, sent[key].steps),
                "steps": steps,
                "bytes": spent,
                "times fewer": None if spent is None else plain / spent,
            }
        )
    return rows


def _each(sent: Any, steps: Sequence[int] | Any) -> float:
    last = int(np.flatnonzero(np.isfinite(sent))[-1])
    return float(sent[last] / steps[last])
