"""Jobs on several processes: workers do them, this process keeps what they send.

One process writes, whatever the number of workers: they send what they have done, and the one
that holds the folder's lock stores it. So files, their order and every byte are those of one
process. A worker that dies is named, and another takes its job up from where it was stored.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from types import FunctionType
from typing import Any

from digrad.base.cores import usable_cores
from digrad.base.errors import DigradError, message
from digrad.runs.folder import JobFile, Store
from digrad.runs.planning import NOT_BY_NAME, Given, Job, Plan
from digrad.runs.worker import At, Failed, Order, Stop, Stored, Task, Unreadable

TRIES = 3  # workers that may die at one job
PATIENCE = 20.0  # seconds in which interrupted workers send where they are
MEMORY_EACH = 2**30  # bytes that a worker takes, half of them PyTorch's

log = logging.getLogger("digrad")


class WorkerError(DigradError, RuntimeError):
    """Workers that died again and again."""


class NotSentError(DigradError):
    """Objects that another process cannot be given."""


@dataclass(frozen=True, eq=False)
class Common:
    """What the jobs of a run have in common."""

    work: Plan
    device: str
    given: Given | None
    progress: Callable[[Job, int], None]
    checkpoint_seconds: float


def most_workers(work: Plan) -> int:
    """Return how many workers cores and memory allow; one where the nodes live on a GPU."""
    if work.problem.start().is_cuda or not sys.executable:
        return 1
    return max(1, min(usable_cores(), len(work.jobs), _available_memory() // MEMORY_EACH))


def share_out(common: Common, store: Store, workers: int) -> None:
    """Do all jobs from where they stand, on several processes."""
    team = _Team(common, store, workers)
    try:
        team.work()
    except BaseException:
        team.stop()
        raise
    finally:
        team.end()


class _Team:
    def __init__(self, common: Common, store: Store, workers: int) -> None:
        self._common, self._store = common, store
        self._files: dict[int, JobFile] = {}
        self._written = monotonic()
        self._died: Counter[int] = Counter()
        self._heard: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self._team: list[_Worker] = []
        self._hired = 0
        self._left = self._unfinished()
        self._size = max(1, min(workers, len(self._left)))
        threads = max(1, usable_cores() // self._size)
        self._order = _packed(common, threads), threads

    def _unfinished(self) -> list[Job]:
        """Return the jobs that are not done, the largest first, so that none is left over."""
        left = []
        for job in self._common.work.jobs:
            saved = self._store.job(job.index, job.made_by)
            if saved is not None:
                self._files[job.index] = saved
                self._common.progress(job, saved.t)
            if saved is None or not saved.done:
                left.append(job)
        return sorted(left, key=lambda job: (-len(job.trials), job.index))

    def work(self) -> None:
        """Do all jobs."""
        while self._left or any(worker.job for worker in self._team):
            self._hand_out()
            worker, said = self._heard.get()
            self._hear(worker, said)
        self._write()

    def _hand_out(self) -> None:
        while self._left:
            free = [worker for worker in self._team if worker.job is None]
            if not free and len(self._team) >= self._size:
                return
            if not free:
                self._hired += 1
                free = [_Worker(self._hired, *self._order, self._heard)]
                self._team += free
            job = self._left.pop(0)
            free[0].give(job, self._files.get(job.index))

    def _hear(self, worker: "_Worker", said: Any) -> None:
        jobs = self._common.work.jobs
        if said is None:
            self._bury(worker)
        elif isinstance(said, At):
            self._common.progress(jobs[said.index], said.t)
        elif isinstance(said, Stored):
            self._keep(said.index, said.file)
            if said.file.done:
                worker.job = None
        elif isinstance(said, Unreadable):
            raise NotSentError(said.reason)
        elif isinstance(said, Failed):
            raise said.error

    def _keep(self, index: int, file: JobFile) -> None:
        self._store.save_job(index, file)
        self._files[index] = file
        if monotonic() - self._written > self._common.checkpoint_seconds:
            self._write()

    def _write(self) -> None:
        self._store.write_metrics([self._files[k] for k in sorted(self._files)])
        self._written = monotonic()

    def _bury(self, worker: "_Worker") -> None:
        """Let another worker take up the job of one that has died."""
        self._team.remove(worker)
        job = worker.job
        if job is None:
            worker.end()
            return
        self._died[job.index] += 1
        kept = self._files.get(job.index)
        what = f"{worker} {worker.end()} at {job.algorithm} on {job.network}"
        if self._died[job.index] >= TRIES:
            hint = "look at its output above; where memory is short, take fewer workers"
            raise WorkerError(message(f"{what}, as did {TRIES - 1} before it", hint=hint))
        log.warning("%s; another goes on from step %d", what, kept.t if kept else 0)
        self._left.insert(0, job)

    def stop(self) -> None:
        """Let every worker send where it is, and keep that."""
        busy = [worker for worker in self._team if worker.job]
        for worker in busy:
            worker.send(Stop())
        end = monotonic() + PATIENCE
        while busy and monotonic() < end:
            try:
                worker, said = self._heard.get(timeout=0.1)
            except Empty:
                continue
            if isinstance(said, Stored):
                self._keep(said.index, said.file)
            elif said is None and worker in busy:
                busy.remove(worker)
        self._write()

    def end(self) -> None:
        """End all workers."""
        for worker in self._team:
            worker.end()


class _Worker:
    """A worker, as its parent sees it."""

    def __init__(
        self, number: int, order: bytes, threads: int, heard: "SimpleQueue[tuple[_Worker, Any]]"
    ) -> None:
        self._number = number
        self.job: Job | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from digrad.runs.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(threads),
            start_new_session=True,  # Ctrl-C is this process's to hear
        )
        Thread(target=self._listen, args=(heard,), daemon=True).start()
        self.send(order)

    def __str__(self) -> str:
        """Name it."""
        return f"worker {self._number} (process {self._process.pid})"

    def give(self, job: Job, saved: JobFile | None) -> None:
        """Let it do a job from where that stands."""
        self.job = job
        self.send(Task(job.index, job.made_by, saved))

    def send(self, said: object) -> None:
        """Tell it something; that it has died is heard elsewhere."""
        assert self._process.stdin is not None
        with suppress(OSError):
            pickle.dump(said, self._process.stdin)
            self._process.stdin.flush()

    def _listen(self, heard: "SimpleQueue[tuple[_Worker, Any]]") -> None:
        assert self._process.stdout is not None
        while True:
            try:
                said = pickle.load(self._process.stdout)
            except Exception:  # it has ended, perhaps in the middle of a word
                heard.put((self, None))
                return
            heard.put((self, said))

    def end(self) -> str:
        """End it, as a worker has nothing to put in order, and say how it has ended."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what it was not told any more
                assert pipe is not None
                pipe.close()
        return f"was killed by {_signal(-status)}" if status < 0 else f"ended with status {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment(threads: int) -> dict[str, str]:
    """Return what a worker finds in its environment: the parent's modules, its share of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    return os.environ | {name: str(threads) for name in names} | {"PYTHONPATH": path}


class _Pickler(pickle.Pickler):
    """Refuses what only this process knows."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse classes and functions of the script that was started, or typed in."""
        own = isinstance(obj, type | FunctionType) and obj.__module__ == "__main__"
        if own:
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the script itself")
        return NotImplemented


def _packed(common: Common, threads: int) -> bytes:
    """Write down what workers have to know; networks as they are, for their files may change."""
    work = common.work
    given = replace(common.given or Given(), networks=dict(work.networks))
    described = {a.label for a in work.experiment.algorithms if a.algorithm not in NOT_BY_NAME}
    objects = {k: v for k, v in given.algorithms.items() if k not in described}
    given = replace(given, algorithms=objects)
    order = Order(work.experiment, common.device, given, threads, common.checkpoint_seconds)
    out = BytesIO()
    try:
        _Pickler(out).dump(order)
    except Exception as error:  # whatever the user's own classes raise
        raise NotSentError(str(error)) from error
    return out.getvalue()


def _available_memory() -> int:
    """Return the bytes that can be taken without swapping; a lot where nobody says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines: Sequence[str] = file.readlines()
        found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 2**62
