"""Scalars for a logger: what a run does, every so many steps."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from digrad.base.checks import whole
from digrad.optim.loggers import CSVLogger, Logger, as_logger
from digrad.optim.rows import Rows

Together = Callable[[Callable[[], dict[str, float]]], dict[str, float]]


class ScalarLog:
    """Writes a run's scalars on rank 0; all ranks take part in measuring them.

    - ``loss``: the mean over all nodes of what ``note`` was told since the last step;
    - ``consensus``: √((1/n) Σᵢ ‖xᵢ - xhat‖²);
    - ``tracking``: √((1/n) Σᵢ ‖yᵢ - π_C(i) Σⱼ yⱼ‖²), for methods that track;
    - ``bytes``: sent so far over links, by this rank's nodes;
    - ``seconds/step``, ``seconds/communication``, ``seconds/compute``: of a step, a mean since
      the last entry. Communication is the time spent in exchanges, waiting included; what
      travels while gradients are computed costs none.

    Args:
        rows: what is measured.
        together: does what all nodes have to do together; nothing comes of it where the others
            have already done so.
    """

    def __init__(self, rows: Rows, together: Together = lambda ask: ask()) -> None:
        self._rows, self._together = rows, together
        self._loggers: list[_Entries] = []
        self._loss: float | Tensor | None = None
        self._first: int | None = None  # steps before the first one here
        self._begun = self._ended = 0.0  # of all steps

    @property
    def seconds(self) -> float:
        """From the beginning of the first step to the end of the last."""
        return self._ended - self._begun

    def begin(self) -> None:
        """Begin a step."""
        if not self._begun:
            self._begun = self._ended = perf_counter()

    def open(self, logger: Any, log_every: int) -> None:
        """Write to one logger more; called on every rank, and only rank 0 writes."""
        entries = _Entries(logger, whole(log_every, "log_every", least=1, hint="try 100"))
        if self._rows.engine.rank == 0:
            entries.logger = as_logger(logger)
        self._loggers.append(entries)

    def note(self, loss: float | Tensor) -> None:
        """Keep the loss of this step; read only when it is written."""
        self._loss = loss.detach() if isinstance(loss, Tensor) else loss

    def step(self, t: int, seconds: float) -> None:
        """Count step t, which spent so many seconds in exchanges, and write when it is time."""
        self._ended = perf_counter()
        self._first = t - 1 if self._first is None else self._first
        for entries in self._loggers:
            entries.count(seconds)
        due = [entries for entries in self._loggers if t % entries.every == 0]
        if due:
            found = self._together(lambda: measure(self._rows, self._loss, t=t))
            for entries in due:
                if found and not self._rows.engine.rank:
                    entries.write(t, found, self._first)
                entries.restart()
        self._loss = None


class _Entries:
    """A logger, how often it is written to, and the times since it was."""

    def __init__(self, given: Any, every: int) -> None:
        self._given, self.every = given, every
        self.logger: Logger | None = None
        self._begun = False
        self.restart()

    def restart(self) -> None:
        """Begin to count for the next entry."""
        self._since, self._steps, self._exchanging = perf_counter(), 0, 0.0

    def count(self, seconds: float) -> None:
        """Count a step, which spent so many seconds in exchanges."""
        self._steps += 1
        self._exchanging += seconds

    def write(self, t: int, found: Mapping[str, float], first: int) -> None:
        """Write an entry; ``first`` is how many steps the run had behind it here."""
        if self.logger is None:  # among peers another becomes the first, if the first is lost
            self.logger = as_logger(self._given)
        if not self._begun and isinstance(self.logger, CSVLogger):
            self.logger.begin(first)
        self._begun = True
        # There is no loss if none was noted, no tracker in some methods.
        scalars = {tag: value for tag, value in found.items() if value == value}
        self.logger.log(scalars | self._times(), step=t)

    def _times(self) -> dict[str, float]:
        whole = (perf_counter() - self._since) / self._steps
        exchanging = self._exchanging / self._steps
        return {
            "seconds/step": whole,
            "seconds/communication": exchanging,
            "seconds/compute": whole - exchanging,
        }


@torch.no_grad()
def measure(rows: Rows, loss: float | Tensor | None = None, *, t: int = 0) -> dict[str, float]:
    """Measure over all nodes after t steps; all ranks must ask, and hear the same but ``bytes``."""
    engine, algorithm, models = rows.engine, rows.algorithm, rows.models
    ones = torch.ones(rows.n, dtype=torch.float64)
    settled, weights = rows.tracker_weights(t)[engine.rows], rows.answer_weights(t)
    settled = settled.to(models.device).unsqueeze(-1)
    found = settled.new_zeros(len(models), 3)
    found[:, 0] = torch.nan if loss is None else torch.as_tensor(loss).to(found)
    for bucket in rows.buckets:
        xhat = engine.weighted(algorithm.answer(bucket.state), weights)
        found[:, 1] += (bucket.models - xhat).square().sum(-1)
        y = algorithm.tracker(bucket.state)
        found[:, 2] += (
            torch.nan if y is None else (y - settled * engine.weighted(y, ones)).square().sum(-1)
        )
    mean_loss, apart, off = (engine.weighted(found.to(models.dtype), ones) / rows.n).tolist()
    return {
        "loss": mean_loss,
        "consensus": apart**0.5,
        "tracking": off**0.5,
        "bytes": float(engine.sent.bytes),
    }
