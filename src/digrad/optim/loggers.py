"""Where the scalars of a run go: one method, ``log``, which Weights & Biases has as it is.

opt.watch("runs/one")                      # TensorBoard
opt.watch(CSVLogger("scalars.csv"))
opt.watch(wandb.init(project="mine"))
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from digrad.base.checks import kind_of
from digrad.base.errors import ParameterError, message, shown


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
    """Writes a row for every step into a file; what is there already is kept.

    The columns are those of the first row, which must come again in every other.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(kind_of(path, "path", str, Path))
        self._columns: list[str] = []
        if self._path.exists():
            with self._path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file), [])

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Write one row."""
        row = {"step": step, **scalars}
        try:
            with self._path.open("a", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                if not self._columns:
                    self._columns = list(row)
                    writer.writerow(self._columns)
                if set(row) != set(self._columns):
                    what = f"{self._path} has the columns {', '.join(self._columns)}, not "
                    hint = "name another file, or note the loss at every entry or none"
                    raise ParameterError(message(f"{what}{', '.join(row)}", hint=hint))
                writer.writerow([row[column] for column in self._columns])
        except OSError as error:
            what = f"{self._path} cannot be written: {error}"
            raise ParameterError(
                message(what, hint="name a file in a folder that is there")
            ) from error


def as_logger(given: Any) -> Logger:
    """Return a logger as it is; make one of a folder for TensorBoard, or of a ``SummaryWriter``."""
    if isinstance(given, str | Path) or hasattr(given, "add_scalar"):
        return TensorBoardLogger(given)
    if isinstance(given, type) or not isinstance(given, Logger):
        what = f"{shown(given)} is no logger: it has no method log(scalars, step)"
        hint = "pass a folder, CSVLogger(path), a SummaryWriter or wandb.init()"
        raise ParameterError(message(what, hint=hint))
    return given


def _summary_writer(folder: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ParameterError(
            message("TensorBoard is not installed", hint="pip install 'digrad[tensorboard]'")
        ) from None
    return SummaryWriter(folder)
