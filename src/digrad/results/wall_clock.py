"""How long the steps of a real run took: ``seconds.csv`` in its folder."""

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from time import perf_counter

from digrad.base.errors import FileFormatError, message
from digrad.base.files import plain_bytes, write_whole

COLUMNS = ("network", "algorithm", "lr", "seed", "step", "seconds")
FILE = "seconds.csv"
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
        raise FileFormatError(message(f"{file} cannot be read: {error}", hint=hint)) from error
    return found
