"""What has become of run folders, and how far the runs in progress are.

Run folders are read without their states, and without anybody's code.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite, nan
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

import numpy as np

from digrad.base.errors import DigradError, FileFormatError, ParameterError
from digrad.base.files import WriteError, json_of, plain_bytes, plain_file, write_whole
from digrad.base.metrics import METRICS, VALUES, Metric, by_interest
from digrad.base.text import duration
from digrad.results.experiment import Experiment, load_experiment
from digrad.results.folder import DAMAGE, Labels, metrics_from_json
from digrad.results.lock import is_locked

DEPTH = 2  # folders below the one that is listed in which runs are sought
LARGEST = 1 << 30  # bytes of the records of a job
NEEDED = ("labels", "t", "done", "records", "diverged_at")

State = Literal["finished", "running", "interrupted", "damaged"]


class JobSummary(NamedTuple):
    """What is seen of a job without its state and its answers."""

    labels: Labels
    t: int
    done: bool
    last: np.ndarray[Any, Any]  # (trials, metrics): the last record
    diverged: np.ndarray[Any, Any]
    own: tuple[Metric, ...] = ()  # metrics that the problem declares


class RunState(NamedTuple):
    """How far a run folder is."""

    path: Path
    state: State
    experiment: Experiment | None
    trials: int  # that are done
    done: int  # trial-steps
    size: int  # bytes of all files
    changed: float  # when, in seconds since 1970
    metric: str = ""  # the first that is recorded, its best last value, and whose that is
    value: float = nan
    best: str = ""
    why: str = ""  # it is damaged

    @property
    def total(self) -> int:
        """Trial-steps of the whole run."""
        return self.experiment.trials * self.experiment.steps if self.experiment else 0


def state_of(folder: str | Path) -> RunState:
    """Look at one run folder.

    Raises:
        ParameterError: if there is no run in it.
    """
    path = Path(folder)
    if not os.path.lexists(path / "experiment.toml"):
        lacks = "has no experiment.toml" if path.is_dir() else "is not a folder"
        hint = "pass a folder that a run has written; `digrad runs` lists them"
        raise ParameterError(f"{path} {lacks}", hint=hint)
    size, changed = _size_and_change(path)
    try:
        if (path / "experiment.toml").is_symlink():
            raise FileFormatError(f"{path / 'experiment.toml'} is a link")
        experiment = load_experiment(path / "experiment.toml")
        folder = path / "jobs"
        files = [] if folder.is_symlink() or not folder.is_dir() else sorted(folder.glob("*.npz"))
        jobs = {int(f.stem): _summarise_job(f) for f in files if f.stem.isdecimal()}
    except DigradError as error:
        why = str(error).splitlines()[0]
        return RunState(path, "damaged", None, 0, 0, size, changed, why=why)
    finished = sum(len(job.labels) for job in jobs.values() if job.done)
    done = sum(job.t * len(job.labels) for job in jobs.values())
    busy = is_locked(path)
    told = RunAnnouncements.read(path) if busy else None
    state: State = "running" if busy else "interrupted"
    state = "finished" if finished >= experiment.trials and not busy else state
    there = max(done, told.done if told else 0)
    best = _best(jobs, experiment.metrics)
    return RunState(path, state, experiment, finished, there, size, changed, *best)


def states(folder: str | Path) -> list[RunState]:
    """Look at all run folders in a folder, and at itself if it is one; no link is followed."""
    path = Path(folder)
    if not path.is_dir():
        hint = "pass the folder that your run folders are in"
        raise ParameterError(f"{path} is not a folder", hint=hint)
    return [state_of(found) for found in _find_runs(path, DEPTH)]


def _summarise_job(path: Path) -> JobSummary:
    try:
        with plain_file(path, follow=False) as file, np.load(file, allow_pickle=False) as data:
            sizes = {info.filename: info.file_size for info in data.zip.infolist()}
            if sum(sizes.get(f"{name}.npy", 0) for name in (*NEEDED, "metrics")) > LARGEST:
                raise FileFormatError("its records are too large")
            labels = [tuple(label) for label in json_of(str(data["labels"]))]
            own = metrics_from_json(json_of(str(data["metrics"]))) if "metrics" in data else ()
            shape = len(labels), len(VALUES) + len(own)
            records, diverged = data["records"], data["diverged_at"]
            if records.shape[1:] != shape or diverged.shape != shape[:1]:
                raise FileFormatError(f"its records have the shape {records.shape}")
            at, done = int(data["t"]), bool(data["done"])
            return JobSummary(labels, at, done, records[-1], diverged, own)
    except (*DAMAGE, MemoryError, DigradError) as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _best(jobs: dict[int, JobSummary], asked: Sequence[str]) -> tuple[str, float, str]:
    """Return the first metric that was recorded, its best mean over seeds, and whose it is."""
    own = {metric.name: metric for job in jobs.values() for metric in job.own}
    columns, known = [*VALUES, *own], {**METRICS, **own}
    for name in by_interest(known, asked):
        found: dict[tuple[str, str, float], list[float]] = {}
        for job in jobs.values():
            values = np.where(job.diverged < 0, job.last[:, columns.index(name)], nan)
            for (network, algorithm, size, _), value in zip(job.labels, values, strict=True):
                if np.isfinite(value):
                    found.setdefault((network, algorithm, size), []).append(float(value))
        if found:
            means = {key: float(np.mean(each)) for key, each in found.items()}
            sign = known[name].sign
            network, algorithm, size = min(means, key=lambda k: sign * means[k])
            whose = f"{algorithm} on {network}, γ = {size:g}"
            return name, means[network, algorithm, size], whose
    return "", nan, ""


def _find_runs(folder: Path, depth: int) -> Iterator[Path]:
    if os.path.lexists(folder / "experiment.toml"):
        yield folder
        return
    with suppress(OSError):  # what may not be looked into holds no run of ours
        inner = sorted(
            entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)
        )
        for name in inner if depth else ():
            yield from _find_runs(folder / name, depth - 1)


def _size_and_change(folder: Path) -> tuple[int, float]:
    """Return the bytes of all files in a folder, and when the last of them was written."""
    size, changed = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # moved to its place just now
                found = os.lstat(os.path.join(place, name))
                size, changed = size + found.st_size, max(changed, found.st_mtime)
    return size, changed


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
    meter = progress if isinstance(progress, ProgressMeter) else ProgressMeter(experiment)
    last = monotonic()
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
