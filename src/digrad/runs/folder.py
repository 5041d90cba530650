"""The folder of a run: what is on disk is always whole, and enough to go on from.

    experiment.toml    the experiment as it was run, every default written out
    environment.json   versions and machine
    metrics.csv        one row per trial and recorded step
    jobs/000.npz       one job (a network, an algorithm, some trials): its records so far and,
                       until it is done, the state to go on from

Files are written next to their place and moved there. metrics.csv is derived from jobs/.
"""

import csv
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from digrad import __version__
from digrad.base.atomic import write_whole
from digrad.base.errors import DigradError, message
from digrad.runs.experiment import Experiment, load_experiment, to_table
from digrad.runs.metrics import METRICS

COLUMNS = ("network", "algorithm", "step_size", "seed", "step", *METRICS, "diverged_at")
# What NumPy and zipfile raise on bytes that are not what was written.
DAMAGE = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, BadZipFile)
Records = NDArray[np.float64]


class RunFolderError(DigradError):
    """A run folder that cannot be written to or gone on from."""


@dataclass(frozen=True)
class JobFile:
    """What is known of one job."""

    t: int  # steps done
    done: bool
    records: Records  # (rows, trials, metrics), row k belongs to steps[k]
    steps: NDArray[np.int64]
    diverged_at: NDArray[np.int64]  # per trial; -1: not
    state: dict[str, NDArray[Any]]  # the state's tensors by field; empty once done


@dataclass(frozen=True)
class RunFolder:
    """One run on disk."""

    path: Path

    def check(self, experiment: Experiment, *, resume: bool) -> Experiment:
        """Check that the folder is free or, to resume, that it holds this very experiment.

        Returns the experiment to run: the stored one when resuming, so that settings that
        depend on the machine stay what they were.
        """
        stored = self.path / "experiment.toml"
        if not os.path.exists(stored):  # no error either where no file can be
            if resume:
                hint = "start it without --resume"
                raise RunFolderError(message(f"{self.path} holds no run to resume", hint=hint))
            return experiment
        if not resume:
            hint = "--resume goes on with it; --out names another folder"
            raise RunFolderError(message(f"{self.path} already holds a run", hint=hint))
        before = load_experiment(stored)
        _refuse_changes(to_table(before), to_table(experiment))
        return before

    def begin(self, experiment: Experiment) -> None:
        """Write down what is run and where, unless that is done."""
        stored = self.path / "experiment.toml"
        if not os.path.exists(stored):
            machine = json.dumps(environment(), indent=1).encode()
            write_whole(self.path / "environment.json", machine)
            write_whole(stored, toml_text(to_table(experiment)).encode())

    def job(self, k: int) -> JobFile | None:
        """Return what a job left behind; none if it has not begun."""
        path = self._job_path(k)
        if not path.exists():
            return None
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as data:
                state = {name: data[f"state_{name}"] for name in data["fields"].tolist()}
                done, t = bool(data["done"]), int(data["t"])
                return JobFile(t, done, data["records"], data["steps"], data["diverged_at"], state)
        except DAMAGE as error:
            hint = f"delete {path} to run that job again"
            raise RunFolderError(message(f"{path} is damaged: {error}", hint=hint)) from error

    def save_job(self, k: int, job: JobFile) -> None:
        """Store a job, whole or not at all."""
        out = BytesIO()
        state = {f"state_{name}": array for name, array in job.state.items()}
        np.savez(
            out,
            t=job.t,
            done=job.done,
            records=job.records,
            steps=job.steps,
            diverged_at=job.diverged_at,
            fields=np.array(list(job.state), dtype=np.str_),
            **state,  # type: ignore[arg-type]  # numpy types savez's own keyword as bool
        )
        write_whole(self._job_path(k), out.getvalue())

    def write_metrics(
        self, jobs: Sequence[tuple[Sequence[tuple[str, str, float, int]], JobFile]]
    ) -> None:
        """Write metrics.csv: per job the (network, algorithm, step size, seed) of its trials."""
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for labels, job in jobs:
            for trial, label in enumerate(labels):
                end = int(job.diverged_at[trial])
                for k, step in enumerate(job.steps.tolist()):
                    if 0 <= end <= step:
                        break
                    numbers = (_cell(x) for x in job.records[k, trial].tolist())
                    writer.writerow([*label, step, *numbers, "" if end < 0 else end])
        write_whole(self.path / "metrics.csv", out.getvalue().encode())

    def _job_path(self, k: int) -> Path:
        return self.path / "jobs" / f"{k:03d}.npz"


def environment() -> dict[str, str]:
    """Return the versions and the machine, for the record."""
    names = ("torch", "numpy", "scipy")
    return (
        {"digrad": __version__}
        | {name: version(name) for name in names}
        | {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processor": platform.machine(),
        }
    )


def toml_text(table: Mapping[str, Any], prefix: str = "") -> str:
    """Write nested tables as TOML: values first, then tables and arrays of tables."""
    lines, later = [], []
    for key, value in table.items():
        name = f"{prefix}{_key(key)}"
        if isinstance(value, Mapping) and value:
            later.append(f"\n[{name}]\n{toml_text(value, name + '.')}")
        elif isinstance(value, list | tuple) and value and _all_tables(value):
            later += [f"\n[[{name}]]\n{toml_text(item, name + '.')}" for item in value]
        else:
            lines.append(f"{_key(key)} = {_toml_value(value)}")
    return "\n".join(lines) + ("\n" if lines else "") + "".join(later)


def _key(key: str) -> str:
    plain = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if plain else _quoted(key)


def _quoted(text: str) -> str:
    """Escape as JSON does, which TOML reads, but for the character that JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _all_tables(values: Sequence[Any]) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)} = {_toml_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)


def _cell(x: float) -> str:
    if np.isnan(x):
        return ""
    return str(int(x)) if abs(x) < 1e15 and x == int(x) else repr(x)


def _refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> None:
    for key in before:
        if before[key] != now.get(key):
            if isinstance(before[key], Mapping) and isinstance(now.get(key), Mapping):
                _refuse_changes(before[key], now[key], f"{within}{key}.")
            raise RunFolderError(
                message(
                    f"the experiment has changed since this run began: {within}{key} was "
                    f"{before[key]!r} and is {now.get(key)!r}",
                    hint="undo the change (was it --quick?), or start a new run with --out",
                )
            )
