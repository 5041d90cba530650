"""Rows between ranks of one machine through shared memory: written once, read in place.

A message on a socket says that rows are there; one back says that they were read, and that
their memory can be used again.
"""

import struct
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from digrad.engines.processes.exchange import Coming, Going
from digrad.engines.transports.doorbells import Bell
from digrad.engines.transports.memory import rounded
from digrad.engines.transports.segments import Memory, Slot, Views, open_arena
from digrad.engines.transports.wire import Wire

INLINE = 2048  # bytes up to which rows travel in the message itself
MOST = 3  # slots in use at a time, but for rows that leave early
_ARRIVED = struct.Struct("<IIIQQ")  # tag, slot, arena, offset, bytes
_READ = struct.Struct("<I")  # slot
_NONE = 0xFFFFFFFF  # no slot: the rows came in the message


class Reading:
    """Rows that a rank of this machine writes."""

    __slots__ = ("_courier", "_dtype", "_peer", "_shape", "_slot", "_tag")

    def __init__(
        self,
        courier: "SharedCourier",
        peer: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        tag: int,
    ) -> None:
        self._courier, self._peer, self._tag = courier, peer, tag
        self._shape, self._dtype, self._slot = shape, dtype, _NONE

    def wait(self, doing: str) -> Tensor:
        """Wait until they are there; return them where they are."""
        self._slot, arena, offset, size = self._courier.arrived(self._peer, self._tag, doing)
        if self._slot == _NONE:
            return arena.view(self._dtype).view(self._shape)
        return self._courier.views.get(arena, offset, size, self._dtype, self._shape)

    def release(self) -> None:
        """Say that they were read."""
        if self._slot != _NONE:
            self._courier.release(self._peer, self._slot)


class SharedCourier:
    """Carries rows to and from ranks of the same machine.

    Args:
        readers: ranks that read what this one writes.
        writers: ranks that this one reads.
    """

    def __init__(
        self, wire: Wire, readers: Mapping[int, Bell], writers: Mapping[int, Bell]
    ) -> None:
        self._wire, self.memory, self.views = wire, Memory(), Views()
        self.readers, self.writers = dict(readers), dict(writers)
        self._bells = [*self.readers.values(), *self.writers.values()]
        self._arenas: dict[tuple[int, int], Tensor] = {}
        self._reserved: tuple[Slot, Tensor] | None = None  # where rows are being computed
        # By rank and tag: slot, arena, offset, bytes.
        self._came: defaultdict[tuple[int, int], deque[tuple[int, Tensor, int, int]]] = defaultdict(
            deque
        )
        wire.hang_up = self.hang_up

    def post(
        self,
        outgoing: Sequence[tuple[tuple[int, ...], Tensor]],
        incoming: Sequence[tuple[int, tuple[int, ...]]],
        dtype: torch.dtype,
        tag: int,
        *,
        early: bool,
    ) -> tuple[list[Going], list[Coming]]:
        """Write rows for others; prepare to read those of others."""
        self._wire.check()
        for peers, rows in outgoing:
            size = rows.numel() * dtype.itemsize
            if size <= INLINE and not early:
                self._enclose(peers, rows, dtype, tag)
            else:
                self._write(peers, rows, size, dtype, tag, early)
        return [], [Reading(self, peer, shape, dtype, tag) for peer, shape in incoming]

    def _enclose(self, peers: tuple[int, ...], rows: Tensor, dtype: torch.dtype, tag: int) -> None:
        flat = rows.detach().to("cpu", dtype).contiguous().view(-1).view(torch.uint8)
        text = _ARRIVED.pack(tag, _NONE, 0, 0, len(flat)) + flat.numpy().tobytes()
        for peer in peers:
            self._ring(peer, text)

    def _write(
        self,
        peers: tuple[int, ...],
        rows: Tensor,
        size: int,
        dtype: torch.dtype,
        tag: int,
        early: bool,
    ) -> None:
        if self._reserved is not None and self._reserved[1] is rows:
            slot, self._reserved = self._reserved[0], None
        else:
            self._make_room(size, early)
            slot = self.memory.take(size)
            self._view(slot, size, dtype, tuple(rows.shape)).copy_(rows)
        self.memory.lend(slot, peers, early=early)
        arena = slot.arena
        text = _ARRIVED.pack(tag, slot.number, arena.number, slot.offset, size)
        for peer in peers:
            if peer in arena.known:
                self._ring(peer, text)
            else:
                self._ring(peer, text, arena.handle)
                arena.known.add(peer)

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Return memory of a slot: rows that lie in it when they are posted are not copied."""
        size = prod(shape) * dtype.itemsize
        if size <= INLINE:
            return None
        if self._reserved is None or self._reserved[0].size != rounded(size):
            self._make_room(size, early=False)
            self._reserved = (self.memory.take(size), torch.empty(0))
        slot = self._reserved[0]
        self._reserved = (slot, self._view(slot, size, dtype, shape))
        return self._reserved[1]

    def _view(self, slot: Slot, size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        return self.views.get(slot.arena.memory, slot.offset, size, dtype, shape)

    def _make_room(self, size: int, early: bool) -> None:
        """Take note of what was read; wait if too much was not."""
        memory = self.memory
        if not memory.has_free(size):
            for peer, bell in self.readers.items():
                bell.fetch()
                while bell.has_some:
                    self._note_read(peer)
        while not early and len(memory.busy) >= MOST:
            oldest = next(iter(memory.busy.values()))
            self._note_read(min(oldest.readers))

    def _note_read(self, peer: int) -> None:
        text, _ = self._await(peer, self.readers[peer], "until it has read what it was sent")
        self.memory.read(_READ.unpack(text)[0], peer)

    def arrived(self, peer: int, tag: int, doing: str) -> tuple[int, Tensor, int, int]:
        """Wait for rows of a tag; return slot, arena, offset and bytes."""
        waiting = self._came.get((peer, tag))
        if waiting:
            found = waiting.popleft()
            if not waiting:
                del self._came[peer, tag]
            return found
        while True:
            came, found = self._next(peer, doing)
            if came == tag:
                return found
            self._came[peer, came].append(found)

    def _next(self, peer: int, doing: str) -> tuple[int, tuple[int, Tensor, int, int]]:
        text, handle = self._await(peer, self.writers[peer], doing)
        tag, slot, arena, offset, size = _ARRIVED.unpack_from(text)
        if slot == _NONE:
            memory = torch.frombuffer(bytearray(text[_ARRIVED.size :]), dtype=torch.uint8)
            return tag, (slot, memory, 0, size)
        if handle is not None:
            self._arenas[peer, arena] = open_arena(handle)
        return tag, (slot, self._arenas[peer, arena], offset, size)

    def release(self, peer: int, slot: int) -> None:
        """Tell a rank that a slot of it was read; one that is through need not know."""
        try:
            self.writers[peer].ring(_READ.pack(slot), None, self._wire.timeout, self._bells)
        except ConnectionError:
            return
        except TimeoutError as error:
            raise self._failed(peer, "telling it what was read", error) from error

    def _ring(self, peer: int, text: bytes, handle: int | None = None) -> None:
        try:
            self.readers[peer].ring(text, handle, self._wire.timeout, self._bells)
        except OSError as error:
            raise self._failed(peer, "sending", error) from error

    def _await(self, peer: int, bell: Bell, doing: str) -> tuple[bytes, int | None]:
        try:
            return bell.await_message(self._wire.timeout)
        except OSError as error:
            raise self._failed(peer, doing, error) from error

    def _failed(self, peer: int, doing: str, error: OSError) -> Exception:
        return self._wire.fail((peer,), doing, over=isinstance(error, TimeoutError))

    def hang_up(self) -> None:
        """Let all peers know at once that nothing more will come."""
        for bell in self._bells:
            bell.close()

    def close(self) -> None:
        """Hang up and give the memory back."""
        self.hang_up()
        self.memory.close()
        self._arenas.clear()
        self._came.clear()
        self._reserved = None
