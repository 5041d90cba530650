"""Scalars for a logger: what a run does, every so many steps."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from digrad.base.checks import whole
from digrad.optim.loggers import Logger, as_logger
from digrad.optim.rows import Rows


class Watch:
    """Writes a run's scalars on rank 0; all ranks take part in measuring them.

    - ``loss``: the mean over all nodes of what ``note`` was told since the last step;
    - ``consensus``: √((1/n) Σᵢ ‖xᵢ - xhat‖²);
    - ``tracking``: √((1/n) Σᵢ ‖yᵢ - π_C(i) Σⱼ yⱼ‖²), for methods that track;
    - ``bytes``: sent so far over links, by this rank's nodes;
    - ``seconds/step``, ``seconds/communication``, ``seconds/compute``: of a step, a mean since
      the last entry. Communication is the time spent in exchanges, waiting included; what
      travels while gradients are computed costs none.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._logger: Logger | None = None
        self._every = 0  # 0: off
        self._loss: float | Tensor | None = None
        self._since, self._steps, self._exchanging = perf_counter(), 0, 0.0
        self._begun = self._ended = 0.0  # of all steps

    @property
    def seconds(self) -> float:
        """From the beginning of the first step to the end of the last."""
        return self._ended - self._begun

    def begin(self) -> None:
        """Begin a step."""
        if not self._begun:
            self._begun = self._ended = perf_counter()

    def open(self, logger: Any, every: int) -> None:
        """Begin to write; called on every rank, and only rank 0 writes."""
        self._every = whole(every, "every", least=1, hint="try 100")
        if self._rows.engine.rank == 0:
            self._logger = as_logger(logger)
        self._since, self._steps, self._exchanging = perf_counter(), 0, 0.0

    def note(self, loss: float | Tensor) -> None:
        """Keep the loss of this step; read only when it is written."""
        self._loss = loss.detach() if isinstance(loss, Tensor) else loss

    def step(self, t: int, seconds: float) -> None:
        """Count step t, which spent so many seconds in exchanges, and write when it is time."""
        self._ended = perf_counter()
        if not self._every:
            return
        self._steps += 1
        self._exchanging += seconds
        if t % self._every == 0:
            self._write(t, measure(self._rows, self._loss, t=t) | self._times())
            self._since, self._steps, self._exchanging = perf_counter(), 0, 0.0
        self._loss = None

    def _times(self) -> dict[str, float]:
        whole = (perf_counter() - self._since) / self._steps
        exchanging = self._exchanging / self._steps
        return {
            "seconds/step": whole,
            "seconds/communication": exchanging,
            "seconds/compute": whole - exchanging,
        }

    def _write(self, t: int, scalars: Mapping[str, float]) -> None:
        if self._logger is None:
            return
        # There is no loss if none was noted, no tracker in some methods.
        self._logger.log({tag: value for tag, value in scalars.items() if value == value}, step=t)


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
