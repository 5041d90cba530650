"""What the tests of workers, near and far, have in common."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.results.folder import RunFolder

SMALL = Experiment(
    networks=(NetworkSpec("star", n=5), NetworkSpec("exponential", n=5)),
    algorithms=(AlgorithmSpec("push-pull"), AlgorithmSpec("sgp")),
    problem=KindSpec("quadratic", {"dim": 3, "sigma": 0.5}),
    steps=40,
    lr=(0.1, 0.05),
    seeds=(0, 4),
    metrics_every=6,
)
LONG = replace(SMALL, steps=1500, metrics_every=50)
OFTEN = {"checkpoint_seconds": -1.0}  # a checkpoint at every record


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def steps_of(out: Path) -> dict[int, int]:
    """How far the jobs in a folder are."""
    found = ((k, RunFolder(out).job(k)) for k in range(4))
    return {k: file.t for k, file in found if file is not None}


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.02)
