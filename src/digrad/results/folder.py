"""The folder of a run: what is on disk is always whole, and enough to go on from.

    experiment.toml    the experiment as it was run, every default written out
    environment.json   versions and machine
    networks/000.npz   each network, as it was
    code/              copies of the user's own files that the experiment names
    metrics.csv        one row per trial and recorded step
    metrics.json       what is to be known of metrics that the problem declares, if it does
    jobs/000.npz       one job (a network, an algorithm, some trials): its records so far and
                       the state to go on from, which a job that is done keeps if it is small,
                       to be extended; then its answers

Files are written next to their place and moved there, by one process at a time. metrics.csv is
derived from jobs/. Every job file carries checksums of all that made it.
"""

import csv
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from io import BytesIO, StringIO
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
import tomli_w
from numpy.typing import NDArray

from digrad import __version__
from digrad.base.errors import DigradError, FileFormatError, param
from digrad.base.files import json_of, plain_bytes, write_whole
from digrad.base.metrics import TIMED, Metric, check_declared, columns_of
from digrad.base.own_code import OwnCode
from digrad.networks import AnyNetwork, Digraph
from digrad.networks.files import load, save
from digrad.results.experiment import Experiment, load_experiment, to_table
from digrad.results.lock import locked

LARGEST_JOB = 1 << 40  # bytes: as large as a state may be
# What NumPy and zipfile raise on bytes that are not what was written.
DAMAGE = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, BadZipFile)
Records = NDArray[np.float64]
Labels = list[tuple[str, str, float, int]]  # network, algorithm, step size and seed of each trial


class RunFolderError(DigradError):
    """A run folder that cannot be written to or gone on from."""


@dataclass(frozen=True)
class JobFile:
    """What is known of one job."""

    labels: Labels
    t: int  # steps done
    done: bool
    records: Records  # (rows, trials, metrics), row k belongs to steps[k]
    steps: NDArray[np.int64]
    diverged_at: NDArray[np.int64]  # per trial; -1: not
    state: dict[str, NDArray[Any]]  # the state's tensors by field; empty if done and large
    answers: NDArray[Any] | None  # (trials, dim), once it is done
    made_by: Mapping[str, str]  # checksums of all that it depends on
    each: int = 1  # gradients from one exchange to the next, of a method that takes steps at home
    axes: Records | None = None  # (rows, columns of TIMED), on a clock
    own: tuple[Metric, ...] = ()  # metrics that the problem declares, the last of the records


class Store(Protocol):
    """Where the jobs of a run are kept."""

    def job(self, k: int, made_by: Mapping[str, str] | None = None) -> JobFile | None:
        """What job k left behind; none if it has not begun.

        One that was not made by what is given, if it is, is refused.
        """
        ...

    def save_job(self, k: int, job: JobFile) -> None:
        """Store a job."""
        ...

    def write_metrics(self, jobs: Sequence[JobFile]) -> None:
        """Put the records of all jobs into one table."""
        ...


class MemoryStore:
    """A run that is kept in memory; nothing is written."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobFile] = {}

    def job(self, k: int, made_by: Mapping[str, str] | None = None) -> JobFile | None:
        """Return a job, if it has begun."""
        return self.jobs.get(k)

    def save_job(self, k: int, job: JobFile) -> None:
        """Keep a job in memory."""
        self.jobs[k] = job

    def write_metrics(self, jobs: Sequence[JobFile]) -> None:
        """Do nothing: there is no table."""


@dataclass(frozen=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @property
    def holds_run(self) -> bool:
        """Whether a run has begun here; no error either where no file can be."""
        return os.path.exists(self.path / "experiment.toml")

    def check(self, experiment: Experiment, *, resume: bool) -> Experiment:
        """Check that the folder is free or, to resume, that it holds this very experiment.

        Returns the experiment to run: the stored one when resuming, so that settings that
        depend on the machine stay what they were.
        """
        if not self.holds_run:
            if resume:
                hint = f"start it without {param('resume', True)}"
                raise RunFolderError(f"{self.path} holds no run to resume", hint=hint)
            if os.path.exists(self._job_path(0)):
                what = f"{self.path} holds jobs of a run, but not the experiment they belong to"
                raise RunFolderError(what, hint=f"name another folder with {param('out')}")
            return experiment
        if not resume:
            hint = f"{param('resume', True)} goes on with it; {param('out')} names another folder; "
            hint += "`digrad run --extend` adds to it, `digrad run --force` puts it aside"
            raise RunFolderError(f"{self.path} already holds a run", hint=hint)
        before = load_experiment(self.path / "experiment.toml")
        _refuse_changes(to_table(before), to_table(experiment))
        # Files are sought where they are now, or the copies here would hide that they changed.
        return replace(before, folders=experiment.folders)

    def begin(
        self,
        experiment: Experiment,
        networks: Mapping[str, AnyNetwork],
        code: Sequence[OwnCode] = (),
    ) -> None:
        """Write down what is run and where; the experiment last, for then a run has begun."""
        if self.holds_run:
            self._refuse_other_inputs(networks, code)
            return
        machine = json.dumps(environment(), indent=1).encode()
        write_whole(self.path / "environment.json", machine)
        (self.path / "networks").mkdir(exist_ok=True)
        for k, net in enumerate(networks.values()):
            save(net, self.network_path(k))
        for name, own in _by_name(code).items():
            write_whole(self.path / "code" / name, own.content())
        stored = tomli_w.dumps(to_table(experiment)).encode()
        write_whole(self.path / "experiment.toml", stored)

    def _refuse_other_inputs(
        self, networks: Mapping[str, AnyNetwork], code: Sequence[OwnCode]
    ) -> None:
        """Raise if a network or a file of the user's own is not what it was at the start."""
        hint = f"undo the change, or start a new run with {param('out')}"
        for k, (label, net) in enumerate(networks.items()):
            before = self.network(k)
            if before is not None and before.digest() != net.digest():
                what = f"the network {label} has changed since the run in {self.path} began"
                raise RunFolderError(what, hint=hint)
        for name, own in _by_name(code).items():
            kept = self.path / "code" / name
            if not kept.is_file() or kept.read_bytes() != own.content():
                what = f"{own.path} has changed since the run in {self.path} began"
                raise RunFolderError(what, hint=f"{hint}; {kept} is as it was")

    def set_aside(self) -> Path:
        """Move the folder out of the way, under the next free name; nothing is lost."""
        others = (self.path.with_name(f"{self.path.name}.old-{k}") for k in count(1))
        target = next(other for other in others if not other.exists())
        with locked(self.path):  # another process may be writing
            try:
                self.path.rename(target)
            except OSError as error:
                hint = f"name another folder with {param('out')}"
                what = f"{self.path} cannot be put aside: {error}"
                raise RunFolderError(what, hint=hint) from error
        return target

    def network_path(self, k: int) -> Path:
        """Return where the k-th network is kept."""
        return self.path / "networks" / f"{k:03d}.npz"

    def network(self, k: int) -> AnyNetwork | None:
        """Return the k-th network as it was run; none in a folder without it."""
        path = self.network_path(k)
        if not path.is_file():
            return None
        found = load(path)
        return None if isinstance(found, Digraph) else found

    def job(self, k: int, made_by: Mapping[str, str] | None = None) -> JobFile | None:
        """Return what a job left behind; none if it has not begun."""
        path = self._job_path(k)
        if not path.exists():
            return None
        try:
            job = _unpack_job(path)
        except DAMAGE as error:
            hint = f"delete {path} to run that job again"
            raise RunFolderError(f"{path} is damaged: {error}", hint=hint) from error
        if made_by is not None:
            _refuse_other_making(path, job.made_by, made_by)
        return job

    def jobs(self) -> list[JobFile]:
        """Return what all jobs that have begun left behind, in order."""
        paths = sorted((self.path / "jobs").glob("*.npz"))
        found = (self.job(int(path.stem)) for path in paths if path.stem.isdecimal())
        return [job for job in found if job is not None]

    def save_job(self, k: int, job: JobFile) -> None:
        """Store a job, whole or not at all; nothing where the run has been taken away."""
        if not self.holds_run:
            what = f"{self.path} was removed or emptied while its run was going on"
            raise RunFolderError(what, hint="run it again, and leave the folder be")
        write_whole(self._job_path(k), _pack_job(job))

    def write_metrics(self, jobs: Sequence[JobFile]) -> None:
        """Write metrics.csv, and what is to be known of the metrics that a problem declares."""
        own = next((job.own for job in jobs), ())
        if own:
            write_whole(self.path / "metrics.json", metrics_to_json(own).encode())
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        at_home = any(job.each > 1 for job in jobs)  # where a step is not one gradient
        timed = any(job.axes is not None for job in jobs)
        head = [*columns_of(own), *(["gradients"] if at_home else []), *(TIMED if timed else [])]
        writer.writerow(head)
        for job in jobs:
            for trial, label in enumerate(job.labels):
                end = int(job.diverged_at[trial])
                for k, step in enumerate(job.steps.tolist()):
                    if 0 <= end <= step:
                        break
                    numbers = (_cell(x) for x in job.records[k, trial].tolist())
                    row = [*label, step, *numbers, "" if end < 0 else end]
                    row += [step * job.each] if at_home else []
                    row += [_cell(x) for x in job.axes[k].tolist()] if job.axes is not None else []
                    writer.writerow(row + [""] * (len(head) - len(row)))
        write_whole(self.path / "metrics.csv", out.getvalue().encode())

    def _job_path(self, k: int) -> Path:
        return self.path / "jobs" / f"{k:03d}.npz"


def _pack_job(job: JobFile) -> bytes:
    out = BytesIO()
    arrays = {f"state_{name}": array for name, array in job.state.items()}
    if job.answers is not None:
        arrays["answers"] = job.answers
    if job.axes is not None:
        arrays["axes"] = job.axes
    if job.own:
        arrays["metrics"] = np.array(metrics_to_json(job.own))
    np.savez(
        out,
        labels=json.dumps(job.labels),
        t=job.t,
        done=job.done,
        records=job.records,
        steps=job.steps,
        diverged_at=job.diverged_at,
        fields=np.array(list(job.state), dtype=np.str_),
        made_by=json.dumps(dict(job.made_by)),
        each=job.each,
        **arrays,  # type: ignore[arg-type]  # numpy types savez's own keyword as bool
    )
    return out.getvalue()


def _unpack_job(path: Path) -> JobFile:
    with np.load(BytesIO(plain_bytes(path, LARGEST_JOB)), allow_pickle=False) as data:
        state = {name: data[f"state_{name}"] for name in data["fields"].tolist()}
        answers = data.get("answers")
        made_by = json.loads(str(data["made_by"]))
        labels = [tuple(label) for label in json.loads(str(data["labels"]))]
        head = labels, int(data["t"]), bool(data["done"]), data["records"], data["steps"]
        own = metrics_from_json(json.loads(str(data["metrics"]))) if "metrics" in data else ()
        tail = answers, made_by, int(data["each"]), data.get("axes"), own
        return JobFile(*head, data["diverged_at"], state, *tail)


def metrics_to_json(own: Sequence[Metric]) -> str:
    """Write down metrics that a problem declares, to be read back without the problem."""
    return json.dumps([asdict(metric) for metric in own], indent=1)


def metrics_from_json(table: Any) -> tuple[Metric, ...]:
    """Return metrics as they were written down."""
    made = [Metric(**{**one, "samples": tuple(one["samples"])}) for one in table]
    return check_declared(made, "the run")


def read_metrics_table(folder: Path) -> tuple[Metric, ...]:
    """Return the metrics that the problem of a run folder declares.

    Raises:
        FileFormatError: if its table of them is damaged.
    """
    path = folder / "metrics.json"
    if not path.is_file():
        return ()
    try:
        return metrics_from_json(json_of(plain_bytes(path)))
    except (*DAMAGE, DigradError) as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _refuse_other_making(path: Path, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    for part in {**was, **now}:
        if was.get(part) != now.get(part):
            what = f"{path} does not belong to this run: its {part} is another"
            hint = f"delete {path} to run that job again, or start a new run with {param('out')}"
            raise RunFolderError(what, hint=hint)


def _by_name(code: Sequence[OwnCode]) -> dict[str, OwnCode]:
    """Return the user's own files by the names under which they are kept."""
    found: dict[str, OwnCode] = {}
    for own in code:
        if own.path is not None:
            other = found.setdefault(own.path.name, own)
            if other.path != own.path:
                what = f"two files of your own are called {own.path.name}"
                raise RunFolderError(what, hint="rename one, or put both into one file")
    return found


def environment() -> dict[str, str]:
    """Return the versions and the machine, for the record."""
    names = ("torch", "numpy", "scipy")
    return {
        "digrad": __version__,
        **{name: version(name) for name in names},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
    }


def _cell(x: float) -> str:
    if np.isnan(x):
        return ""
    return str(int(x)) if abs(x) < 1e15 and x == int(x) else repr(x)


def _refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> None:
    for key in {**before, **now}:
        was, is_ = before.get(key), now.get(key)
        if was != is_:
            if isinstance(was, Mapping) and isinstance(is_, Mapping):
                _refuse_changes(was, is_, f"{within}{key}.")
            raise RunFolderError(
                f"the experiment has changed since this run began: {within}{key} was "
                f"{was!r} and is {is_!r}",
                hint=f"undo the change, or start a new run with {param('out')}",
            )
