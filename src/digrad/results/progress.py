"""Progress of a run: written into its folder by the run, read by commands that watch it."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from digrad.base.errors import FileFormatError
from digrad.base.files import WriteError, json_of, plain_bytes, write_whole
from digrad.base.text import duration
from digrad.results.experiment import Experiment

NAME = ".progress.json"
EVERY = 1.0  # seconds from one file to the next
WINDOW = 60.0  # seconds that the pace is taken over: jobs differ in what a step costs


class RunAnnouncements(NamedTuple):
    """Progress of a run, as it is written into its folder."""

    done: int  # trial-steps
    total: int
    left: float | None  # seconds
    job: str

    @property
    def ahead(self) -> str:
        """The time left, in words; nothing as long as there is no telling.

        >>> RunAnnouncements(1200, 4000, 65.0, "S-PP on ring").ahead
        'about 65 s left'
        """
        return f"about {duration(self.left)} left" if self.left is not None else ""

    @classmethod
    def read(cls, folder: Path) -> "RunAnnouncements | None":
        """Return what a run under way has said last; None where there is nothing to be read."""
        try:
            said = json_of(plain_bytes(folder / NAME, 1 << 16, follow=False))
            done, total, left = int(said["done"]), int(said["total"]), said["left"]
            left = float(left) if left is not None and isfinite(left) and left >= 0 else None
            return cls(done, max(total, 1), left, str(said["job"]))
        except (OSError, FileFormatError, ValueError, KeyError, TypeError, OverflowError):
            return None


class ProgressMeter:
    """From how far the jobs are when, the time that is left.

    It is a ``progress`` of ``run``, which puts into the folder what it says: there is one time
    left, whoever shows it.

    Args:
        experiment: what is run.
        show: called with the progress of the run, at every record.
        now: the clock.
    """

    def __init__(
        self,
        experiment: Experiment,
        show: Callable[[RunAnnouncements], None] = lambda told: None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        # Between two reports; a guess where the plan decides: only the time left depends on it.
        self._every = experiment.metrics_every or max(1, experiment.steps // 100)
        self._show, self._now = show, now
        self._total = experiment.trials * experiment.steps
        self._done: dict[int, int] = {}  # trial-steps of each job
        self._given: dict[int, int] = {}  # those that it had done before it was resumed
        self.start()

    def start(self) -> None:
        """Begin to count the seconds: what was planned before the first step tells no pace."""
        self._seen = deque([(self._now(), 0)])

    def __call__(self, job: Any, t: int) -> None:
        """Take the progress of a job."""
        self.at(job, t)

    def at(self, job: Any, t: int) -> RunAnnouncements:
        """Take the progress of a job and return that of the run."""
        trials = len(job.trials)
        self._given.setdefault(job.index, max(0, t - self._every) * trials)
        self._done[job.index] = t * trials
        done, now = sum(self._done.values()), self._now()
        work = done - sum(self._given.values())
        self._seen.append((now, work))
        while len(self._seen) > 2 and self._seen[1][0] < now - WINDOW:
            self._seen.popleft()
        then, before = self._seen[0]
        left = (self._total - done) * (now - then) / (work - before) if work > before else None
        told = RunAnnouncements(done, self._total, left, f"{job.algorithm} on {job.network}")
        self._show(told)
        return told


@contextmanager
def announce_progress(
    folder: Path, experiment: Experiment, progress: Callable[[Any, int], None]
) -> Iterator[Callable[[Any, int], None]]:
    """Write the progress of a run into its folder, about once a second, and pass it on.

    Args:
        folder: of the run; it is this process that writes there.
        experiment: what is run.
        progress: also called, with the job and the step.
    """
    meter, last = (
        progress if isinstance(progress, ProgressMeter) else ProgressMeter(experiment),
        monotonic(),
    )
    meter.start()
    with suppress(OSError):
        (folder / NAME).unlink()  # of a run that was killed

    def tell(job: Any, t: int) -> None:
        nonlocal last
        if meter is not progress:
            progress(job, t)
        said = meter.at(job, t)
        if monotonic() - last > EVERY:
            last = monotonic()
            with suppress(WriteError):  # it cannot be watched, but the run goes on
                write_whole(folder / NAME, json.dumps(said._asdict()).encode())

    try:
        yield tell
    finally:
        with suppress(OSError):
            (folder / NAME).unlink()
