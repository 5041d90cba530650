"""Run an experiment: its jobs recorded, interruptible, resumable to the same bits.

Jobs are done one after the other; on a GPU, which a small one does not fill, side by side.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic

import torch

from digrad.engines.simulator import Simulator
from digrad.runs.experiment import Experiment
from digrad.runs.folder import JobFile, RunFolder
from digrad.runs.launches import Launch
from digrad.runs.planning import Job, Labels, Plan, plan, resolved
from digrad.runs.record import Book, Here, Place

CHECKPOINT_SECONDS = 5.0  # what a killed run loses at most, beside one recording interval
THREADED_NUMBERS = 200_000  # numbers in a variable from which several threads pay
BESIDE_NUMBERS = 8_000_000  # numbers in a variable, of all jobs side by side, that fill a GPU
BESIDE_JOBS = 8  # as many as a GPU takes orders from at a time

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
    Launch.read(folder.path).refuse_other_messages("")
    work = plan(stored, device)
    folder.begin(stored)  # not before: an experiment that cannot be run leaves no folder
    carry_out(work, folder, Here(), progress or _silent)
    return folder.path


def carry_out(work: Plan, folder: RunFolder, place: Place, progress: Progress) -> None:
    """Do all jobs from where they stand, and store what comes of them."""
    shelf = _Shelf(folder, place)
    for jobs in _beside(work.jobs):
        with _threads(jobs[0]), _precision(jobs[0], work.experiment.tf32):
            _together(jobs, work.experiment, shelf, place, progress)


def _silent(job: Job, t: int) -> None:
    """Report nothing."""


def _beside(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Cut jobs into those that run side by side."""
    some: list[Job] = []
    for job in jobs:
        full = len(some) == BESIDE_JOBS or sum(map(_numbers, [*some, job])) > BESIDE_NUMBERS
        if some and (full or not _on_one_gpu(job)):
            yield some
            some = []
        some.append(job)
    yield some


def _numbers(job: Job) -> int:
    """Return how many numbers a variable consists of."""
    problem = job.recursion.problem
    return len(job.trials) * problem.nodes * problem.dim


def _on_one_gpu(job: Job) -> bool:
    engine = job.recursion.engine
    return isinstance(engine, Simulator) and engine.nodes.is_cuda


@contextmanager
def _threads(job: Job) -> Iterator[None]:
    """Use one thread for small tensors: waking others costs more than they do."""
    before = torch.get_num_threads()
    if _numbers(job) < THREADED_NUMBERS:
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


def _together(
    jobs: Sequence[Job], experiment: Experiment, shelf: "_Shelf", place: Place, progress: Progress
) -> None:
    """Do some jobs in turns, from one record to the next."""
    courses: list[_Course] = []

    def turn(course: _Course) -> None:
        course.record(progress)
        shelf.store(course)
        course.go_on()

    try:
        for job in jobs:
            saved = shelf.saved(job)
            if saved is not None and saved.done:
                progress(job, saved.t)
                continue
            courses.append(_Course(job, saved, place, experiment))
            courses[-1].go_on()
            turn(courses[-1])  # at once: what jobs have in common is made on the first one's way
        while under_way := [course for course in courses if not course.done]:
            for course in under_way:
                turn(course)
    except KeyboardInterrupt:
        for course in courses:
            shelf.store(course, now=True)
        shelf.write()
        raise
    shelf.write()


class _Course:
    """A job under way: its book, and where it has gone since the last record."""

    def __init__(
        self, job: Job, saved: JobFile | None, place: Place, experiment: Experiment
    ) -> None:
        self.job, self._place = job, place
        self._steps, self._every = experiment.steps, experiment.record_every
        self._aside = _stream(job)
        with self._aside():
            self._book = Book.open(job, saved, place)
        self._ahead = self._book.moment

    @property
    def done(self) -> bool:
        """Whether all steps are recorded."""
        return self._book.moment.t >= self._steps

    def go_on(self) -> None:
        """Start on the way to the next record; a GPU does not keep anybody waiting for it."""
        t = self._book.moment.t
        stop = min(t - t % self._every + self._every, self._steps)
        if stop > t:
            with self._aside():
                self._ahead = self._book.ahead(self.job, stop)

    def record(self, progress: Progress) -> None:
        """Wait until it is there, and record."""
        if self._ahead.t > self._book.moment.t:
            with self._aside():
                self._book = self._book.recorded(self.job, self._ahead, self._place)
            progress(self.job, self._ahead.t)

    def file(self) -> JobFile:
        """Return what to store."""
        return self._book.file(done=self.done)


def _stream(job: Job) -> Callable[[], AbstractContextManager[object]]:
    """Return where a job's orders to a GPU line up: not behind those of other jobs."""
    if not _on_one_gpu(job):
        return nullcontext
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    own.wait_stream(torch.cuda.current_stream())
    return lambda: torch.cuda.stream(own)


class _Shelf:
    """The files of all jobs; nothing is written where another process does that."""

    def __init__(self, folder: RunFolder, place: Place) -> None:
        self._folder, self._place = folder, place
        self._files: dict[int, tuple[Labels, JobFile]] = {}
        self._last: dict[int, float] = {}  # when each was stored, or begun
        self._written = monotonic()  # when metrics.csv was

    def saved(self, job: Job) -> JobFile | None:
        """Return what a job left behind."""
        saved = self._place.saved(self._folder, job)
        self._last[job.index] = monotonic()
        if saved is not None:
            self._files[job.index] = job.labels, saved
        return saved

    def store(self, course: _Course, *, now: bool = False) -> None:
        """Store where a job is, if it is time or it is done."""
        job = course.job
        due = monotonic() - self._last[job.index] > CHECKPOINT_SECONDS
        if not self._place.writes or not (due or now or course.done):
            return
        file = course.file()
        self._folder.save_job(job.index, file)
        self._files[job.index] = job.labels, file
        self._last[job.index] = monotonic()
        if monotonic() - self._written > CHECKPOINT_SECONDS:
            self.write()

    def write(self) -> None:
        """Write what is stored of all jobs into one table."""
        if self._place.writes:
            self._folder.write_metrics([self._files[k] for k in sorted(self._files)])
            self._written = monotonic()
