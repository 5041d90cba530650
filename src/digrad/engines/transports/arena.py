"""Shared memory without a name: one rank writes, ranks of the same machine read in place.

Arenas are anonymous files (``memfd``), handed over through a socket, so nothing is left
behind however a rank ends. They are sealed: a reader never loses a page under its feet.
"""

import fcntl
import mmap
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from digrad.base.errors import DigradError, message
from digrad.engines.transports.buffers import rounded

ARENA = 1 << 26  # bytes of address space at a time; memory is reserved only as it is used
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_ADD_SEALS, _GET_SEALS = 1033, 1034  # not in the fcntl module of Python 3.11


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
    return Arena(number, handle, _mapped(handle, size))


def open_arena(handle: int) -> Tensor:
    """Map the memory of an arena that a peer handed over."""
    try:
        if fcntl.fcntl(handle, _GET_SEALS) & _SEALS != _SEALS:
            raise OSError("the memory handed over is not sealed")
        return _mapped(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def _mapped(handle: int, size: int) -> Tensor:
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
        return bool(self._free[rounded(size)])

    def take(self, size: int) -> MessageSlot:
        """Return a slot of at least that many bytes."""
        size = rounded(size)
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
            hint = "shared_memory=False, or digrad train --no-shared-memory, sends rows "
            hint += "over sockets instead"
            raise SharedMemoryError(message(what, hint=hint)) from error
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
