"""An experiment on real processes: the loop of the simulator, the nodes spread over ranks.

Only rank 0 reads the experiment and touches the run folder, so the machines need no common
file system. At each record it collects the state of all nodes, measures and stores it as the
simulator does: a run begun by one of them can be ended by the other, or on other ranks.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from digrad.algorithms.contract import Algorithm
from digrad.base.errors import ParameterError
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.routes import bounds_of
from digrad.results.experiment import Experiment, load_experiment, parse_experiment, to_table
from digrad.results.folder import RunFolder
from digrad.results.launches import Launch, WallClock, launcher
from digrad.results.lock import locked
from digrad.results.run_state import announce_progress
from digrad.runs.loop import CHECKPOINT_SECONDS, Progress, carry_out, silent
from digrad.runs.planning import Plan, plan, resolve_defaults
from digrad.runs.ranks import Coordinator, Distributed, Scalars


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
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    allow: Callable[[Experiment], None] = lambda experiment: None,
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
        checkpoint_seconds: how often what is done is stored.
        allow: called on rank 0 before anything of the user's own is loaded; raises to forbid it.

    Raises:
        SharedError: what went wrong on another rank, before the first step.
        PeerError: another rank ended, hangs or stopped.
    """
    together = Coordinator(timeout)
    short = str(message_dtype).removeprefix("torch.") if message_dtype else ""
    if tensorboard:
        together.on_first(Scalars.check)
    said = together.on_first(lambda: _prepare(experiment, out, resume, short, allow))
    stored = replace(
        parse_experiment(said["experiment"]), folders=tuple(map(Path, said["folders"]))
    )
    folder = RunFolder(Path(said["folder"]))
    work = together.on_all(
        lambda: _checked(plan(stored, device, message_dtype=message_dtype), together.world)
    )
    with ExitStack() as until_the_end:
        engines = connect(work, message_dtype, timeout, shared_memory)
        for engine in engines.values():
            until_the_end.enter_context(engine)
        together.on_first(lambda: until_the_end.enter_context(locked(folder.path)))
        together.on_first(lambda: _begin(folder, work, short))
        scalars = Scalars(folder.path / "tensorboard") if tensorboard and together.first else None
        wall = WallClock(folder.path) if together.first else None
        execution = Distributed(together, engines, scalars, wall)
        tell = progress or silent
        if together.first:
            tell = until_the_end.enter_context(announce_progress(folder.path, stored, tell))
        carry_out(work, folder, execution, tell, checkpoint_seconds)
    return folder.path


def _prepare(
    experiment: Experiment | str | Path,
    out: str | Path | None,
    resume: bool,
    short: str,
    allow: Callable[[Experiment], None],
) -> dict[str, Any]:
    """Decide, on rank 0, what is run and into which folder."""
    asked = experiment if isinstance(experiment, Experiment) else load_experiment(experiment)
    allow(asked)
    folder = RunFolder(Path(out) if out is not None else Path("runs") / asked.name)
    begun = os.path.exists(folder.path / "experiment.toml")
    before = Launch.read(folder.path)
    again = before.launcher != "" and before.launcher == _launcher()
    stored = folder.check(resolve_defaults(asked), resume=begun and (resume or again))
    if begun:
        before.refuse_other_messages(short)
    folders = [str(path.absolute()) for path in asked.folders]
    return {"experiment": to_table(stored), "folders": folders, "folder": str(folder.path)}


def _begin(folder: RunFolder, work: Plan, short: str) -> None:
    # The launch first: whoever finds an experiment must also find out whether it is its own.
    Launch(_launcher(), short).write(folder.path)
    folder.begin(work.experiment, work.networks, work.code)


def _launcher() -> str:
    return launcher(os.environ, os.getppid())


def _checked(work: Plan, world: int) -> Plan:
    """Refuse more ranks than nodes, and methods without steps, on all ranks at once."""
    bounds_of(work.problem.nodes, world)
    for job in work.jobs:
        if not isinstance(job.method, Algorithm):
            what = f"{job.algorithm} is asynchronous, and training on processes goes in steps"
            raise ParameterError(what, hint="simulate it: digrad run FILE")
    return work


def connect(
    work: Plan,
    message_dtype: torch.dtype | None,
    timeout: float,
    shared_memory: bool | Literal["auto"],
) -> dict[str, Processes]:
    """Connect the ranks once for each network."""
    start, made_by = work.problem.start(), work.jobs[0].made_by
    about = {name: text for name, text in made_by.items() if name not in ("job", "network")}
    return {
        name: Processes(
            net,
            device=start.device,
            dtype=start.dtype,
            message_dtype=message_dtype,
            timeout=timeout,
            shared_memory=shared_memory,
            about=about,
        )
        for name, net in work.networks.items()
    }
