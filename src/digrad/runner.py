"""Run an experiment: job after job, recorded, interruptible, resumable to the same bits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from digrad.experiment import Experiment
from digrad.metrics import METRICS
from digrad.planning import Job, plan, resolved
from digrad.run import Moment
from digrad.store import JobFile, RunFolder

CHECKPOINT_SECONDS = 5.0  # what a killed run loses at most, beside one recording interval
THREADED_NUMBERS = 200_000  # numbers in a variable from which several threads pay

Progress = Callable[[Job, int], None]


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run an experiment into a folder; with ``resume``, go on with what is there.

    A KeyboardInterrupt leaves the folder ready to be resumed.
    """
    folder = RunFolder(Path(out))
    stored = folder.check(resolved(experiment), resume=resume)
    work = plan(stored, device)
    folder.begin(stored)  # not before: an experiment that cannot be run leaves no folder
    finished: list[tuple[list[tuple[str, str, float, int]], JobFile]] = []
    for job in work.jobs:
        with _threads(job):
            for saved in _records(folder, job, stored, progress or _silent):
                folder.save_job(job.index, saved)
                folder.write_metrics([*finished, (job.labels, saved)])
        finished.append((job.labels, saved))
    return folder.path


def _silent(job: Job, t: int) -> None:
    """Report nothing."""


@contextmanager
def _threads(job: Job) -> Iterator[None]:
    """Use one thread for small tensors: waking others costs more than they do."""
    before, problem = torch.get_num_threads(), job.recursion.problem
    if len(job.trials) * problem.nodes * problem.dim < THREADED_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _records(
    folder: RunFolder, job: Job, experiment: Experiment, progress: Progress
) -> Iterator[JobFile]:
    """Run a job from where it stands; yield what to store at each checkpoint and at the end."""
    saved = folder.job(job.index)
    if saved is not None and saved.done:
        progress(job, saved.t)
        yield saved
        return
    book = _Book.open(job, saved)
    last, every = monotonic(), experiment.record_every
    while book.moment.t < experiment.steps:
        stop = min(book.moment.t - book.moment.t % every + every, experiment.steps)
        try:
            book = book.advanced(job, stop)
            progress(job, stop)
        except KeyboardInterrupt:
            yield book.file(job, done=False)
            raise
        if monotonic() - last > CHECKPOINT_SECONDS and stop < experiment.steps:
            yield book.file(job, done=False)
            last = monotonic()
    yield book.file(job, done=True)


@dataclass(frozen=True, eq=False)
class _Book:
    """A job under way: where it is and what has been recorded."""

    moment: Moment
    steps: list[int]
    records: list[np.ndarray[Any, Any]]
    diverged_at: np.ndarray[Any, Any]

    @classmethod
    def open(cls, job: Job, saved: JobFile | None) -> "_Book":
        start = job.recursion.start()
        if saved is None:
            fresh = cls(start, [], [], np.full(len(job.trials), -1))
            return fresh._recorded(job, start)
        x = job.recursion.problem.start()
        fields = {k: torch.from_numpy(v).to(x.device) for k, v in saved.state.items()}
        state = type(start.state)(**fields)
        records = list(saved.records)
        return cls(Moment(saved.t, state), saved.steps.tolist(), records, saved.diverged_at)

    def advanced(self, job: Job, stop: int) -> "_Book":
        """Go on to ``stop``; find the exact step of every divergence on the way."""
        after = _packed(job.recursion.advance(self.moment, stop))
        ended = ~job.gauge.finite(after).cpu().numpy() & (self.diverged_at < 0)
        diverged = self.diverged_at.copy()
        if ended.any():
            diverged[ended] = _first_infinite(job, self.moment, stop)[ended]
        return replace(self, diverged_at=diverged)._recorded(job, after)

    def _recorded(self, job: Job, moment: Moment) -> "_Book":
        numbers = job.gauge.read(moment)
        row = torch.stack([numbers[name].double() for name in METRICS], dim=-1).cpu().numpy()
        return _Book(moment, [*self.steps, moment.t], [*self.records, row], self.diverged_at)

    def file(self, job: Job, *, done: bool) -> JobFile:
        state = {} if done else _arrays(self.moment.state)
        steps, records = np.array(self.steps), np.stack(self.records)
        return JobFile(self.moment.t, done, records, steps, self.diverged_at, state)


def _first_infinite(job: Job, moment: Moment, stop: int) -> np.ndarray[Any, Any]:
    """Repeat a stretch step by step and return when each trial became non-finite."""
    found = np.full(len(job.trials), stop)
    slow = replace(job.recursion, compiled=False)
    for t in range(moment.t, stop):
        moment = slow.advance(moment, t + 1)
        ended = ~job.gauge.finite(moment).cpu().numpy()
        found[ended & (found == stop)] = t + 1
    return found


def _packed(moment: Moment) -> Moment:
    """Lay a state out as a file gives it back: sums round differently in another layout."""
    values = (None if v is None else v.contiguous() for v in moment.state)
    return Moment(moment.t, type(moment.state)(*values))


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: v.cpu().numpy() for k, v in state._asdict().items() if v is not None}
