"""What a run folder knows of the processes that wrote it: ``processes.json``.

A simulated run has no such file. It says how rows travelled, since a run whose messages were
rounded must go on so, and who started it, so that workers that are started again by the same
launcher go on by themselves.
"""

import csv
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from time import perf_counter

from digrad.base.errors import FileFormatError, param
from digrad.base.files import json_of, plain_bytes, write_whole
from digrad.results.folder import RunFolderError

NAME = "processes.json"


@dataclass(frozen=True)
class Launch:
    """One start of a run on processes.

    Args:
        launcher: what started it; empty if it cannot be restarted.
        message_dtype: what rows were rounded to when they travelled; empty: to nothing.
    """

    launcher: str = ""
    message_dtype: str = ""

    @classmethod
    def read(cls, folder: Path) -> "Launch":
        """Return what a folder says; a simulated run has no launcher and rounds nothing."""
        path = folder / NAME
        if not os.path.exists(path):  # no error either where no file can be
            return cls()
        try:
            said = json_of(plain_bytes(path))
            return cls(str(said["launcher"]), str(said["message_dtype"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = f"delete {path} if the run's messages were exact"
            raise RunFolderError(f"{path} is damaged: {error}", hint=hint) from error

    def write(self, folder: Path) -> None:
        """Store it, whole or not at all."""
        write_whole(folder / NAME, json.dumps(asdict(self), indent=1).encode())

    def refuse_other_messages(self, wanted: str) -> None:
        """Raise if a run that is to go on has rounded its messages otherwise."""
        if self.message_dtype == wanted:
            return
        before, now = self.message_dtype or "exact", wanted or "exact"
        rounded = f"`digrad train --message-dtype {self.message_dtype}`"
        again = rounded if self.message_dtype else "`digrad train`"
        raise RunFolderError(
            f"the messages of this run were {before} and would now be {now}",
            hint=f"go on with {again}, or start a new run with {param('out')}",
        )


def launcher(environment: Mapping[str, str], parent: int) -> str:
    """Name the launcher of this process; empty if it was not torchrun.

    torchrun calls every run without an id of its own "none": then its process is the name.

    >>> launcher({"TORCHELASTIC_RUN_ID": "7f3a"}, 1), launcher({}, 1)
    ('7f3a', '')
    """
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    return f"{socket.gethostname()} {parent}" if run == "none" else run


COLUMNS = ("network", "algorithm", "lr", "seed", "step", "seconds")
FILE = "seconds.csv"  # how long the steps of a real run took
Name = tuple[str, str, float, int]  # of a trial, as in ``metrics.csv``


class WallClock:
    """Adds up the seconds of steps, without those of measuring and storing.

    All trials of a job take their steps together, and have the same seconds. A run that is
    resumed goes on with the seconds that it had.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._since = self._arrived = 0.0
        self._found = read_seconds(folder)

    def begin(self) -> None:
        """Steps begin now."""
        self._since = perf_counter()

    def arrived(self) -> None:
        """Steps have been done."""
        self._arrived = perf_counter()

    def note(self, trials: Sequence[Name], t: int) -> None:
        """Write how long these trials took to come to step t; the next steps begin now."""
        for name in trials:
            before = {step: spent for step, spent in self._found.get(name, {}).items() if step < t}
            spent = max(before.values(), default=0.0) + max(0.0, self._arrived - self._since)
            self._found[name] = before | {t: 0.0 if t == 0 else spent}
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, times in self._found.items():
            writer.writerows((*name, step, f"{spent:.6f}") for step, spent in times.items())
        write_whole(self._file, out.getvalue().encode())
        self.begin()


def read_seconds(folder: Path) -> dict[Name, dict[int, float]]:
    """Return the seconds of each trial by step; nothing if none were recorded.

    Raises:
        FileFormatError: the file is not what it should be.
    """
    file, found = folder / FILE, dict[Name, dict[int, float]]()
    if not file.is_file():
        return found
    try:
        for row in csv.DictReader(StringIO(plain_bytes(file).decode())):
            name = row["network"], row["algorithm"], float(row["lr"]), int(row["seed"])
            found.setdefault(name, {})[int(row["step"])] = float(row["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        hint = "remove it: only the seconds of the run are lost with it"
        raise FileFormatError(f"{file} cannot be read: {error}", hint=hint) from error
    return found
