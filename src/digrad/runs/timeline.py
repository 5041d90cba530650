"""When nodes compute and wait in a run with a clock: computed again from its folder."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from digrad.algorithms import Method
from digrad.base.errors import ParameterError
from digrad.base.own_code import is_own
from digrad.networks import AnyNetwork, as_any
from digrad.results.experiment import Experiment, load_experiment
from digrad.results.folder import JobFile, RunFolder
from digrad.runs.planning import NOT_BY_NAME, clock_of, method_of
from digrad.runs.timing import Lane, MessageSizes, timing

GRADIENTS = 8  # that a picture shows of a node without bad luck, about


class Timeline(NamedTuple):
    """The lanes of all nodes."""

    network: str
    algorithm: str
    lanes: list[Lane]
    until: float


def timelines(folder: str | Path, until: float = 0.0) -> list[Timeline]:
    """Return a timeline for each network and algorithm of a run.

    Args:
        folder: of the run; methods that are classes of the user's own are passed over.
        until: where to stop; after some gradients by default.
    """
    store = RunFolder(Path(folder))
    experiment = load_experiment(store.path / "experiment.toml")
    clock = clock_of(experiment)
    if clock is None:
        what = f"{folder} has no clock, so it has no timeline"
        raise ParameterError(what, hint="put [clock] into the experiment and run it")
    n = _network(store, experiment, experiment.networks[0].label).n
    some = clock.compute_times(np.repeat(np.arange(n), 20), np.tile(np.arange(20), n))
    end = until or GRADIENTS * float(np.median(some))
    found, seen = [], set[tuple[str, str]]()
    for job in store.jobs():
        network, algorithm, *_ = job.labels[0]
        if (network, algorithm) not in seen:
            seen.add((network, algorithm))
            spec = next(a for a in experiment.algorithms if a.label == algorithm)
            if not is_own(spec.algorithm) and spec.algorithm not in NOT_BY_NAME:
                method, net = method_of(experiment, spec), _network(store, experiment, network)
                lanes = timing(method, net, clock, _sizes(method, job)).lanes(end)
                found.append(Timeline(network, algorithm, lanes, end))
    return found


def _network(store: RunFolder, experiment: Experiment, label: str) -> AnyNetwork:
    place = [spec.label for spec in experiment.networks].index(label)
    net = store.network(place)
    if net is None:
        raise ParameterError(f"{store.path} does not hold the network {label}")
    return as_any(net)


def _sizes(method: Method[Any], job: JobFile) -> MessageSizes:
    rows = job.answers if job.answers is not None else next(iter(job.state.values()))
    bits = method.row_bits(rows.shape[-1], 8 * rows.itemsize)
    return MessageSizes(-(-bits // 8), rows.itemsize)
