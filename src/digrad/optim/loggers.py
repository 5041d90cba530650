"""Where the scalars of a run go: one method, ``log``, which Weights & Biases has as it is.

opt.watch("runs/one")                      # TensorBoard
opt.watch("scalars.csv")                   # a CSVLogger
opt.watch(wandb.init(project="mine"))
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from digrad.base.checks import kind_of
from digrad.base.errors import ParameterError, short_repr


@runtime_checkable
class Logger(Protocol):
    """What we ask of a logger; a run of Weights & Biases is one."""

    def log(self, scalars: dict[str, float], step: int) -> None:
        """Keep some scalars of one step; steps come in order."""
        ...


class Writer(Protocol):
    """What we ask of a writer: ``torch.utils.tensorboard.SummaryWriter`` has it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def flush(self) -> None: ...


class TensorBoardLogger:
    """Hands scalars to a ``SummaryWriter``.

    Args:
        writer: one, or a folder for one.
    """

    def __init__(self, writer: Writer | str | Path) -> None:
        self._writer: Writer = (
            _summary_writer(str(writer)) if isinstance(writer, str | Path) else writer
        )

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Add them, and see that they can be read."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()


class CSVLogger:
    """Writes a row for every step into a file, and goes on in the file of a run that is resumed.

    A file of another run, or with rows behind the step that a run was resumed at, is kept as
    ``scalars.1.csv``: runs never mix. The columns are those of the first row, which must come again
    in every other.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(kind_of(path, "path", str, Path))
        self._columns: list[str] = []
        self._last: int | None = None  # the step of the last row; none before the first
        if self._path.exists():
            self._columns, steps = _rows(self._path)
            self._last = int(steps[-1][0]) if steps else None

    def begin(self, step: int) -> None:
        """Say how many steps the run has behind it: rows of later ones are another run's."""
        if self._last is not None and self._last > step:
            columns, rows = _rows(self._path)
            kept = [row for row in rows if int(row[0]) <= step]
            self._path.rename(free_name(self._path))
            self._columns, self._last = [], None
            if kept:
                self._append([columns, *kept])
                self._columns, self._last = columns, int(kept[-1][0])

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Write one row."""
        row = {"step": step, **scalars}
        try:
            self.begin(step - 1)
            if self._columns and set(row) != set(self._columns):
                what = f"{self._path} has the columns {', '.join(self._columns)}, not "
                hint = "name another file, or note the loss at every entry or none"
                raise ParameterError(f"{what}{', '.join(row)}", hint=hint)
            header = [] if self._columns else [list(row)]
            self._columns = self._columns or list(row)
            self._append([*header, [row[column] for column in self._columns]])
            self._last = step
        except OSError as error:
            what = f"{self._path} cannot be written: {error}"
            raise ParameterError(what, hint="name a file in a folder that is there") from error

    def _append(self, rows: list[list[Any]]) -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a file and its rows, those that were written whole."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file)) or [[]]
        whole = [row for row in rows if len(row) == len(header)]
        if header and (header[0] != "step" or not all(row[0].isdecimal() for row in whole)):
            raise ValueError(f"its first column is {short_repr(header[0])}")
        return header, whole
    except (OSError, ValueError, csv.Error) as error:
        what = f"{path} is no file of scalars by step: {error}"
        raise ParameterError(what, hint="name another file") from error


def free_name(path: Path) -> Path:
    """Return ``a.1.csv`` for ``a.csv``, or the next number that is free."""
    names = (path.with_suffix(f".{k}{path.suffix}") for k in range(1, 1 << 20))
    return next(name for name in names if not name.exists())


def as_logger(given: Any) -> Logger:
    """Return a logger as it is; make one of a file, a folder, or a ``SummaryWriter``."""
    if isinstance(given, str | Path) and Path(given).suffix.lower() == ".csv":
        return CSVLogger(given)
    if isinstance(given, str | Path) or hasattr(given, "add_scalar"):
        return TensorBoardLogger(given)
    if isinstance(given, type) or not isinstance(given, Logger):
        what = f"{short_repr(given)} is no logger: it has no method log(scalars, step)"
        hint = "pass a folder, a file scalars.csv, a SummaryWriter or wandb.init()"
        raise ParameterError(what, hint=hint)
    return given


def _summary_writer(folder: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ParameterError(
            "TensorBoard is not installed", hint="pip install 'digrad[tensorboard]'"
        ) from None
    return SummaryWriter(folder)
