"""Rows between ranks as point-to-point messages of a ``torch.distributed`` process group."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from digrad.base.errors import ParameterError
from digrad.engines.transports.buffers import BufferPool
from digrad.engines.transports.transport import Batch, LinkError, Receiving, Sending

POLL = 0.0001  # seconds between two looks at a batch on a GPU
NEVER = (1 << 31) - 1  # a tag that no message has
AT_ONCE = timedelta(milliseconds=1)
RankRows: TypeAlias = tuple[int, Tensor]  # a rank, and the rows for it or the memory for its rows
Started: TypeAlias = tuple[tuple[int, ...], Any]  # ranks to wait for, and what PyTorch made of it


class TorchWire:
    """Carries rows over gloo or NCCL; for gloo, those on a GPU pass through host memory.

    Args:
        timeout: seconds that any wait may last.
    """

    def __init__(self, group: Any, device: torch.device, timeout: float) -> None:
        self._group, self._timeout = group, timeout
        self.on_device = _uses_nccl(group, device)
        staged = device.type != "cpu" and not self.on_device
        self._place = torch.device("cpu") if staged else device
        self._pool = BufferPool(self._place, pinned=staged)
        self._start = start_batch if self.on_device else start_each
        if self.on_device:
            # NCCL makes its connections in the first call, in which all ranks must take part.
            dist.all_reduce(torch.zeros(1, device=device), group=group)

    def post(self, batch: Batch) -> tuple[list[Sending], list[Receiving]]:
        """Start sending and receiving."""
        place, dtype = self._place, batch.dtype
        buffers = [self._pool.take(shape, dtype) for _, shape in batch.incoming]
        packed = [(peers, rows.to(place, dtype).contiguous()) for peers, rows in batch.outgoing]
        sends = [(peer, rows) for peers, rows in packed for peer in peers]
        receives = [
            (peer, rows) for (peer, _), (_, rows) in zip(batch.incoming, buffers, strict=True)
        ]
        going, coming = self._start(self._group, sends, receives, batch.tag)
        return (
            [
                Message(rows, *started, self._timeout)
                for (_, rows), started in zip(sends, going, strict=True)
            ],
            [
                Message(rows, *started, self._timeout, partial(self._pool.give, buffer))
                for (buffer, rows), started in zip(buffers, coming, strict=True)
            ],
        )

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Offer none: rows leave from where they are."""
        return None

    def close(self) -> None:
        """Do nothing: the process group belongs to whoever made it."""

    def hang_up(self) -> None:
        """Break the connections of a group that is of no use any more: whoever waits then hears.

        Gloo has no call for it, but closes all of them when one wait ends in vain.
        """
        if self.on_device:
            return
        for peer in set(range(dist.get_world_size(self._group))) - {dist.get_rank(self._group)}:
            with suppress(RuntimeError, ValueError):  # that one is closed already
                nothing = start_each(self._group, [], [(peer, torch.empty(1))], NEVER)[1]
                nothing[0][1].wait(AT_ONCE)


@dataclass(frozen=True, eq=False)
class Message:
    """Rows on their way, out or in."""

    rows: Tensor
    peers: tuple[int, ...]
    work: Any
    timeout: float
    release: Callable[[], None] = lambda: None

    def wait(self) -> Tensor:
        """Wait until they have left, or are there."""
        started = time.monotonic()
        try:
            self.work.wait(timedelta(seconds=self.timeout))
        except (RuntimeError, ValueError) as error:
            over = time.monotonic() - started >= 0.9 * self.timeout
            raise LinkError(self.peers, timed_out=over) from error
        return self.rows


def start_each(
    group: Any, sends: Sequence[RankRows], receives: Sequence[RankRows], tag: int
) -> tuple[list[Started], list[Started]]:
    """Start one message after the other, as gloo takes them."""

    def start(call: Any, name: str, peer: int, rows: Tensor) -> Started:
        try:
            return (peer,), call(rows, group=group, tag=tag, **{name: peer})
        except RuntimeError as error:
            raise LinkError((peer,), timed_out=False) from error

    coming = [start(dist.irecv, "group_src", *each) for each in receives]
    return [start(dist.isend, "group_dst", *each) for each in sends], coming


def start_batch(
    group: Any, sends: Sequence[RankRows], receives: Sequence[RankRows], tag: int
) -> tuple[list[Started], list[Started]]:
    """Start all messages as one batch, since NCCL matches them by order alone.

    They also end together, so waiting for one may be waiting for any rank.
    """
    calls = [(dist.isend, *each) for each in sends] + [(dist.irecv, *each) for each in receives]
    if not calls:
        return [], []
    works = Works(
        dist.batch_isend_irecv(
            [dist.P2POp(call, rows, group=group, group_peer=peer) for call, peer, rows in calls]
        )
    )
    started = tuple(sorted({peer for _, peer, _ in calls})), works
    return [started] * len(sends), [started] * len(receives)


@dataclass(frozen=True)
class Works:
    """Works that were started together, waited for as one.

    NCCL would let the host run ahead of a batch that never ends, so a wait looks at it from the
    host; a batch begun early still travels beside whatever the device computes.
    """

    works: Sequence[Any]

    def wait(self, timeout: timedelta) -> None:
        """Wait on the host until all are through, then let the current stream use them."""
        end = time.monotonic() + timeout.total_seconds()
        for work in self.works:
            while not work.is_completed():
                if time.monotonic() > end:
                    raise RuntimeError("a batch of NCCL did not end in time")
                time.sleep(POLL)
            work.wait()  # raises if it failed; orders the current stream after it


def _uses_nccl(group: Any, device: torch.device) -> bool:
    """Whether rows on a device travel in its own memory; refuse groups in which they cannot."""
    backends = dist.distributed_c10d.BackendConfig(
        dist.Backend(dist.get_backend_config(group))
    ).get_device_backend_map()
    if device.type != "cpu" and backends.get(device.type) == "nccl":
        return True
    if backends.get("cpu") == "gloo":
        return False
    what = f"rows on {device.type} cannot travel in a process group of {backends}"
    hint = "use backend='gloo' for CPUs, 'cpu:gloo,cuda:nccl' for GPUs"
    raise ParameterError(what, hint=hint)
