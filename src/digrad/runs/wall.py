"""How long the steps of a real run took: ``seconds.csv`` in its folder."""

import csv
from io import StringIO
from pathlib import Path
from time import perf_counter

from digrad.base.atomic import write_whole
from digrad.base.files import plain_bytes

COLUMNS = ("network", "algorithm", "step", "seconds")
Name = tuple[str, str]  # network, algorithm


class WallClock:
    """Adds up the seconds of steps, without those of measuring and storing.

    A run that is resumed goes on with the seconds that it had.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "seconds.csv"
        self._rows: list[tuple[str, str, int, float]] = []
        self._since = self._arrived = 0.0
        if self._file.is_file():
            for row in csv.DictReader(StringIO(plain_bytes(self._file).decode())):
                name = row["network"], row["algorithm"]
                self._rows.append((*name, int(row["step"]), float(row["seconds"])))

    def begin(self) -> None:
        """Steps begin now."""
        self._since = perf_counter()

    def arrived(self) -> None:
        """Steps have been done."""
        self._arrived = perf_counter()

    def note(self, name: Name, t: int) -> None:
        """Write how long it took to come to step t; the next steps begin now."""
        before = [row for row in self._rows if row[:2] == name and row[2] < t]
        spent = (before[-1][3] if before else 0.0) + max(0.0, self._arrived - self._since)
        kept = [row for row in self._rows if row[:2] != name or row[2] < t]
        self._rows = [*kept, (*name, t, 0.0 if t == 0 else spent)]
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row[:3], f"{row[3]:.6f}") for row in self._rows)
        write_whole(self._file, out.getvalue().encode())
        self.begin()
