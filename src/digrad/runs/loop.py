"""Jobs in one process: recorded, interruptible, resumable to the same bits.

Jobs are done one after the other; on a GPU, which a small one does not fill, side by side.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic

import torch

from digrad.results.folder import JobFile, Store
from digrad.runs.execution import Execution, PlacedJob, Record
from digrad.runs.planning import Job, Plan

CHECKPOINT_SECONDS = 5.0  # what a killed run loses at most, beside one recording interval
THREADED_NUMBERS = 200_000  # numbers in a variable from which several threads pay
BESIDE_NUMBERS = 8_000_000  # numbers in a variable, of all jobs side by side, that fill a GPU
BESIDE_JOBS = 8  # as many as a GPU takes orders from at a time

Progress = Callable[[Job, int], None]


def silent(job: Job, t: int) -> None:
    """Report no progress."""


class HandedOverError(Exception):
    """Another process is to go on; what is done is stored, as at Ctrl-C."""


def carry_out(
    work: Plan,
    store: Store,
    execution: Execution,
    progress: Progress,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> None:
    """Do all jobs from where they stand, and store what comes of them."""
    keeper = _Keeper(store, execution, checkpoint_seconds)
    for jobs in _batches(work.jobs, execution.side_by_side):
        with few_threads(_numbers(jobs[0])), _precision(jobs[0], work.experiment.tf32):
            _do_side_by_side(jobs, work, keeper, execution, progress)


def _batches(jobs: Sequence[Job], at_most: int | None) -> Iterator[list[Job]]:
    """Cut jobs into those that run side by side: on a GPU, until they fill it."""
    some: list[Job] = []
    for job in jobs:
        if some and _full([*some, job], at_most):
            yield some
            some = []
        some.append(job)
    yield some


def _full(jobs: Sequence[Job], at_most: int | None) -> bool:
    if at_most is not None:
        return len(jobs) > at_most
    fills = len(jobs) > BESIDE_JOBS or sum(map(_numbers, jobs)) > BESIDE_NUMBERS
    return fills or not on_gpu(jobs[-1])


def _numbers(job: Job) -> int:
    """Return how many numbers a variable consists of."""
    return len(job.trials) * job.problem.nodes * job.problem.dim


def on_gpu(job: Job) -> bool:
    """Whether the nodes of a job are on a GPU."""
    return job.problem.start().is_cuda


@contextmanager
def few_threads(numbers: int) -> Iterator[None]:
    """Use one thread for small tensors: waking others costs more than they do."""
    before = torch.get_num_threads()
    if numbers < THREADED_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _precision(job: Job, tf32: bool) -> Iterator[None]:
    """Multiply in full single precision, or not, as the experiment says; restored after."""
    if not on_gpu(job):
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


def _do_side_by_side(
    jobs: Sequence[Job], work: Plan, keeper: "_Keeper", execution: Execution, progress: Progress
) -> None:
    """Do some jobs in turns, from one record to the next."""
    under_way: list[_Running] = []

    def turn(running: _Running) -> None:
        running.record(progress)
        keeper.store(running)
        running.go_on()

    try:
        for job in jobs:
            saved = keeper.saved(job)
            if saved is not None and saved.done:
                progress(job, saved.t)
                continue
            running = _Running(PlacedJob(job, execution, execution.make_loop(job)), saved, work)
            under_way.append(running)
            running.go_on()
            turn(running)  # at once: what jobs have in common is made on the first one's way
        while rest := [running for running in under_way if not running.done]:
            for running in rest:
                turn(running)
    except (KeyboardInterrupt, HandedOverError):
        for running in under_way:
            keeper.store(running, now=True)
        keeper.write()
        raise
    keeper.write()


class _Running:
    """A job under way: its record, and where it has gone since."""

    def __init__(self, work: PlacedJob, saved: JobFile | None, plan: Plan) -> None:
        self.job, self._work = work.job, work
        self._steps, self._every = plan.experiment.steps, plan.every
        self._aside = _stream(work.job)
        with self._aside():
            self._record = Record.open(work, saved)
        self._ahead = self._record.moment

    @property
    def done(self) -> bool:
        return self._record.moment.t >= self._steps

    def go_on(self) -> None:
        """Start on the way to the next record; a GPU does not keep anybody waiting for it."""
        t = self._record.moment.t
        stop = min(t - t % self._every + self._every, self._steps)
        if stop > t:
            with self._aside():
                self._ahead = self._record.ahead(self._work, stop)

    def record(self, progress: Progress) -> None:
        if self._ahead.t > self._record.moment.t:
            with self._aside():
                self._record = self._record.recorded(self._work, self._ahead)
            progress(self.job, self._ahead.t)

    def file(self) -> JobFile:
        return self._record.file(self.job, done=self.done)


def _stream(job: Job) -> Callable[[], AbstractContextManager[object]]:
    """Return where a job's orders to a GPU line up: not behind those of other jobs."""
    if not on_gpu(job):
        return nullcontext
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    own.wait_stream(torch.cuda.current_stream())
    return lambda: torch.cuda.stream(own)


class _Keeper:
    """Keeps what jobs have done; nothing is written where another process does that."""

    def __init__(self, store: Store, execution: Execution, seconds: float) -> None:
        self._store, self._execution, self._seconds = store, execution, seconds
        self._files: dict[int, JobFile] = {}
        self._last: dict[int, float] = {}  # when each was stored, or begun
        self._written = monotonic()  # when metrics.csv was

    def saved(self, job: Job) -> JobFile | None:
        saved = self._execution.load(self._store, job)
        self._last[job.index] = monotonic()
        if saved is not None:
            self._files[job.index] = saved
        return saved

    def store(self, running: _Running, *, now: bool = False) -> None:
        job = running.job
        due = monotonic() - self._last[job.index] > self._seconds
        if not self._execution.writes or not (due or now or running.done):
            return
        self._files[job.index] = running.file()
        self._store.save_job(job.index, self._files[job.index])
        self._last[job.index] = monotonic()
        if monotonic() - self._written > self._seconds:
            self.write()

    def write(self) -> None:
        if self._execution.writes:
            self._store.write_metrics([self._files[k] for k in sorted(self._files)])
            self._written = monotonic()
