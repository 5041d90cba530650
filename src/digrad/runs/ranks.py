"""The ranks of a process group as one run: they decide together, and rank 0 keeps the record."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import PrefixStore

from digrad.algorithms.contract import Algorithm
from digrad.base.errors import DigradError, ParameterError
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.faults import PeerError, next_corner
from digrad.engines.processes.handshake import exchange_hellos
from digrad.optim.loggers import Writer
from digrad.results.folder import JobFile, Store
from digrad.results.launches import WallClock
from digrad.runs.events import Loop
from digrad.runs.execution import Execution, Numbers
from digrad.runs.planning import Job
from digrad.runs.recursion import Recursion, RunPosition

T = TypeVar("T")


class SharedError(DigradError):
    """What went wrong on another rank; all of them know it, so one of them may say it."""


class Coordinator:
    """Decisions that all ranks take together, by short texts in the process group's store.

    Args:
        timeout: seconds to wait for the others.
    """

    def __init__(self, timeout: float) -> None:
        if not dist.is_initialized():
            hint = "call torch.distributed.init_process_group() first, under torchrun"
            raise ParameterError("there is no process group", hint=hint)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.first = self.rank == 0
        self._timeout, self._rounds = timeout, 0
        base = dist.distributed_c10d._get_default_store()
        self._store, _ = next_corner(base, "digrad/together", self.rank, timeout)

    def on_first(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0 only; every rank gets what came of it, as JSON gives it back."""
        return json.loads(self._settled(lambda: json.dumps(work()) if self.first else "null")[0])

    def on_all(self, work: Callable[[], T]) -> T:
        """Do something on every rank; if it fails on one, it fails on all."""
        made: list[T] = []

        def do() -> str:
            made.append(work())
            return ""

        self._settled(do)
        return made[0]

    def _settled(self, work: Callable[[], str]) -> list[str]:
        said, own = {}, None
        try:
            said["said"] = work()
        except Exception as error:
            own = error
            kind = "" if isinstance(error, DigradError | OSError) else f"{type(error).__name__}: "
            said["error"] = f"{kind}{error}"
        self._rounds += 1
        corner = PrefixStore(str(self._rounds), self._store)
        came = exchange_hellos(corner, self.rank, self.world, said, self._timeout)
        failed = [rank for rank, one in enumerate(came) if "error" in one]
        if not failed:
            return [one["said"] for one in came]
        if own is not None and failed[0] == self.rank:
            raise own
        text = came[failed[0]]["error"]
        raise SharedError(text if failed[0] == 0 else f"rank {failed[0]}: {text}")


class Scalars:
    """Writes for TensorBoard what is recorded, a curve for each trial, and seconds per step.

    ``seconds/communication`` is the time spent in exchanges, waiting included.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Writer] = {}
        self._last = (0, 0.0, 0.0)  # steps, time and seconds of exchanges at the last record
        self._arrived = (0.0, 0.0)

    @staticmethod
    def check() -> None:
        """Raise if TensorBoard is not installed, before the work starts."""
        if find_spec("tensorboard") is None:
            hint = "pip install 'digrad[tensorboard]'"
            raise ParameterError("TensorBoard is not installed", hint=hint)

    def arrived(self, engine: Any) -> None:
        """Stop the clock: measuring is not part of a step."""
        self._arrived = perf_counter(), engine.seconds

    def write(
        self,
        labels: Sequence[tuple[str, str, float, int]],
        names: Sequence[str],
        engine: Any,
        t: int,
        numbers: Numbers,
    ) -> None:
        """Write one record of all trials of a job: metrics by their names."""
        times = self._times(t)
        for label, row in zip(labels, numbers.tolist(), strict=True):
            writer = self._writer(label)
            for tag, value in (*zip(names, row, strict=True), *times.items()):
                if value == value:  # what has no meaning for a problem is not a number
                    writer.add_scalar(tag, value, t)
            writer.flush()
        self._last = t, perf_counter(), engine.seconds

    def _times(self, t: int) -> dict[str, float]:
        before, since, exchanging = self._last
        if t <= before or since == 0.0:
            return {}
        whole = (self._arrived[0] - since) / (t - before)
        communication = (self._arrived[1] - exchanging) / (t - before)
        return {
            "seconds/step": whole,
            "seconds/communication": communication,
            "seconds/compute": whole - communication,
        }

    def _writer(self, label: tuple[str, str, float, int]) -> Writer:
        network, algorithm, size, seed = label
        name = re.sub(r"[^\w.+-]+", "-", f"{network} {algorithm} step {size:g} seed {seed}")
        if name not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[name] = SummaryWriter(str(self._folder / name))
        return self._writers[name]


class Distributed(Execution):
    """Some nodes here, the others on other ranks; see ``digrad.runs.execution.Execution``."""

    def __init__(
        self,
        together: Coordinator,
        engines: Mapping[str, Processes],
        scalars: Scalars | None = None,
        wall: WallClock | None = None,
    ) -> None:
        super().__init__(side_by_side=1)  # all ranks take up the same job
        self.writes = together.first
        self._together, self._processes, self._scalars = together, engines, scalars
        self._wall = wall

    def make_loop(self, job: Job) -> Recursion:
        """Return the job on its processes; steps that wait for others cannot be fused."""
        engine = self._processes[job.network]
        if self._wall is not None:
            self._wall.begin()
        assert isinstance(job.method, Algorithm)  # ``train`` refuses others
        return Recursion(job.method, engine, job.problem, job.scaled, job.schedule)

    def load(self, store: Store, job: Job) -> JobFile | None:
        """Read it on rank 0, and hand its state to all."""
        found: list[JobFile | None] = []

        def look() -> dict[str, Any] | None:
            found.append(store.job(job.index, job.made_by))
            return None if found[0] is None else _header(found[0])

        said = self._together.on_first(look)
        if said is None:
            return None
        kind = torch.empty(0, dtype=job.problem.start().dtype).numpy().dtype
        state = found[0].state if found and found[0] else {}
        arrays = {
            name: _broadcast(state.get(name), shape, kind) for name, shape in said["state"].items()
        }
        if found:
            return found[0]
        ends, head = np.array(said["diverged_at"], dtype=np.int64), (said["t"], said["done"])
        none, steps = np.empty(0), np.empty(0, dtype=np.int64)
        return JobFile(job.labels, *head, none, steps, ends, arrays, None, job.made_by)

    def own_rows(self, loop: Loop, whole: RunPosition) -> RunPosition:
        """Cut out this rank's rows, laid out as a step leaves them."""
        rows = loop.engine.rows
        return _each(whole, lambda v: v[..., rows, :].contiguous())

    def all_rows(self, loop: Loop, own: RunPosition) -> RunPosition:
        if self._wall is not None:
            self._wall.arrived()
        if self._scalars is not None:
            self._scalars.arrived(loop.engine)
        whole = _each(own, _processes(loop).gather)
        return whole if self.writes else own

    def at_all_nodes(self, loop: Loop, holds: Tensor) -> Tensor:
        x, nodes = loop.problem.start(), len(loop.engine.nodes)
        votes = holds.to(x)[:, None, None].expand(-1, nodes, 1).contiguous()
        return _processes(loop).gather(votes).bool().flatten(1).all(dim=1)

    def after_record(self, job: Job, loop: Loop, t: int, numbers: Numbers) -> None:
        if self._wall is not None:
            self._wall.note(job.labels, t)
        if self._scalars is not None:
            self._scalars.write(job.labels, job.evaluator.names, loop.engine, t, numbers)


def _processes(loop: Loop) -> Processes:
    assert isinstance(loop.engine, Processes)
    return loop.engine


def _each(moment: RunPosition, change: Callable[[Tensor], Tensor]) -> RunPosition:
    values = [None if v is None else change(v) for v in moment.state]
    return RunPosition(moment.t, type(moment.state)(*values))


def _header(job: JobFile) -> dict[str, Any]:
    """Say what the other ranks have to know of a stored job, but for its numbers."""
    return {
        "t": job.t,
        "done": job.done,
        "diverged_at": job.diverged_at.tolist(),
        "state": {name: list(array.shape) for name, array in job.state.items()},
    }


def _broadcast(array: NDArray[Any] | None, shape: list[int], kind: Any) -> NDArray[Any]:
    """Send an array from rank 0, which has it, to all others."""
    sent = np.empty(shape, dtype=kind) if array is None else np.ascontiguousarray(array)
    if prod(shape):
        try:
            dist.broadcast(torch.from_numpy(sent), src=0)
        except RuntimeError as error:
            what = f"the stored state did not reach all ranks: {error}"
            raise PeerError(what, hint="look at the output of the others") from error
    return sent
