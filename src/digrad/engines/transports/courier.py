"""Carrying rows between ranks, with buffers that are used again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from digrad.engines.processes.exchange import Coming, Going
from digrad.engines.processes.routes import Route
from digrad.engines.transports.memory import Pool
from digrad.engines.transports.shared import SharedCourier
from digrad.engines.transports.wire import Message, Wire


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A message that leaves over the wire."""

    wire: Wire
    message: Message

    def wait(self, doing: str) -> object:
        """Wait until it has left."""
        return self.wire.wait(self.message, doing)


@dataclass(frozen=True, eq=False)
class Incoming:
    """A message that comes in over the wire, into a buffer of the pool."""

    wire: Wire
    message: Message
    pool: Pool
    buffer: Tensor

    def wait(self, doing: str) -> Tensor:
        """Wait for it."""
        return self.wire.wait(self.message, doing)

    def release(self) -> None:
        """Give the buffer back."""
        self.pool.give(self.buffer)


class WireCourier:
    """Every message goes over the wire; rows on a GPU pass through host memory for gloo."""

    def __init__(self, wire: Wire, device: torch.device) -> None:
        self._wire = wire
        staged = device.type != "cpu" and wire.needs_host_memory
        self._place = torch.device("cpu") if staged else device
        self._pool = Pool(self._place, pinned=staged)

    def post(
        self,
        outgoing: Sequence[tuple[tuple[int, ...], Tensor]],
        incoming: Sequence[tuple[int, tuple[int, ...]]],
        dtype: torch.dtype,
        tag: int,
        *,
        early: bool = False,
    ) -> tuple[list[Going], list[Coming]]:
        """Start sending and receiving."""
        buffers = [self._pool.take(shape, dtype) for _, shape in incoming]
        sends = [
            (peer, packed)
            for peers, rows in outgoing
            for packed in [rows.to(self._place, dtype).contiguous()]
            for peer in peers
        ]
        receives = [(peer, rows) for (peer, _), (_, rows) in zip(incoming, buffers, strict=True)]
        going, coming = self._wire.post(sends, receives, tag)
        return (
            [Outgoing(self._wire, message) for message in going],
            [
                Incoming(self._wire, message, self._pool, buffer)
                for message, (buffer, _) in zip(coming, buffers, strict=True)
            ],
        )


class MixedCourier:
    """Shared memory to some ranks, the wire to all others."""

    def __init__(self, wire: WireCourier, shared: SharedCourier, routes: Iterable[Route]) -> None:
        self._wire, self._shared = wire, shared
        self.all_near = all(
            all(arrival.peer in shared.writers for arrival in route.arrivals)
            and all(shared.readers.keys() >= set(packet.peers) for packet in route.packets)
            for route in routes
        )

    def post(
        self,
        outgoing: Sequence[tuple[tuple[int, ...], Tensor]],
        incoming: Sequence[tuple[int, tuple[int, ...]]],
        dtype: torch.dtype,
        tag: int,
        *,
        early: bool = False,
    ) -> tuple[list[Going], list[Coming]]:
        """Start sending and receiving, each rank its way."""
        readers, writers = self._shared.readers, self._shared.writers
        if self.all_near:
            return self._shared.post(outgoing, incoming, dtype, tag, early=early)
        far = [(tuple(p for p in peers if p not in readers), rows) for peers, rows in outgoing]
        near = [(tuple(p for p in peers if p in readers), rows) for peers, rows in outgoing]
        going, coming = self._wire.post(
            [(peers, rows) for peers, rows in far if peers],
            [(peer, shape) for peer, shape in incoming if peer not in writers],
            dtype,
            tag,
            early=early,
        )
        _, reading = self._shared.post(
            [(peers, rows) for peers, rows in near if peers],
            [(peer, shape) for peer, shape in incoming if peer in writers],
            dtype,
            tag,
            early=early,
        )
        by_wire, by_memory = iter(coming), iter(reading)
        return going, [
            next(by_memory) if peer in writers else next(by_wire) for peer, _ in incoming
        ]
