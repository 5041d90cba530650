"""Results whose truth is known, without running anything."""

from collections.abc import Mapping, Sequence
from math import inf, nan

import numpy as np

from digrad.base.metrics import VALUES
from digrad.results.trials import Key, Results, Trial

Tables = Mapping[tuple[str, str], Mapping[float, Sequence[float]]]


def made(tables: Tables, metric: str = "loss", step: int = 10, run: str = "run") -> Results:
    """Results with one record: by (network, algorithm) and step size, a value for each seed.

    An infinite value is a trial that diverged at step 5.
    """
    trials, values = [], []
    for (network, algorithm), sizes in tables.items():
        for size, row in sizes.items():
            for seed, value in enumerate(row):
                fell = value == inf
                trials.append(Trial(Key(run, network, algorithm, size), seed, 5 if fell else None))
                values.append(1.0 if fell else value)
    steps = [0 if trial.diverged_at else step for trial in trials]
    columns = {name: np.full(len(trials), nan) for name in VALUES}
    columns[metric] = np.array(values, dtype=np.float64)
    return Results(tuple(trials), np.arange(len(trials)), np.array(steps), columns)
