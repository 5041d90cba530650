"""Jobs on several processes: workers do them, this process keeps what they send.

Where the workers are is their crew's to know: on this machine, or on those of a cluster.

One process writes, whatever the number of workers: they send what they have done, and the one
that holds the folder's lock stores it. So files, their order and every byte are those of one
process. A worker that dies is named, and another takes its job up from where it was stored.
"""

import logging
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from time import monotonic
from types import FunctionType
from typing import Any, Protocol

from digrad.base.errors import DigradError, message
from digrad.results.folder import JobFile, Store
from digrad.runs.planning import NOT_BY_NAME, Job, Overrides, Plan
from digrad.runs.worker import At, Failed, Order, Stored, Unreadable

TRIES = 3  # workers that may die at one job
PATIENCE = 20.0  # seconds in which interrupted workers send where they are
LISTEN = 1.0  # seconds of waiting for a word before looking around again

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
    given: Overrides | None
    progress: Callable[[Job, int], None]
    checkpoint_seconds: float


class Worker(Protocol):
    """A worker, as the team sees it."""

    job: Job | None  # what it is doing

    def give(self, job: Job, saved: JobFile | None) -> None:
        """Let it do a job from where that stands."""
        ...

    def stop(self) -> None:
        """Let it send where it is, and end."""
        ...

    def end(self) -> str:
        """End it, and say how it has ended."""
        ...


class Crew(Protocol):
    """Where workers come from, and how they are heard."""

    def hire(self, team: Sequence[Any]) -> Worker | None:
        """Return one more than those given; none where there is no other now."""
        ...

    def hear(self, seconds: float) -> tuple[Any, Any] | None:
        """Return a worker and its word, none of a worker that has died; wait at most so long."""
        ...

    def close(self) -> None:
        """Let go of what is common to all workers."""
        ...


def share_out(common: Common, store: Store, crew_for: Callable[[int], Crew]) -> None:
    """Do all jobs from where they stand, on several processes.

    Args:
        common: what the jobs have in common.
        store: where they are kept.
        crew_for: from the number of jobs that are left to those who will do them.
    """
    team = _Team(common, store, crew_for)
    try:
        team.work()
    except BaseException:
        team.stop()
        raise
    finally:
        team.end()


class _Team:
    def __init__(self, common: Common, store: Store, crew_for: Callable[[int], Crew]) -> None:
        self._common, self._store = common, store
        self._files: dict[int, JobFile] = {}
        self._written = monotonic()
        self._died: Counter[int] = Counter()
        self._team: list[Worker] = []
        self._left = self._unfinished()
        self._crew = crew_for(max(1, len(self._left)))

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
            if heard := self._crew.hear(LISTEN):
                self._hear(*heard)
        self._write()

    def _hand_out(self) -> None:
        while self._left:
            free = next((worker for worker in self._team if worker.job is None), None)
            if free is None:
                free = self._crew.hire(self._team)
                if free is None:
                    return
                self._team.append(free)
            job = self._left.pop(0)
            free.give(job, self._files.get(job.index))

    def _hear(self, worker: Worker, said: Any) -> None:
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

    def _bury(self, worker: Worker) -> None:
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
            worker.stop()
        end = monotonic() + PATIENCE
        while busy and monotonic() < end:
            heard = self._crew.hear(0.1)
            if heard is None:
                continue
            worker, said = heard
            if isinstance(said, Stored):
                self._keep(said.index, said.file)
            elif said is None and worker in busy:
                busy.remove(worker)
        self._write()

    def end(self) -> None:
        """End all workers."""
        for worker in self._team:
            worker.end()
        self._crew.close()


class _Pickler(pickle.Pickler):
    """Refuses what only this process knows."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse classes and functions of the script that was started, or typed in."""
        own = isinstance(obj, type | FunctionType) and obj.__module__ == "__main__"
        if own:
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the script itself")
        return NotImplemented


def packed(common: Common, threads: int) -> bytes:
    """Write down what workers have to know; networks as they are, for their files may change."""
    work = common.work
    given = replace(common.given or Overrides(), networks=dict(work.networks))
    described = {a.label for a in work.experiment.algorithms if a.algorithm not in NOT_BY_NAME}
    objects = {k: v for k, v in given.algorithms.items() if k not in described}
    by_name = work.experiment.problem.kind not in NOT_BY_NAME  # which workers make themselves
    given = replace(given, algorithms=objects, problem=None if by_name else given.problem)
    order = Order(work.experiment, common.device, given, threads, common.checkpoint_seconds)
    out = BytesIO()
    try:
        _Pickler(out).dump(order)
    except Exception as error:  # whatever the user's own classes raise
        raise NotSentError(str(error)) from error
    return out.getvalue()
