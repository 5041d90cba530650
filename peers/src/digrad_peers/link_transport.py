"""Rows over the links of a node: the transport of ``engines.transports`` on connections."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from digrad.engines.transports.transport import Batch, Receiving, Sending
from digrad_peers.frames import LARGEST, ProtocolError
from digrad_peers.link_listener import EpochLinks
from digrad_peers.links import Inlet, memory_of


class LinkTransport:
    """Carries rows over links, and nothing where there is none.

    Rows are copied once when they are posted, whatever the number of their receivers: they may
    have to leave again if a connection breaks.
    """

    def __init__(self, links: EpochLinks) -> None:
        self._links = links

    def post(self, batch: Batch) -> tuple[list[Sending], list[Receiving]]:
        """Start sending and receiving."""
        for peers, rows in batch.outgoing:
            memory = _bytes(rows, batch.dtype)
            for peer in peers:
                outlet = self._links.outlets[peer]
                if outlet.full:
                    with self._urgent_inlets():
                        outlet.send(batch.tag, memory)
                else:
                    outlet.send(batch.tag, memory)
        inlets = self._links.inlets
        return [], [
            Arriving(self, inlets[peer], batch.tag, shape, batch.dtype)
            for peer, shape in batch.incoming
        ]

    @contextmanager
    def _urgent_inlets(self) -> Iterator[None]:
        """Take in everything that comes meanwhile: whoever waits must not keep others waiting."""
        _set_urgent(self._links.inlets, True)
        try:
            yield
        finally:
            _set_urgent(self._links.inlets, False)

    def take(self, inlet: Inlet, tag: int) -> tuple[Tensor, int]:
        """Wait for a message."""
        with self._urgent_inlets():
            return inlet.take(tag)

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Offer none: rows are copied."""
        return None

    def close(self) -> None:
        """Hang up."""
        self._links.close()


def _set_urgent(inlets: Mapping[int, Inlet], urgent: bool) -> None:
    for inlet in inlets.values():
        inlet.urgent = urgent


@dataclass(eq=False)
class Arriving:
    """Rows on their way in."""

    wire: LinkTransport
    inlet: Inlet
    tag: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    buffer: Tensor | None = None

    def wait(self) -> Tensor:
        """Wait for them."""
        self.buffer, size = self.wire.take(self.inlet, self.tag)
        expected = prod(self.shape) * self.dtype.itemsize
        if size != expected:
            raise ProtocolError(f"{self.inlet.peer} sent {size} bytes where {expected} belong")
        return self.buffer[:size].view(self.dtype).view(self.shape)

    def release(self) -> None:
        """Give their memory back."""
        if self.buffer is not None:
            self.inlet.give(self.buffer)
            self.buffer = None


def _bytes(rows: Tensor, dtype: torch.dtype) -> memoryview:
    """Return a copy of rows as bytes."""
    packed = torch.empty(rows.shape, dtype=dtype).copy_(rows)
    flat = packed.view(-1).view(torch.uint8)
    if len(flat) > LARGEST:
        raise ProtocolError(f"{len(flat):,} bytes in one message, where {LARGEST:,} are most")
    return memory_of(flat)
