"""An experiment on real processes: the loop of the simulator, the nodes spread over ranks.

Only rank 0 reads the experiment and touches the run folder, so the machines need no common
file system. At each record it collects the state of all nodes, measures and stores it as the
simulator does: a run begun by one of them can be ended by the other, or on other ranks.
"""

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from digrad.engines.processes.engine import Processes
from digrad.engines.processes.routes import bounds_of
from digrad.runs.execute import Progress, carry_out
from digrad.runs.experiment import Experiment, load_experiment, parse_experiment, to_table
from digrad.runs.folder import RunFolder
from digrad.runs.launches import Launch, launcher
from digrad.runs.metrics import Gauge
from digrad.runs.planning import Job, Plan, plan, resolved
from digrad.runs.ranks import Council, Ranks
from digrad.runs.scalars import Scalars


class Clocked(Processes):
    """Real processes, and the time spent in exchanges with the others."""

    seconds: float = 0.0

    def pull(self, rows: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        """R X."""
        begun = perf_counter()
        mixed = super().pull(rows, out=out)
        self.seconds += perf_counter() - begun
        return mixed

    def push(self, rows: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        """C X."""
        begun = perf_counter()
        mixed = super().push(rows, out=out)
        self.seconds += perf_counter() - begun
        return mixed


def train(
    experiment: Experiment | str | Path,
    out: str | Path | None = None,
    *,
    device: str = "cpu",
    resume: bool = False,
    message_dtype: torch.dtype | None = None,
    timeout: float = 300.0,
    shared_memory: bool | Literal["auto"] = "auto",
    tensorboard: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run an experiment on the ranks of the default process group; every rank must call it.

    Args:
        experiment: an experiment or its file; what rank 0 gives counts.
        out: the run folder, on rank 0's machine; ``runs/NAME`` by default.
        device: where this rank's nodes live.
        resume: go on with the run in the folder, if there is one. Workers that torchrun starts
            again do so by themselves.
        message_dtype: what rows are rounded to when they travel.
        timeout: seconds to wait for another rank, which may be measuring or writing.
        shared_memory: whether ranks of one machine exchange rows through memory.
        tensorboard: whether to write scalars into the folder too.
        progress: called at every record, with the job and the number of steps, on every rank.

    Raises:
        SharedError: what went wrong on another rank, before the first step.
        PeerError: another rank ended, hangs or stopped.
    """
    council = Council(timeout)
    short = str(message_dtype).removeprefix("torch.") if message_dtype else ""
    if tensorboard:
        council.told(Scalars.check)
    said = council.told(lambda: _prepare(experiment, out, resume, short))
    stored, folder = parse_experiment(said["experiment"]), RunFolder(Path(said["folder"]))
    work = council.together(lambda: _checked(plan(stored, device), council.world))
    with ExitStack() as open_engines:
        engines = _engines(work, message_dtype, timeout, shared_memory)
        for engine in engines.values():
            open_engines.enter_context(engine)
        council.told(lambda: _begin(folder, stored, short))
        jobs = [_spread(job, engines[job.network], message_dtype) for job in work.jobs]
        scalars = Scalars(folder.path / "tensorboard") if tensorboard and council.first else None
        place = Ranks(council, scalars)
        carry_out(Plan(stored, jobs), folder, place, progress or _silent)
    return folder.path


def _silent(job: Job, t: int) -> None:
    """Report nothing."""


def _prepare(
    experiment: Experiment | str | Path, out: str | Path | None, resume: bool, short: str
) -> dict[str, Any]:
    """Decide, on rank 0, what is run and into which folder."""
    asked = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    folder = RunFolder(Path(out) if out is not None else Path("runs") / asked.name)
    begun = os.path.exists(folder.path / "experiment.toml")
    before = Launch.read(folder.path)
    again = before.launcher != "" and before.launcher == _launcher()
    stored = folder.check(resolved(asked), resume=begun and (resume or again))
    if begun:
        before.refuse_other_messages(short)
    return {"experiment": to_table(stored), "folder": str(folder.path)}


def _begin(folder: RunFolder, stored: Experiment, short: str) -> None:
    # The launch first: whoever finds an experiment must also find out whether it is its own.
    Launch(_launcher(), short).write(folder.path)
    folder.begin(stored)


def _launcher() -> str:
    return launcher(os.environ, os.getppid())


def _checked(work: Plan, world: int) -> Plan:
    """Refuse more ranks than nodes on all ranks at once."""
    bounds_of(work.jobs[0].net.n, world)
    return work


def _engines(
    work: Plan,
    message_dtype: torch.dtype | None,
    timeout: float,
    shared_memory: bool | Literal["auto"],
) -> dict[str, Clocked]:
    """Connect the ranks once for each network."""
    start = work.jobs[0].recursion.problem.start()
    said = json.dumps(to_table(work.experiment), sort_keys=True)
    about = {
        "experiment": _digest(said.encode()),
        "start": _digest(start.cpu().numpy().tobytes()),
    }
    networks = {job.network: job.net for job in work.jobs}
    return {
        name: Clocked(
            net,
            device=start.device,
            dtype=start.dtype,
            message_dtype=message_dtype,
            timeout=timeout,
            shared_memory=shared_memory,
            about=about,
        )
        for name, net in networks.items()
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _spread(job: Job, engine: Clocked, message_dtype: torch.dtype | None) -> Job:
    """Put a job on real processes; steps that wait for others cannot be fused."""
    recursion = replace(job.recursion, engine=engine, blocks=False, compiled=False)
    return replace(job, recursion=recursion, gauge=_rounded(job.gauge, message_dtype))


def _rounded(gauge: Gauge, message_dtype: torch.dtype | None) -> Gauge:
    """Count the bytes of vectors that travel in another type; single numbers never do."""
    start = gauge.problem.start()
    if message_dtype is None or len(start) == 1:
        return gauge
    spared = gauge.messages_per_step * len(start) * (start.itemsize - message_dtype.itemsize)
    return replace(gauge, bytes_per_step=gauge.bytes_per_step - spared)
