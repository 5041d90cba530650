"""Scalars of an experiment for TensorBoard: one curve for each trial."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from digrad.base.errors import ParameterError, message
from digrad.optim.loggers import Writer
from digrad.runs.execution import Numbers


class Scalars:
    """Writes what is recorded, and how long a step took since the last record.

    ``seconds/communication`` is the time spent in exchanges, waiting included.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Writer] = {}
        self._last = (0, 0.0, 0.0)  # steps, time and seconds of exchanges at the last record
        self._arrived = (0.0, 0.0)

    @staticmethod
    def check() -> None:
        """Raise if TensorBoard is not installed, before the work starts."""
        if find_spec("tensorboard") is None:
            hint = "pip install 'digrad[tensorboard]'"
            raise ParameterError(message("TensorBoard is not installed", hint=hint))

    def arrived(self, engine: Any) -> None:
        """Stop the clock: measuring is not part of a step."""
        self._arrived = perf_counter(), engine.seconds

    def write(
        self,
        labels: Sequence[tuple[str, str, float, int]],
        names: Sequence[str],
        engine: Any,
        t: int,
        numbers: Numbers,
    ) -> None:
        """Write one record of all trials of a job: metrics by their names."""
        times = self._times(t)
        for label, row in zip(labels, numbers.tolist(), strict=True):
            writer = self._writer(label)
            for tag, value in (*zip(names, row, strict=True), *times.items()):
                if value == value:  # what has no meaning for a problem is not a number
                    writer.add_scalar(tag, value, t)
            writer.flush()
        self._last = t, perf_counter(), engine.seconds

    def _times(self, t: int) -> dict[str, float]:
        before, since, exchanging = self._last
        if t <= before or since == 0.0:
            return {}
        whole = (self._arrived[0] - since) / (t - before)
        communication = (self._arrived[1] - exchanging) / (t - before)
        return {
            "seconds/step": whole,
            "seconds/communication": communication,
            "seconds/compute": whole - communication,
        }

    def _writer(self, label: tuple[str, str, float, int]) -> Writer:
        network, algorithm, size, seed = label
        name = re.sub(r"[^\w.+-]+", "-", f"{network} {algorithm} step {size:g} seed {seed}")
        if name not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[name] = SummaryWriter(str(self._folder / name))
        return self._writers[name]
