"""Rows between ranks of one machine through shared memory: written once, read in place.

A message on a channel says that rows are there; one back says that they were read, and that
their memory can be used again. Few bytes travel in the message itself.

Arenas are anonymous files (``memfd``), handed over through a socket, so nothing is left
behind however a rank ends. They are sealed: a reader never loses a page under its feet.
"""

import fcntl
import mmap
import os
import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from digrad.base.errors import DigradError, param
from digrad.engines.transports.buffers import buffer_size
from digrad.engines.transports.channel import Channel, Received
from digrad.engines.transports.transport import Batch, LinkError, Receiving, Sending

ARENA = 1 << 26  # bytes of address space at a time; memory is reserved only as it is used
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_ADD_SEALS, _GET_SEALS = 1033, 1034  # not in the fcntl module of Python 3.11
INLINE = 2048  # bytes up to which rows travel in the message itself
AT_A_TIME = 3  # slots that are not read yet, but for rows that leave early
VIEWS = 256  # of arenas, kept for the next time
_WRITTEN = struct.Struct("<cIIIQQ")  # b"w", tag, slot, arena, offset, bytes
_READ = struct.Struct("<cI")  # b"r", slot
_NO_SLOT = 0xFFFFFFFF  # the rows came in the message


class SharedMemoryError(DigradError, OSError):
    """The machine has no shared memory left."""


@dataclass(eq=False)
class Arena:
    """A stretch of shared memory of this rank."""

    number: int
    handle: int
    memory: Tensor  # bytes
    used: int = 0
    known: set[int] = field(default_factory=set)  # ranks that have it mapped


@dataclass(eq=False)
class MessageSlot:
    """A part of an arena, for one message at a time."""

    number: int
    arena: Arena
    offset: int
    size: int
    readers: set[int] = field(default_factory=set)  # ranks that have not read it yet


def make_arena(number: int, size: int) -> Arena:
    """Make an arena of that many bytes."""
    handle = os.memfd_create(f"digrad-{number}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    fcntl.fcntl(handle, _ADD_SEALS, _SEALS)
    return Arena(number, handle, _map_memory(handle, size))


def open_arena(handle: int) -> Tensor:
    """Map the memory of an arena that a peer handed over."""
    try:
        if fcntl.fcntl(handle, _GET_SEALS) & _SEALS != _SEALS:
            raise OSError("the memory handed over is not sealed")
        return _map_memory(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def _map_memory(handle: int, size: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(handle, size), dtype=torch.uint8)


class Slots:
    """This rank's slots: those in use, and those to use again."""

    def __init__(self) -> None:
        self._arenas: list[Arena] = []
        self._slots: list[MessageSlot] = []
        self._free: defaultdict[int, list[MessageSlot]] = defaultdict(list)
        self.unread: dict[int, MessageSlot] = {}  # by number, not counting early ones; oldest first

    def __len__(self) -> int:
        """How many slots there are, in use or not."""
        return len(self._slots)

    def has_free(self, size: int) -> bool:
        """Whether a slot of that many bytes lies ready."""
        return bool(self._free[buffer_size(size)])

    def take(self, size: int) -> MessageSlot:
        """Return a slot of at least that many bytes."""
        size = buffer_size(size)
        free = self._free[size]
        return free.pop() if free else self._new(size)

    def lend(self, slot: MessageSlot, readers: Iterable[int], *, early: bool) -> None:
        """Let some ranks read a slot; it is free again when all have."""
        slot.readers = set(readers)
        if not early:
            self.unread[slot.number] = slot

    def read(self, number: int, reader: int) -> None:
        """Note that a rank has read a slot."""
        slot = self._slots[number]
        slot.readers.remove(reader)
        if not slot.readers:
            self.unread.pop(number, None)
            self.give(slot)

    def give(self, slot: MessageSlot) -> None:
        """Take a slot back."""
        self._free[slot.size].append(slot)

    def _new(self, size: int) -> MessageSlot:
        arena = self._arenas[-1] if self._arenas else None
        if arena is None or arena.used + size > len(arena.memory):
            arena = make_arena(len(self._arenas), max(ARENA, size))
            self._arenas.append(arena)
        try:  # a page that cannot be had must not be met with while writing
            os.posix_fallocate(arena.handle, arena.used, size)
        except OSError as error:
            what = f"{size} more bytes of shared memory cannot be had: {error.strerror}"
            hint = f"{param('shared_memory', False)} sends rows over sockets instead"
            raise SharedMemoryError(what, hint=hint) from error
        slot = MessageSlot(len(self._slots), arena, arena.used, size)
        arena.used += size
        self._slots.append(slot)
        return slot

    def close(self) -> None:
        """Give the memory back; readers keep what they have mapped."""
        for arena in self._arenas:
            os.close(arena.handle)
        self._arenas.clear()
        self._slots.clear()
        self._free.clear()
        self.unread.clear()


class Written(NamedTuple):
    """Where a rank has written rows."""

    slot: int
    memory: Tensor
    offset: int
    size: int


class SharedMemory:
    """Carries rows to and from ranks of the same machine.

    Args:
        channels: to those ranks.
        timeout: seconds that any wait may last.
    """

    def __init__(self, channels: Mapping[int, Channel], timeout: float) -> None:
        self.slots = Slots()
        self._channels, self._every = dict(channels), list(channels.values())
        self._timeout = timeout
        self._arenas: dict[tuple[int, int], Tensor] = {}  # of others, by rank and number
        self._came: defaultdict[tuple[int, int], deque[Written]] = defaultdict(deque)  # rank, tag
        self._reserved: tuple[MessageSlot, Tensor] | None = None  # where rows are being computed
        self.view = lru_cache(VIEWS)(part)  # the same few come again and again

    def post(self, batch: Batch) -> tuple[list[Sending], list[Receiving]]:
        """Write rows for others, which need not be waited for; prepare to read those of others."""
        for peers, rows in batch.outgoing:
            if rows.numel() * batch.dtype.itemsize <= INLINE and not batch.early:
                self._enclose(peers, rows, batch)
            else:
                self._write(peers, rows, batch)
        return [], [Reading(self, batch, *each) for each in batch.incoming]

    def _enclose(self, peers: tuple[int, ...], rows: Tensor, batch: Batch) -> None:
        flat = rows.detach().to("cpu", batch.dtype).contiguous().view(-1).view(torch.uint8)
        text = _WRITTEN.pack(b"w", batch.tag, _NO_SLOT, 0, 0, len(flat)) + flat.numpy().tobytes()
        for peer in peers:
            self._send(peer, text)

    def _write(self, peers: tuple[int, ...], rows: Tensor, batch: Batch) -> None:
        size = rows.numel() * batch.dtype.itemsize
        if self._reserved is not None and self._reserved[1] is rows:
            slot, self._reserved = self._reserved[0], None
        else:
            slot = self._take(size, batch.early)
            self._view(slot, size, batch.dtype, tuple(rows.shape)).copy_(rows)
        self.slots.lend(slot, peers, early=batch.early)
        arena = slot.arena
        text = _WRITTEN.pack(b"w", batch.tag, slot.number, arena.number, slot.offset, size)
        for peer in peers:
            self._send(peer, text, None if peer in arena.known else arena.handle)
            arena.known.add(peer)

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Return memory of a slot, if rows of that shape need one."""
        size = prod(shape) * dtype.itemsize
        if size <= INLINE:
            return None
        if self._reserved is not None:  # asked for and never used
            self.slots.give(self._reserved[0])
        slot = self._take(size, early=False)
        self._reserved = slot, self._view(slot, size, dtype, shape)
        return self._reserved[1]

    def _view(
        self, slot: MessageSlot, size: int, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> Tensor:
        return self.view(slot.arena.memory, slot.offset, size, dtype, shape)

    def _take(self, size: int, early: bool) -> MessageSlot:
        """Return a slot to write to; wait first if too many were not read."""
        if not self.slots.has_free(size):
            for peer, channel in self._channels.items():
                for received in channel.arrived():
                    self._note(peer, received)
        while not early and len(self.slots.unread) >= AT_A_TIME:
            oldest = next(iter(self.slots.unread.values()))
            self._receive(min(oldest.readers))
        return self.slots.take(size)

    def arrived(self, peer: int, tag: int) -> Written:
        """Wait for rows of a rank that have a tag."""
        queue = self._came[peer, tag]
        while not queue:
            self._receive(peer)
        found = queue.popleft()
        if not queue:
            del self._came[peer, tag]
        return found

    def _note(self, peer: int, received: Received) -> None:
        """Take note of one message."""
        text, handle = received
        if text[:1] == b"r":
            self.slots.read(_READ.unpack(text)[1], peer)
            return
        _, tag, slot, arena, offset, size = _WRITTEN.unpack_from(text)
        if handle is not None:
            self._arenas[peer, arena] = open_arena(handle)
        if slot == _NO_SLOT:
            memory = torch.frombuffer(bytearray(text[_WRITTEN.size :]), dtype=torch.uint8)
        else:
            memory = self._arenas[peer, arena]
        self._came[peer, tag].append(Written(slot, memory, offset, size))

    def release(self, peer: int, slot: int) -> None:
        """Tell a rank that a slot of it was read; one that has ended need not know."""
        try:
            self._channels[peer].send(_READ.pack(b"r", slot), None, self._timeout, self._every)
        except ConnectionError:
            return
        except TimeoutError as error:
            raise LinkError((peer,), timed_out=True) from error

    def _send(self, peer: int, text: bytes, handle: int | None = None) -> None:
        try:
            self._channels[peer].send(text, handle, self._timeout, self._every)
        except OSError as error:
            raise LinkError((peer,), timed_out=isinstance(error, TimeoutError)) from error

    def _receive(self, peer: int) -> None:
        """Wait for a message of a rank, and take note of it."""
        try:
            received = self._channels[peer].receive(self._timeout)
        except OSError as error:
            raise LinkError((peer,), timed_out=isinstance(error, TimeoutError)) from error
        self._note(peer, received)

    def close(self) -> None:
        """End all connections, so that peers notice at once, and give the memory back."""
        for channel in self._every:
            channel.close()
        self.slots.close()
        self.view.cache_clear()
        self._arenas.clear()
        self._came.clear()
        self._reserved = None


@dataclass(slots=True)
class Reading:
    """Rows that a rank of this machine writes."""

    through: SharedMemory
    batch: Batch
    peer: int
    shape: tuple[int, ...]
    slot: int = _NO_SLOT

    def wait(self) -> Tensor:
        """Wait until they are there; return them where they are."""
        self.slot, memory, offset, size = self.through.arrived(self.peer, self.batch.tag)
        if self.slot == _NO_SLOT:
            return memory.view(self.batch.dtype).view(self.shape)
        return self.through.view(memory, offset, size, self.batch.dtype, self.shape)

    def release(self) -> None:
        """Say that they were read."""
        if self.slot != _NO_SLOT:
            self.through.release(self.peer, self.slot)


def part(
    memory: Tensor, offset: int, size: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> Tensor:
    """Return so many bytes from an offset on as a tensor."""
    return memory[offset : offset + size].view(dtype).view(shape)
