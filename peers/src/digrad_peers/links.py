"""What travels on a link: messages in order, one way, none lost when a connection breaks.

The sender keeps each message until the receiver has said that it is there; after a break the
receiver says on the new connection which it wants next.
"""

import socket
import struct
import time
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor

from digrad.engines.transports.buffers import BufferPool
from digrad_peers.frames import (
    BYE,
    HEADER_BYTES,
    MARK,
    Connection,
    Header,
    ProtocolError,
    header_of,
    receive,
    receive_into,
    send_all,
)
from digrad_peers.link_ends import TICK, Dialer, LinkEnd, ready

AHEAD = 1 << 28  # bytes that may lie unread, or unsent, before the faster end waits
_COUNT = struct.Struct("<Q")


class Outlet(LinkEnd):
    """The end that sends."""

    def __init__(
        self, rank: int, peer: str, timeout: float, grace: float, dial: Dialer | None = None
    ) -> None:
        super().__init__(rank, peer, timeout, grace, dial)
        self._kept: deque[tuple[Header, memoryview]] = deque()  # not known to be there yet
        self._made = self._bytes = 0
        self._begun = 0  # what came before it has begun to leave
        self._firm = 0  # what came before it must arrive
        self._ear, self._bell = socket.socketpair()  # rings when there is something to send
        for each in (self._ear, self._bell):
            each.setblocking(False)

    def send(self, tag: int, memory: memoryview, kind: bytes = MARK) -> None:
        """Send bytes, which must stay as they are; wait while too much is on its way."""
        self._add(Header(kind, 0, tag, len(memory)), memory)
        self._firm = self._made

    def _add(self, header: Header, memory: memoryview) -> None:
        with self.changed:
            self.wait_for(lambda: self._bytes < AHEAD)
            self._kept.append((header._replace(number=self._made), memory))
            self._made += 1
            self._bytes += len(memory)
        with suppress(OSError):  # a full pipe rings too
            self._bell.send(b"!")

    def replace(self, tag: int, memory: memoryview) -> None:
        """Send bytes in place of older such ones that have not begun to leave."""
        with self.changed:
            while self._kept and self._kept[-1][0].number >= max(self._begun, self._firm):
                self._bytes -= len(self._kept.pop()[1])
                self._made -= 1
        self._add(Header(MARK, 0, tag, len(memory)), memory)

    @property
    def full(self) -> bool:
        """Whether ``send`` would wait."""
        return self._bytes >= AHEAD

    def flush(self, end: float, grace: float | None = None) -> bool:
        """Wait until the other end has everything; say whether it has."""
        grace = self.grace if grace is None else grace
        with self.changed:
            while self._kept and not self.over and not self.closed:
                left = end - time.monotonic()
                lost = self._broken is not None and time.monotonic() - self._broken > grace
                if left <= 0 or lost:
                    break
                self.changed.wait(min(left, TICK))
            return not self._kept

    def close(self) -> None:
        """Hang up."""
        super().close()
        with suppress(OSError):
            self._bell.send(b"!")
        if not self._thread.is_alive():
            self._close_pipe()

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._close_pipe()

    def _close_pipe(self) -> None:
        self._ear.close()
        self._bell.close()

    def _talk(self, sock: Connection, wanted: int) -> None:
        self._acknowledge(wanted)
        if wanted > self._made:
            raise ProtocolError(f"a wish for message {wanted} of {self._made}")
        sent = wanted  # the next one to send
        while not self.closed and not self._stale:
            with self.changed:
                first = self._kept[0][0].number if self._kept else self._made
                following = None if sent - first >= len(self._kept) else self._kept[sent - first]
                sent += following is not None
                self._begun = max(self._begun, sent)
            if following is not None:
                _send(sock, *following)
            self._read_acknowledgements(sock, 0 if following is not None else TICK)

    def _read_acknowledgements(self, sock: Connection, seconds: float) -> None:
        """Hear which messages are there, and whether the other end hangs up."""
        heard = ready(seconds, sock, self._ear)
        if self._ear in heard:
            with suppress(BlockingIOError):
                self._ear.recv(4096)
        if sock in heard:
            self._acknowledge(_COUNT.unpack(receive(sock, _COUNT.size))[0])

    def _acknowledge(self, count: int) -> None:
        with self.changed:
            while self._kept and self._kept[0][0].number < count:
                self._bytes -= len(self._kept.popleft()[1])
            self.changed.notify_all()


def _send(sock: Connection, header: Header, memory: memoryview) -> None:
    if len(memory) <= 1 << 14:  # one packet rather than two
        sock.sendall(header.packed() + memory)
    else:
        sock.sendall(header.packed())
        send_all(sock, memory)


class Inlet(LinkEnd):
    """The end that receives."""

    def __init__(
        self, rank: int, peer: str, timeout: float, grace: float, dial: Dialer | None = None
    ) -> None:
        super().__init__(rank, peer, timeout, grace, dial)
        self._unread: defaultdict[int, deque[tuple[Tensor, int]]] = defaultdict(deque)
        self._next = self._bytes = 0
        self._pool = BufferPool(torch.device("cpu"), pinned=False)
        self.urgent = False  # whether this node waits for anything, so that all must come in

    def wanted(self) -> int:
        """Return the number of the next message."""
        return self._next

    def take(self, tag: int) -> tuple[Tensor, int]:
        """Wait for the next message of a tag; its bytes begin a buffer that is to be given back."""
        with self.changed:
            self.wait_for(lambda: bool(self._unread.get(tag)))
            found = self._unread[tag].popleft()
            if not self._unread[tag]:
                del self._unread[tag]
            self._bytes -= found[1]
            self.changed.notify_all()
        return found

    def arrived(self, tag: int) -> list[tuple[Tensor, int]]:
        """Return all messages of a tag that are there, without waiting."""
        with self.changed:
            found = list(self._unread.pop(tag, ()))
            self._bytes -= sum(size for _, size in found)
            self.changed.notify_all()
        return found

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back."""
        self._pool.give(buffer)

    def _talk(self, sock: Connection, wanted: int) -> None:
        while not self.closed and not self._stale:
            with self.changed:
                if self._bytes >= AHEAD and not self.urgent:
                    self.changed.wait(TICK)
                    continue
            if not ready(TICK, sock):
                continue
            header = header_of(receive(sock, HEADER_BYTES), self._next)
            if header.kind == BYE:
                self._on_goodbye(bytes(receive(sock, header.size)).decode(errors="replace"))
                return
            buffer, _ = self._pool.take((header.size,), torch.uint8)
            receive_into(sock, memory_of(buffer)[: header.size])
            with self.changed:
                self._unread[header.tag].append((buffer, header.size))
                self._next += 1
                self._bytes += header.size
                self.changed.notify_all()
            sock.sendall(_COUNT.pack(self._next))

    def _on_goodbye(self, why: str) -> None:
        with self.changed:
            self._next += 1
            self.said, self.closed = why[:2000] or "left", True
            self.changed.notify_all()
        with suppress(OSError):
            if self.sock is not None:
                self.sock.sendall(_COUNT.pack(self._next))


def memory_of(buffer: Tensor) -> memoryview:
    """Return the memory of a tensor of bytes."""
    return memoryview(cast(Any, buffer.numpy()))
