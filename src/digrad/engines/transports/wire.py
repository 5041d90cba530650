"""Messages between ranks through torch.distributed, with a limit on every wait."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from digrad.base.errors import ParameterError, message
from digrad.engines.processes.faults import Board, Notice, PeerError

POLL = 0.0001  # seconds between two looks at a batch on a GPU


@dataclass(frozen=True, eq=False)
class Message:
    """A tensor that is on its way to or from some ranks."""

    peers: tuple[int, ...]
    tensor: Tensor
    work: Any


class Wire:
    """Point-to-point messages over one process group; here gloo, in host memory.

    A wait that fails or lasts longer than ``timeout`` seconds becomes a ``PeerError`` that
    names the rank behind it, and so does every call after it.
    """

    needs_host_memory: ClassVar[bool] = True

    def __init__(self, group: Any, board: Board, timeout: float) -> None:
        self.timeout = timeout
        self._group, self._board = group, board
        self._failure: PeerError | None = None
        self.hang_up: Callable[[], None] = lambda: None  # what else to close on a failure

    def post(
        self,
        sends: Iterable[tuple[int, Tensor]],
        receives: Iterable[tuple[int, Tensor]],
        tag: int,
    ) -> tuple[list[Message], list[Message]]:
        """Start sending and receiving; messages of one tag keep their order."""
        self.check()
        coming = [self._start(dist.irecv, "group_src", peer, rows, tag) for peer, rows in receives]
        going = [self._start(dist.isend, "group_dst", peer, rows, tag) for peer, rows in sends]
        return going, coming

    def _start(self, call: Any, name: str, peer: int, rows: Tensor, tag: int) -> Message:
        try:
            return Message((peer,), rows, call(rows, group=self._group, tag=tag, **{name: peer}))
        except RuntimeError as error:
            raise self.fail((peer,), "starting a message", over=False) from error

    def wait(self, message: Message, doing: str) -> Tensor:
        """Wait for one message; ``doing`` tells the others what it was for."""
        self.check()
        started = time.monotonic()
        try:
            message.work.wait(timedelta(seconds=self.timeout))
        except (RuntimeError, ValueError) as error:
            over = time.monotonic() - started >= 0.9 * self.timeout
            raise self.fail(message.peers, doing, over=over) from error
        return message.tensor

    def check(self) -> None:
        """Raise again what made an earlier call fail."""
        if self._failure is not None:
            raise self._failure

    def fail(self, peers: Sequence[int], doing: str, *, over: bool) -> PeerError:
        """Tell the others whom this rank waited for in vain, and find out who is behind it."""
        whom = " and ".join(f"rank {peer}" for peer in peers)
        how = f"for {self.timeout:.3g} s" if over else "until the connection broke"
        reason = f"waited for {whom} {how}, {doing}"
        notice = Notice(reason, tuple(peers), lost=not over)
        self._failure = self._board.blame(notice, self.hang_up)
        return self._failure


class DeviceWire(Wire):
    """The same over NCCL, in device memory.

    All messages of a call are one batch, since NCCL matches them by order alone. NCCL would
    let the host run ahead of a batch that never ends, so a wait looks at it from the host;
    a batch begun early still travels beside whatever the device computes.
    """

    needs_host_memory: ClassVar[bool] = False

    def post(
        self,
        sends: Iterable[tuple[int, Tensor]],
        receives: Iterable[tuple[int, Tensor]],
        tag: int,
    ) -> tuple[list[Message], list[Message]]:
        self.check()
        going, coming = list(sends), list(receives)
        calls: list[tuple[Any, int, Tensor]] = [(dist.isend, *each) for each in going]
        calls += [(dist.irecv, *each) for each in coming]
        if not calls:
            return [], []
        batch = Batch(
            dist.batch_isend_irecv(
                [dist.P2POp(call, rows, group=self._group, group_peer=p) for call, p, rows in calls]
            )
        )
        peers = tuple(sorted({peer for _, peer, _ in calls}))
        return (
            [Message(peers, rows, batch) for _, rows in going],
            [Message(peers, rows, batch) for _, rows in coming],
        )


@dataclass(frozen=True)
class Batch:
    """Works that were started together, waited for as one."""

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


def wire_for(group: Any, device: torch.device, board: Board, timeout: float) -> Wire:
    """Choose how rows on a device travel in a process group."""
    backends = dist.distributed_c10d.BackendConfig(
        dist.Backend(dist.get_backend_config(group))
    ).get_device_backend_map()
    if device.type != "cpu" and backends.get(device.type) == "nccl":
        wire = DeviceWire(group, board, timeout)
        # NCCL makes its connections in the first call, in which all ranks must take part.
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        return wire
    if backends.get("cpu") == "gloo":
        return Wire(group, board, timeout)
    raise ParameterError(
        message(
            f"rows on {device.type} cannot travel in a process group of {backends}",
            hint="use backend='gloo' for CPUs, 'cpu:gloo,cuda:nccl' for GPUs",
        )
    )
