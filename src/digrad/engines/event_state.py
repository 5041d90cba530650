"""What a run of an asynchronous method consists of between two rounds."""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from digrad.clocks.waves import PendingMessages

STACKED = 1 << 16  # numbers of a variable up to which it pays to write several at once
WAITING = tuple(f"waiting_{name}" for name in PendingMessages._fields)


class Activation(NamedTuple):
    """The nodes of a wave, and which of its gradients each computes."""

    nodes: Tensor
    numbers: Tensor
    pairs: list[tuple[int, int]]  # both, where waiting for a GPU would cost time


Gradient = Callable[[Tensor, Activation], Tensor]  # at these points, (rows, trials, dim)


class VariableTable:
    """Variables of many rows; those of one shape lie together and are read and written at once.

    Args:
        kind: the NamedTuple that they make.
        values: its fields, each (rows, trials, numbers).
    """

    def __init__(self, kind: Any, values: Mapping[str, Tensor]) -> None:
        self.kind, self._packs = kind, dict[tuple[str, ...], Tensor]()
        shapes: dict[Any, list[str]] = {}
        for name, rows in values.items():
            shapes.setdefault((rows.dtype, rows.shape[-1]), []).append(name)
        for names in shapes.values():
            self._packs[tuple(names)] = torch.stack([values[name] for name in names])

    def __getitem__(self, name: str) -> Tensor:
        """Return one variable of all rows, a view of (rows, trials, numbers)."""
        return next(p[names.index(name)] for names, p in self._packs.items() if name in names)

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Return all variables by name, in order."""
        return ((name, self[name]) for name in self.kind._fields)

    def take(self, rows: Tensor) -> Any:
        """Return some rows as the NamedTuple, each (rows, trials, numbers)."""
        found: dict[str, Tensor] = {}
        for names, pack in self._packs.items():
            found.update(zip(names, pack.index_select(1, rows).unbind(), strict=True))
        return self.kind(**found)

    def put(self, rows: Tensor, values: Any) -> None:
        """Write rows back."""
        for names, pack in self._packs.items():
            new = [getattr(values, name) for name in names]
            if len(new) > 1 and new[0].numel() < STACKED:
                pack.index_copy_(1, rows, torch.stack(new))
                continue
            for k, one in enumerate(new):
                pack[k].index_copy_(0, rows, one)

    def grow(self, count: int) -> None:
        """Have at least so many rows."""
        for names, pack in self._packs.items():
            fields, have, *rest = pack.shape
            if have < count:
                more = pack.new_zeros(fields, max(count, 2 * have) - have, *rest)
                self._packs[names] = torch.cat([pack, more], 1)


@dataclass(eq=False)
class EventState:
    """Where a run is: variables of the nodes, parcels in their slots, what is on its way."""

    state: VariableTable
    parcels: VariableTable | None
    waiting: PendingMessages | None


def put_node_first(values: Any) -> dict[str, Tensor]:
    """Lay variables out with the node first."""
    return {k: v.transpose(0, 1).contiguous() for k, v in values._asdict().items()}


@lru_cache(maxsize=64)
def _kind(fields: tuple[str, ...], parcels: tuple[str, ...]) -> Any:
    extra = [f"parcel_{name}" for name in parcels] + (list(WAITING) if parcels else [])
    return namedtuple("Stored", [*fields, *extra])  # fields known at run time


def pack_state(flight: EventState) -> Any:
    """Return the state as a NamedTuple of tensors: own fields first, with the trial axis first."""
    parcels = dict(flight.parcels.items()) if flight.parcels is not None else {}
    kind = _kind(flight.state.kind._fields, tuple(parcels))
    rows = [*(v for _, v in flight.state.items()), *parcels.values()]
    values = [v.transpose(0, 1).contiguous() for v in rows]
    if flight.waiting is not None:
        values += [torch.from_numpy(np.asarray(part)) for part in flight.waiting]
    return kind(*values)


def unpack_state(found: Any, state: Any, parcel: Any) -> EventState:
    """Return the state from what was stored: copies, which steps may overwrite."""
    values = found._asdict()
    own = {name: values[name].transpose(0, 1) for name in state._fields}
    if parcel is None:
        return EventState(VariableTable(state, own), None, None)
    sent = {name: values[f"parcel_{name}"].transpose(0, 1) for name in parcel._fields}
    waiting = PendingMessages(*(values[k].cpu().numpy() for k in WAITING))
    return EventState(VariableTable(state, own), VariableTable(parcel, sent), waiting)


class StepSizes:
    """The step sizes of all trials: base times a factor for each number.

    Args:
        base: of each trial, (trials,).
        schedule: from the number, counted from 0, to a factor.
    """

    def __init__(self, base: Tensor, schedule: Callable[[int], float]) -> None:
        self.base, self._schedule = base[:, None], schedule
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
