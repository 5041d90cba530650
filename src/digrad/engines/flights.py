"""What a run of an asynchronous method consists of between two rounds."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from digrad.clocks.waves import Waiting

WAITING = tuple(f"waiting_{name}" for name in Waiting._fields)


class Who(NamedTuple):
    """The nodes of a wave, and which of its gradients each computes."""

    nodes: Tensor
    numbers: Tensor
    pairs: list[tuple[int, int]]  # both, for those who cannot wait for a GPU


Gradient = Callable[[Tensor, Who], Tensor]  # at these points


@dataclass(eq=False)
class Flight:
    """Where a run is: variables of nodes and parcels by name, and what is on its way."""

    state: Any  # of (nodes, trials, dim)
    parcels: dict[str, Tensor]  # (slots, trials, dim)
    waiting: Waiting | None


def by_node(values: Any) -> dict[str, Tensor]:
    """Lay variables out with the node first."""
    return {k: v.transpose(0, 1).contiguous() for k, v in values._asdict().items()}


def laid_out(state: Any) -> Any:
    """Lay a state out with the node first; cloned, as two variables may be one tensor."""
    return type(state)(**{k: v.clone() for k, v in by_node(state).items()})


@lru_cache(maxsize=64)
def _kind(fields: tuple[str, ...], parcels: tuple[str, ...]) -> Any:
    extra = [f"parcel_{name}" for name in parcels] + (list(WAITING) if parcels else [])
    return namedtuple("Stored", [*fields, *extra])  # fields known at run time


def stored(flight: Flight) -> Any:
    """Return a NamedTuple of tensors: the state's own fields first, the trial first in each."""
    kind = _kind(flight.state._fields, tuple(flight.parcels))
    rows = [*flight.state, *flight.parcels.values()]
    values = [v.transpose(0, 1) for v in rows]
    if flight.waiting is not None:
        values += [torch.from_numpy(np.asarray(part)) for part in flight.waiting]
    return kind(*values)


def taken_up(found: Any, state: type) -> Flight:
    """Go on from what was stored: copies, which steps may overwrite."""
    values = found._asdict()
    own = {k: values[k].transpose(0, 1).clone() for k in state._fields}  # type: ignore[attr-defined]
    parcels = {
        name.removeprefix("parcel_"): rows.transpose(0, 1).clone()
        for name, rows in values.items()
        if name.startswith("parcel_")
    }
    waiting = Waiting(*(values[k].cpu().numpy() for k in WAITING)) if parcels else None
    return Flight(state(**own), parcels, waiting)


class Steps:
    """The step sizes of all trials: base times a factor for each number.

    Args:
        base: of each trial, (trials,).
        schedule: from the number, counted from 0, to a factor.
    """

    def __init__(self, base: Tensor, schedule: Callable[[int], float]) -> None:
        self.base, self._schedule = base[:, None, None], schedule
        self._factors = np.zeros(0)
        self._sums = torch.zeros(1, dtype=torch.float64, device=base.device)

    def factors(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, Any]:
        """Return the factors of these numbers."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        return np.asarray(self._factors[numbers])

    def total(self, first: Tensor, last: Tensor) -> Tensor:
        """Add up the steps number first .. last, counted from 1; none if last < first."""
        self._grow(int(last.max()) if last.numel() else 0)
        count = self._sums[last.clamp(min=0)] - self._sums[(first - 1).clamp(min=0)]
        return self.base * torch.where(last >= first, count, 0.0).to(self.base.dtype)

    def _grow(self, count: int) -> None:
        have = len(self._factors)
        if count > have:
            more = [self._schedule(t) for t in range(have, max(count, 2 * have))]
            self._factors = np.concatenate([self._factors, np.array(more, dtype=np.float64)])
            sums = np.concatenate([[0.0], np.cumsum(self._factors)])
            self._sums = torch.as_tensor(sums).to(self.base.device)
