"""Scalars for a logger: what a run does, every so many steps."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from digrad.base.checks import whole
from digrad.optim.loggers import Logger, as_logger
from digrad.optim.rows import Rows

Together = Callable[[Callable[[], dict[str, float]]], dict[str, float]]


class Watch:
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
        self._logger: Logger | None = None
        self._given: Any = None
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
        self._given = logger
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
            found = self._together(lambda: measure(self._rows, self._loss, t=t))
            if found:
                self._write(t, found | self._times())
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
        if self._rows.engine.rank:
            return
        if self._logger is None:  # among peers another becomes the first, if the first is lost
            self._logger = as_logger(self._given)
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
