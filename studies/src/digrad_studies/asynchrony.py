"""Does it pay to wait for nobody? Methods in time, each at its own best step.

S-PP, SGP, R-FAST, RASGP and AD-PSGD on logistic regression and on MNIST sorted by label, over
three networks, on four clocks: one node five times slower, the same with a fifth of all messages
lost, gradients whose times have a heavy tail, and equal nodes with messages that travel for three
gradients. AD-PSGD averages pairs and so runs on the two-way networks only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from digrad.base.metrics import TIMED, VALUES
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.results.trials import Key, Results, Trial

CLOCKS: dict[str, dict[str, Any]] = {
    "straggler": {"straggler": 5.0},
    "heavy tail": {"distribution": "heavy-tailed", "tail": 1.2, "spread": 0.5},
    "straggler, 20 % lost": {"straggler": 5.0, "loss": 0.2},
    "long links": {"latency": 5.0},
}
TWO_WAY = (
    NetworkSpec("undirected-ring", name="ring"),
    NetworkSpec("torus", name="torus"),
)
ONE_WAY = (NetworkSpec("multi-sub-ring", name="multi-sub-ring, one-way"),)
WAITING = (AlgorithmSpec("push-pull", name="S-PP"), AlgorithmSpec("sgp", name="SGP"))
UNWAITING = (AlgorithmSpec("r-fast", name="R-FAST"), AlgorithmSpec("rasgp", name="RASGP"))
PAIRS = (AlgorithmSpec("ad-psgd", name="AD-PSGD"),)


@dataclass(frozen=True)
class StudyPart:
    """One experiment of the study."""

    clock: str
    experiment: Experiment


def parts(quick: bool = False, data_dir: str = "", problem: str = "logistic") -> list[StudyPart]:
    """Return the experiments: what waits and what does not take other numbers of steps.

    A step of a method that waits takes as long as the slowest needs, about five rounds of the
    others with the straggler, so those get as many more rounds: the times are alike.
    """
    kind, steps, sizes = _setting(quick, data_dir, problem)
    found = []
    for name, clock in CLOCKS.items():
        for networks, pairs in ((TWO_WAY, PAIRS), (ONE_WAY, ())):
            for methods, longer in ((WAITING, 1), ((*UNWAITING, *pairs), 4)):
                label = f"{problem} {name} {networks[0].label} {'waiting' * (longer == 1)}"
                found.append(
                    StudyPart(
                        name,
                        Experiment(
                            name="-".join(label.replace(",", "").replace("%", "").split()),
                            networks=tuple(replace(net, n=16) for net in networks),
                            algorithms=_with_sizes(methods, sizes),
                            problem=kind,
                            steps=steps * longer,
                            lr=(),
                            seeds=(0,) if quick else (0, 1, 2),
                            metrics=("loss",) if quick else (),
                            metrics_every=max(1, steps * longer // 60),
                            clock=clock,
                        ),
                    )
                )
    return found


def _setting(
    quick: bool, data_dir: str, problem: str
) -> tuple[KindSpec, int, Mapping[str, tuple[float, ...]]]:
    """Return the problem, the steps of what waits, and the step sizes that are tried."""
    if problem == "mnist":
        data = {"data": "mnist", "model": "mlp", "split": "by-label", "batch": 8}
        data |= {"data_dir": data_dir, **({"samples": 1000} if quick else {})}
        rates = (0.01, 0.1) if quick else (0.003, 0.01, 0.03, 0.1)
        return KindSpec("images", data), 20 if quick else 600, _sizes(rates)
    size = {"dim": 20 if quick else 100, "samples": 100, "batch": 1}
    rates = (0.03, 0.3) if quick else (0.01, 0.03, 0.1, 0.3)
    return KindSpec("logistic", size), 80 if quick else 800, _sizes(rates)


def _sizes(rates: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """R-FAST steps with the share that it keeps, so its steps are larger by about the degree."""
    return {"": rates, "R-FAST": tuple(round(3 * rate, 6) for rate in rates)}


def _with_sizes(
    methods: Sequence[AlgorithmSpec], sizes: Mapping[str, tuple[float, ...]]
) -> tuple[AlgorithmSpec, ...]:
    return tuple(replace(m, lr=sizes.get(m.label, sizes[""])) for m in methods)


def together(clock: str, folders: Sequence[Path]) -> tuple[Results, float]:
    """Put the runs of one clock into one, each method with its best step alone, and the target."""
    whole = [Results.read(folder) for folder in folders]
    target = common_target(whole)
    read = [best(results, target) for results in whole]
    trials: list[Trial] = []
    rows, steps, columns = [], [], []
    for results in read:
        rows.append(results.trial + len(trials))
        steps.append(results.step)
        columns.append([results.columns[name] for name in (*VALUES, *TIMED)])
        trials += [t._replace(key=t.key._replace(run=clock)) for t in results.trials]
    joined = [np.concatenate(part) for part in zip(*columns, strict=True)]
    named = dict(zip((*VALUES, *TIMED), joined, strict=True))
    return Results(tuple(trials), np.concatenate(rows), np.concatenate(steps), named), target


def best(results: Results, target: float) -> Results:
    """Keep the step of each method on each network that comes to the target first.

    Where none does, the one whose mean loss is least at the end.
    """
    curves, kept = results.curves("loss"), dict[tuple[str, str], tuple[float, float, Key]]()
    times = results.curves("time")
    for key, curve in curves.items():
        when = _reached(curve, times[key], target)
        last = float(curve.mean[-1]) if not curve.diverged else np.inf
        rank = np.inf if when is None else when, last, key
        place = key.network, key.algorithm
        kept[place] = min(kept.get(place, rank), rank)
    wanted = {key for _, _, key in kept.values()}
    keep = np.array([trial.key in wanted for trial in results.trials])
    rows, place_of = keep[results.trial], np.cumsum(keep) - 1
    columns = {name: column[rows] for name, column in results.columns.items()}
    trials = tuple(trial for trial, fine in zip(results.trials, keep, strict=True) if fine)
    return Results(trials, place_of[results.trial[rows]], results.step[rows], columns)


def times_to(results: Results, target: float) -> list[dict[str, Any]]:
    """Return a row for each method on each network: its step, and when it reaches the target."""
    times, rows = results.curves("time"), []
    for key, curve in results.curves("loss").items():
        when = _reached(curve, times[key], target)
        rows.append(
            {
                "clock": key.run,
                "network": key.network,
                "algorithm": key.algorithm,
                "step": key.lr,
                "time": when,
                "loss": float(curve.mean[-1]),
            }
        )
    return rows


def _reached(curve: Any, times: Any, target: float) -> float | None:
    """Return when the mean over the seeds first is at the target or below."""
    there = np.flatnonzero(curve.mean <= target)
    return float(times.values[0, there[0]]) if len(there) else None


def common_target(runs: Sequence[Results]) -> float:
    """Return the loss at which 95 % of the way is done that the best method goes."""
    curves = [curve for results in runs for curve in results.curves("loss").values()]
    start = max(float(curve.mean[0]) for curve in curves)
    ends = [float(c.mean[-1]) for c in curves if np.isfinite(c.mean[-1]) and not c.diverged]
    end = min(ends)
    return end + 0.05 * (start - end)
