"""Whether all ranks still ask for the same: options of parameter groups, which schedulers change.

They begin alike, or no run begins. A scheduler that looks at each node's own loss lets them drift
apart, and the methods' step is then no longer that of the common model.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from digrad.base.errors import message
from digrad.engines.processes.faults import ranks

SHOWN = 3  # values that a warning names


def options_row(groups: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Tensor:
    """Return some options of all groups as bytes, which travel exactly in any type."""
    numbers = [x for group in groups for name in names for x in _numbers(group[name])]
    return torch.tensor(list(struct.pack(f">{len(numbers)}d", *numbers)))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, bool | int | float | Tensor):
        yield float(value)
    else:  # a text, or none: to be compared, not to be shown
        yield float(crc32(repr(value).encode()))


def disagreement(
    rows: Tensor, blocks: Sequence[int], groups: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> str:
    """Say which options differ between ranks, and what to do; nothing if none does.

    Args:
        rows: what ``options_row`` has made for every node.
        blocks: how many nodes each rank has.
        groups: this rank's.
        names: of the options.
    """
    every = [_read(row) for row in rows.tolist()]
    if all(one == every[0] for one in every):
        return ""
    rank_of = [rank for rank, count in enumerate(blocks) for _ in range(count)]
    said, place = [], 0
    for k, group in enumerate(groups):
        for name in names:
            stop = place + len(list(_numbers(group[name])))
            found = _by_value([one[place:stop] for one in every], rank_of)
            said += [f"group {k}: {name} is {found}"] if found else []
            place = stop
    hint = (
        "give schedulers the same number on every rank, as ReduceLROnPlateau a mean loss: "
        "torch.distributed.all_reduce(loss); scheduler.step(loss / world)"
    )
    return message("the ranks have come to different options", *said, hint=hint)


def _read(row: Sequence[float]) -> tuple[float, ...]:
    return struct.unpack(f">{len(row) // 8}d", bytes(map(int, row)))


def _by_value(values: Sequence[tuple[float, ...]], rank_of: Sequence[int]) -> str:
    """Say which ranks have which value; nothing if all have one."""
    who: dict[str, set[int]] = {}
    for value, rank in zip(values, rank_of, strict=True):
        who.setdefault(", ".join(f"{x:.6g}" for x in value), set()).add(rank)
    if len(who) < 2 and len(set(values)) < 2:
        return ""
    parts = [f"{value} on {ranks(which)}" for value, which in list(who.items())[:SHOWN]]
    return "; ".join(parts) + (" ..." if len(who) > SHOWN else "")
