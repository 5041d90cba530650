"""Run an experiment: job after job, recorded, interruptible, resumable to the same bits."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.experiment import Experiment
from digrad.metrics import METRICS
from digrad.planning import Job, Plan, plan, resolved
from digrad.run import Moment
from digrad.store import JobFile, RunFolder
from digrad.training.launches import Launch

CHECKPOINT_SECONDS = 5.0  # what a killed run loses at most, beside one recording interval
THREADED_NUMBERS = 200_000  # numbers in a variable from which several threads pay

Progress = Callable[[Job, int], None]
Numbers = NDArray[np.float64]


class Place(Protocol):
    """Where the nodes of a run live, as far as the book of the run is concerned.

    ``Moment`` means those of this process, unless it is called whole.
    """

    writes: bool  # whether this process measures and writes

    def saved(self, folder: RunFolder, job: Job) -> JobFile | None:
        """What a job left behind; the records only where they are written."""
        ...

    def own(self, job: Job, whole: Moment) -> Moment:
        """Cut the rows of this process out of those of all nodes."""
        ...

    def whole(self, job: Job, own: Moment) -> Moment:
        """Put the rows of all nodes together."""
        ...

    def everywhere(self, job: Job, holds: Tensor) -> Tensor:
        """Say of which trials something holds at all nodes, not only at those here."""
        ...

    def noted(self, job: Job, t: int, numbers: Numbers) -> None:
        """Hear what was recorded: (trials, metrics); only where it is written."""
        ...


class Here:
    """All nodes in this process."""

    writes = True

    def saved(self, folder: RunFolder, job: Job) -> JobFile | None:
        """Read it."""
        return folder.job(job.index)

    def own(self, job: Job, whole: Moment) -> Moment:
        """All of them."""
        return whole

    def whole(self, job: Job, own: Moment) -> Moment:
        """All of them."""
        return own

    def everywhere(self, job: Job, holds: Tensor) -> Tensor:
        """As it is."""
        return holds

    def noted(self, job: Job, t: int, numbers: Numbers) -> None:
        """Pass over it."""


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
    Launch.read(folder.path).refuse_other_messages("")
    work = plan(stored, device)
    folder.begin(stored)  # not before: an experiment that cannot be run leaves no folder
    carry_out(work, folder, Here(), progress or _silent)
    return folder.path


def carry_out(work: Plan, folder: RunFolder, place: Place, progress: Progress) -> None:
    """Do all jobs from where they stand, and store what comes of them."""
    finished: list[tuple[list[tuple[str, str, float, int]], JobFile]] = []
    for job in work.jobs:
        saved: JobFile | None = None
        with _threads(job), _precision(job, work.experiment.tf32):
            for saved in _records(folder, job, work.experiment, place, progress):
                folder.save_job(job.index, saved)
                folder.write_metrics([*finished, (job.labels, saved)])
        if saved is not None:
            finished.append((job.labels, saved))


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


@contextmanager
def _precision(job: Job, tf32: bool) -> Iterator[None]:
    """Multiply in full single precision, or not, as the experiment says; restored after."""
    if not job.recursion.problem.start().is_cuda:
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        with warnings.catch_warnings():
            # The compiler advises TF32, which the experiment has decided on.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _records(
    folder: RunFolder, job: Job, experiment: Experiment, place: Place, progress: Progress
) -> Iterator[JobFile]:
    """Run a job from where it stands; yield what to store at each checkpoint and at the end.

    Nothing is yielded where nothing is written.
    """
    saved = place.saved(folder, job)
    if saved is not None and saved.done:
        progress(job, saved.t)
        if place.writes:
            yield saved
        return
    book = _Book.open(job, saved, place)
    last, every = monotonic(), experiment.record_every
    while book.moment.t < experiment.steps:
        stop = min(book.moment.t - book.moment.t % every + every, experiment.steps)
        try:
            book = book.advanced(job, stop, place)
            progress(job, stop)
        except KeyboardInterrupt:
            if place.writes:
                yield book.file(done=False)
            raise
        if place.writes and monotonic() - last > CHECKPOINT_SECONDS and stop < experiment.steps:
            yield book.file(done=False)
            last = monotonic()
    if place.writes:
        yield book.file(done=True)


@dataclass(frozen=True, eq=False)
class _Book:
    """A job under way: where it is and what has been recorded."""

    moment: Moment
    whole: Moment  # with the rows of all nodes; the same as the other where nothing is written
    steps: list[int]
    records: list[Numbers]
    diverged_at: NDArray[np.int64]

    @classmethod
    def open(cls, job: Job, saved: JobFile | None, place: Place) -> "_Book":
        start = job.recursion.start()
        if saved is None:
            fresh = cls(start, start, [], [], np.full(len(job.trials), -1))
            return fresh._recorded(job, start, place)
        device = job.recursion.problem.start().device
        fields = {k: torch.from_numpy(v).to(device) for k, v in saved.state.items()}
        whole = Moment(saved.t, type(start.state)(**fields))
        own = place.own(job, whole)
        kept = whole if place.writes else own
        return cls(own, kept, saved.steps.tolist(), list(saved.records), saved.diverged_at)

    def advanced(self, job: Job, stop: int, place: Place) -> "_Book":
        """Go on to ``stop``; find the exact step of every divergence on the way."""
        after = _packed(job.recursion.advance(self.moment, stop))
        ended = _ended(job, after, place) & (self.diverged_at < 0)
        diverged = self.diverged_at.copy()
        if ended.any():
            diverged[ended] = _first_infinite(job, self.moment, stop, place)[ended]
        return replace(self, diverged_at=diverged)._recorded(job, after, place)

    def _recorded(self, job: Job, moment: Moment, place: Place) -> "_Book":
        whole = place.whole(job, moment)
        if not place.writes:
            return replace(self, moment=moment, whole=moment)
        numbers = job.gauge.read(whole)
        row = torch.stack([numbers[name].double() for name in METRICS], dim=-1).cpu().numpy()
        place.noted(job, moment.t, row)
        steps, records = [*self.steps, moment.t], [*self.records, row]
        return _Book(moment, whole, steps, records, self.diverged_at)

    def file(self, *, done: bool) -> JobFile:
        state = {} if done else _arrays(self.whole.state)
        steps, records = np.array(self.steps), np.stack(self.records)
        return JobFile(self.moment.t, done, records, steps, self.diverged_at, state)


def _ended(job: Job, moment: Moment, place: Place) -> NDArray[np.bool_]:
    """Say which trials have left the finite numbers, at any node."""
    ended: NDArray[np.bool_] = ~place.everywhere(job, job.gauge.finite(moment)).cpu().numpy()
    return ended


def _first_infinite(job: Job, moment: Moment, stop: int, place: Place) -> NDArray[np.int64]:
    """Repeat a stretch step by step and return when each trial became non-finite."""
    found = np.full(len(job.trials), stop)
    slow = replace(job.recursion, blocks=False)
    for t in range(moment.t, stop):
        moment = slow.advance(moment, t + 1)
        found[_ended(job, moment, place) & (found == stop)] = t + 1
    return found


def _packed(moment: Moment) -> Moment:
    """Lay a state out as a file gives it back: sums round differently in another layout."""
    values = (None if v is None else v.contiguous() for v in moment.state)
    return Moment(moment.t, type(moment.state)(*values))


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: v.cpu().numpy() for k, v in state._asdict().items() if v is not None}
