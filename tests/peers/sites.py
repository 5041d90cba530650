"""Nodes of a run as processes of this machine, with their hub: to kill, stop and start them."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import tomli_w
import torch

from digrad.base.files import plain_bytes, toml_of
from digrad.optim.tensor_files import read_tensors
from digrad.problems import Quadratic
from digrad_peers.local import local_run
from engines.ranks import SETTINGS
from peers.nursery import Child, nursery
from train.hosts import Hosts

PATIENCE = 400.0  # seconds: eight processes import PyTorch on two cores, which may be busy
DIM = 6
EXPERIMENT = """
name = "faults"
steps = {steps}
lr = [{lr}]
dtype = "float64"
metrics_every = {every}
[problem]
kind = "quadratic"
dim = 6
condition = 3.0
sigma = {sigma}
[[networks]]
topology = "exponential"
n = {n}
[[algorithms]]
algorithm = "{algorithm}"
"""

Process = subprocess.Popen[bytes] | Child


class Site:
    """Some nodes of a run and its hub; a ``with`` block ends them all.

    Args:
        n: how many nodes.
        experiment: what is put into ``EXPERIMENT``, or a whole one.
        absent: nodes that are not started yet.
        hosts: one for each node; the hub shares that of the first.
        fresh: whether every process is a new interpreter, which takes seconds; on hosts it is.
        options: of the membership file.
    """

    def __init__(
        self,
        folder: Path,
        n: int,
        experiment: dict[str, Any] | str,
        topology: str,
        absent: Sequence[str],
        hosts: Hosts | None,
        fresh: bool,
        **options: Any,
    ) -> None:
        self.hosts, self._fresh = hosts, fresh or hosts is not None
        self._epochs, self._read = list[dict[str, Any]](), 0
        self.folder, self.names = folder, [f"n{k}" for k in range(n)]
        usual = {"steps": 10**7, "every": 5, "n": n, "lr": 0.2, "sigma": 0.0}
        if isinstance(experiment, dict):
            experiment = EXPERIMENT.format(**usual | {"algorithm": "push-pull"} | experiment)
        (folder / "experiment.toml").write_text(experiment)
        options = {"experiment": "experiment.toml", "timeout": 30.0, "grace": 1.0} | options
        network = {"topology": topology}
        self.file, self.membership = local_run(folder, self.names, network, **options)
        if hosts is not None:
            self._spread_out(hosts)
        self.hub = self.open_hub()
        self.nodes = {name: self.start(name) for name in self.names if name not in absent}

    def _spread_out(self, hosts: Hosts) -> None:
        table = toml_of(plain_bytes(self.file))
        for host, name in enumerate(self.names):
            address = f"{hosts.address(host)}:7001"
            table["nodes"][name] |= {"address": address, "listen": address}
        address = f"{hosts.address(0)}:7000"
        table["hub"] |= {"address": address, "listen": address}
        self.file.write_text(tomli_w.dumps(table))

    def open_hub(self) -> Process:
        history = ["--history", str(self.folder / "history.jsonl")]
        return self._process("hub", "hub", str(self.file), *history)

    def start(self, name: str, *more: str) -> Process:
        """Start a node, perhaps once more."""
        out = ["--out", str(self.folder / "out"), *more]
        return self._process(name, "peers", str(self.file), "--node", name, *out)

    def _process(self, name: str, *words: str) -> Process:
        path = self.folder / f"{name}.log"
        path.touch()
        if not self._fresh:
            return nursery().start(list(words), path)
        there: list[str] = []
        if self.hosts is not None:
            there = self.hosts.command(self.names.index(name) if name in self.names else 0)
        with path.open("ab") as log:
            return subprocess.Popen(
                [*there, sys.executable, "-m", "digrad", *words],
                env={**os.environ, **SETTINGS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def epochs(self) -> list[dict[str, Any]]:
        """What the hub has decided so far."""
        path = self.folder / "history.jsonl"
        if path.exists() and path.stat().st_size > self._read:
            with path.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]  # the last line may be only half there
            self._epochs += map(json.loads, whole.splitlines())
            self._read += len(whole) + bool(whole)
        return self._epochs

    def wait_until(self, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, (self.epochs()[-3:], self.logs())
            time.sleep(0.02)

    def epoch_of(self, name: str) -> int:
        """The last epoch in which a node has taken a step, as far as it has written it down."""
        path = self.folder / "out" / f"{name}.csv"
        if not path.exists():
            return -1
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 500))
            lines = file.read().decode().split("\n")[:-1]  # the last may be only half there
        last = lines[-1].split(",") if lines else []
        return int(last[2]) if len(last) == 6 and last[2].isdigit() else -1

    def all_in(self, names: Sequence[str], epoch: int, seconds: float = PATIENCE) -> int:
        """Wait until nodes have taken steps in an epoch, or one after it; return the least."""
        self.wait_until(lambda: min(map(self.epoch_of, names)) >= epoch, seconds)
        return min(map(self.epoch_of, names))

    def logs(self) -> dict[str, str]:
        every = [self.folder / f"{name}.log" for name in (*self.names, "hub")]
        return {path.stem: path.read_text()[-500:] for path in every if path.exists()}

    def rows(self, name: str) -> list[dict[str, str]]:
        """What a node has recorded so far; a row may be only half there."""
        path = self.folder / "out" / f"{name}.csv"
        text = path.read_text() if path.exists() else ""
        return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))

    def model(self, name: str) -> torch.Tensor:
        return read_tensors(self.folder / "out" / f"{name}.safetensors")[0]["x"]

    def __enter__(self) -> "Site":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (*self.nodes.values(), self.hub):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def site(
    folder: Path,
    n: int,
    experiment: dict[str, Any] | str | None = None,
    topology: str = "exponential",
    absent: Sequence[str] = (),
    hosts: Hosts | None = None,
    fresh: bool = False,
    **options: Any,
) -> Site:
    return Site(folder, n, experiment or {}, topology, absent, hosts, fresh, **options)


def optimum(n: int, left: Sequence[int]) -> torch.Tensor:
    """The minimiser of the quadratics of some nodes."""
    whole = Quadratic.generate(n, DIM, condition=3.0, sigma=0.0, dtype=torch.float64)
    return Quadratic(whole.A[list(left)], whole.b[list(left)]).optimum()
