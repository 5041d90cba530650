"""Jobs on several processes: workers do them, and this process stores what they send.

Workers come from a pool: processes on this machine, or the workers of a cluster. One process
writes, whatever their number, so files, their order and every byte are those of one process. A
worker that dies is named, and another continues its job from the last checkpoint.
"""

import logging
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from time import monotonic
from types import FunctionType
from typing import Any, Protocol

from digrad.base.errors import DigradError
from digrad.results.folder import JobFile, Store
from digrad.runs.planning import NOT_BY_NAME, Job, Overrides, Plan
from digrad.runs.worker import At, Failed, NotSentError, Order, Stored, Task

TRIES = 3  # workers that may die at one job
PATIENCE = 20.0  # seconds that interrupted workers have for their last checkpoint
LISTEN = 1.0  # seconds of waiting for a message before looking for free workers again

log = logging.getLogger("digrad")


class WorkerError(DigradError, RuntimeError):
    """Workers that died again and again."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What all jobs of a run share."""

    work: Plan
    device: str
    given: Overrides | None
    progress: Callable[[Job, int], None]
    checkpoint_seconds: float

    def pickled(self) -> bytes:
        """Pickle what workers need; networks as they are, since their files may change.

        Raises:
            NotSentError: where an object of the user's own cannot be pickled.
        """
        work = self.work
        given = replace(self.given or Overrides(), networks=dict(work.networks))
        described = {a.label for a in work.experiment.algorithms if a.algorithm not in NOT_BY_NAME}
        objects = {k: v for k, v in given.algorithms.items() if k not in described}
        by_name = work.experiment.problem.kind not in NOT_BY_NAME  # which workers make themselves
        given = replace(given, algorithms=objects, problem=None if by_name else given.problem)
        out = BytesIO()
        try:
            _Pickler(out).dump(Order(work.experiment, self.device, given, self.checkpoint_seconds))
        except Exception as error:  # whatever the user's own classes raise
            raise NotSentError(str(error)) from error
        return out.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Refuse classes and functions of the script that was started, or typed in."""
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the script itself")
        return NotImplemented


class Worker(Protocol):
    """A worker, as the process that stores sees it."""

    job: Job | None  # under way

    def assign(self, task: Task) -> None:
        """Let it do a job from where that stands."""

    def stop(self) -> None:
        """Let it send a checkpoint, and end."""

    def end(self) -> str:
        """End it, and say how it has ended."""


class Pool(Protocol):
    """Where workers come from, and their messages."""

    def hire(self) -> Worker | None:
        """Return one more worker; none if there is no other now."""

    def receive(self, seconds: float) -> tuple[Any, Any] | None:
        """Return a worker and its message, none of a worker that has died; wait at most so long."""

    def close(self) -> None:
        """Leave what all workers share."""


def run_on_workers(settings: Settings, store: Store, pool_for: Callable[[int], Pool]) -> None:
    """Do all jobs from where they stand, on several processes.

    Args:
        settings: what the jobs share.
        store: where they are kept.
        pool_for: from the number of jobs that are left to the pool of workers.
    """
    dispatcher = _Dispatcher(settings, store, pool_for)
    try:
        dispatcher.work()
    except BaseException:
        dispatcher.stop()
        raise
    finally:
        dispatcher.end()


class _Dispatcher:
    def __init__(self, settings: Settings, store: Store, pool_for: Callable[[int], Pool]) -> None:
        self._settings, self._store = settings, store
        self._files: dict[int, JobFile] = {}
        self._written = monotonic()
        self._died: Counter[int] = Counter()
        self._workers: list[Worker] = []
        self._left = self._unfinished()
        self._pool = pool_for(max(1, len(self._left)))

    def _unfinished(self) -> list[Job]:
        """Return the jobs that are not done, the largest first, so that none is left over."""
        left = []
        for job in self._settings.work.jobs:
            saved = self._store.job(job.index, job.made_by)
            if saved is not None:
                self._files[job.index] = saved
                self._settings.progress(job, saved.t)
            if saved is None or not saved.done:
                left.append(job)
        return sorted(left, key=lambda job: (-len(job.trials), job.index))

    def work(self) -> None:
        while self._left or any(worker.job for worker in self._workers):
            self._assign()
            if received := self._pool.receive(LISTEN):
                self._handle(*received)
        self._write()

    def _assign(self) -> None:
        while self._left:
            free = next((worker for worker in self._workers if worker.job is None), None)
            if free is None and (free := self._pool.hire()):
                self._workers.append(free)
            if free is None:
                return
            free.job = job = self._left.pop(0)
            free.assign(Task(job.index, job.made_by, self._files.get(job.index)))

    def _handle(self, worker: Worker, said: Any) -> None:
        if said is None:
            self._replace(worker)
        elif isinstance(said, At):
            self._settings.progress(self._settings.work.jobs[said.index], said.t)
        elif isinstance(said, Stored):
            self._keep(said.index, said.file)
            if said.file.done:
                worker.job = None
        elif isinstance(said, Failed):
            raise said.error

    def _keep(self, index: int, file: JobFile) -> None:
        self._store.save_job(index, file)
        self._files[index] = file
        if monotonic() - self._written > self._settings.checkpoint_seconds:
            self._write()

    def _write(self) -> None:
        self._store.write_metrics([self._files[k] for k in sorted(self._files)])
        self._written = monotonic()

    def _replace(self, worker: Worker) -> None:
        """Let another worker continue the job of one that has died."""
        self._workers.remove(worker)
        how, job = worker.end(), worker.job
        if job is None:
            return
        self._died[job.index] += 1
        kept = self._files.get(job.index)
        what = f"{worker} {how} at {job.algorithm} on {job.network}"
        if self._died[job.index] >= TRIES:
            hint = "look at its output above; where memory is short, take fewer workers"
            raise WorkerError(f"{what}, as did {TRIES - 1} before it", hint=hint)
        log.warning("%s; another goes on from step %d", what, kept.t if kept else 0)
        self._left.insert(0, job)

    def stop(self) -> None:
        """Let every worker send a checkpoint, and store it."""
        busy = [worker for worker in self._workers if worker.job]
        for worker in busy:
            worker.stop()
        end = monotonic() + PATIENCE
        while busy and monotonic() < end:
            received = self._pool.receive(0.1)
            if received is None:
                continue
            worker, said = received
            if isinstance(said, Stored):
                self._keep(said.index, said.file)
            elif said is None and worker in busy:
                busy.remove(worker)
        self._write()

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
        self._pool.close()
