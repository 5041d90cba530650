"""The two ends of a link: one connection, messages in order, none lost when it breaks.

A link carries messages one way. Its sender keeps each until the receiver has said that it is
there; after a break the receiver says on the new connection which it wants next. Either end may
be the one that dials.
"""

import logging
import selectors
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, cast

import torch
from torch import Tensor

from digrad.engines.transports.buffers import Pool
from digrad.engines.transports.transport import LinkError
from digrad.peers.frames import (
    BYE,
    HEADER_BYTES,
    MARK,
    ClosedError,
    Header,
    RubbishError,
    hang_up,
    header_of,
    receive,
    receive_into,
    send_all,
)
from digrad.peers.secure import StrangerError

AHEAD = 1 << 28  # bytes that may lie unread, or unsent, before the faster end waits
SLOWEST = 1.0  # seconds between two tries to dial
TICK = 0.2  # seconds in which a thread notices that its link was closed
_COUNT = struct.Struct("<Q")
Dialer = Callable[[int], tuple[socket.socket, int]]  # what is wanted next; connection, the same
Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
log = logging.getLogger("digrad.peers")


class DisagreeError(StrangerError):
    """A member that was started with something else than this node."""


class End(ABC):
    """What both ends of a link have in common: a connection that is made again when it breaks.

    Args:
        rank: of the node at the other end.
        peer: its name.
        timeout: seconds that a wait may last.
        grace: seconds that a broken connection may take to come back.
        dial: makes a connection, for the end that dials.
    """

    def __init__(
        self, rank: int, peer: str, timeout: float, grace: float, dial: Dialer | None
    ) -> None:
        self.rank, self.peer, self.timeout, self.grace = rank, peer, timeout, grace
        self._dial, self.changed = dial, Condition()
        self.sock: socket.socket | None = None
        self._fresh: tuple[socket.socket, int] | None = None
        self._broken: float | None = None  # since when; none while it never was, or is not
        self.refused = ""  # why the other end will not have us, or is not the one expected
        self.final = False  # whether asking again is in vain
        self.said = ""  # what it said as it left
        self.closed = self.over = self._stale = False
        self._thread = Thread(target=self._run, name=f"digrad link {peer}", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self.sock is not None

    def offer(self, sock: socket.socket, wanted: int) -> None:
        """Take a connection that the other end has dialled; it replaces an older one."""
        with self.changed:
            if self.closed:
                sock.close()
                return
            self._drop(self._fresh[0] if self._fresh else None)
            self._fresh = sock, wanted
            self._drop(self.sock)  # whoever reads from it notices
            self.changed.notify_all()

    def vacate(self) -> None:
        """End the connection there is, so that ``wanted`` stays what it is until the next."""
        with self.changed:
            self._stale = True
            self._drop(self.sock)
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self.sock is None, TICK + self.timeout):
                raise ClosedError(f"the old connection with {self.peer} does not end")

    def _drop(self, sock: socket.socket | None) -> None:
        if sock is not None:
            hang_up(sock)
            if sock is not self.sock:
                sock.close()

    def _run(self) -> None:
        while not self.closed:
            found = self._connection()
            if found is None:
                continue
            sock, wanted = found
            try:
                sock.settimeout(self.timeout)
                with self.changed:
                    self.sock, self._broken, self._stale = sock, None, False
                    self.changed.notify_all()
                self._talk(sock, wanted)
            except RubbishError as error:
                self._cut_off(str(error))
            except (OSError, ValueError) as error:
                log.debug("link with %s: %s", self.peer, error)
            finally:
                with self.changed:
                    self.sock, self._broken = None, time.monotonic()
                    self.changed.notify_all()
                sock.close()

    def _connection(self) -> tuple[socket.socket, int] | None:
        """Return a new connection and what its receiver wants next, as soon as there is one."""
        with self.changed:
            if self._dial is None and self._fresh is None:
                self.changed.wait(TICK)
            found, self._fresh = self._fresh, None
        if found is not None or self._dial is None or self.closed:
            return found
        pause = 0.02
        while not self.closed:
            try:
                return self._dial(self.wanted())
            except StrangerError as error:
                self._refuse(str(error), final=isinstance(error, DisagreeError))
            except (OSError, ValueError) as error:
                log.debug("dialling %s: %s", self.peer, error)
            with self.changed:
                self.changed.wait(pause)
            pause = min(SLOWEST, 1.5 * pause)
        return None

    def _refuse(self, why: str, *, final: bool) -> None:
        with self.changed:
            if not self.refused:
                log.warning("%s: %s", self.peer, why.partition("\n")[0])
            self.refused, self.final = why, final
            self.changed.notify_all()

    def _cut_off(self, why: str) -> None:
        """Have nothing more to do with a peer that sends rubbish."""
        log.warning("cut off %s, which sent %s", self.peer, why)
        with self.changed:
            self.said, self.closed = f"was cut off: it sent {why}", True
            self.changed.notify_all()

    def wanted(self) -> int:
        """Return the number of the next message, where this is the end that receives."""
        return 0

    @abstractmethod
    def _talk(self, sock: socket.socket, wanted: int) -> None:
        """Use a connection until it breaks; ``wanted`` is the next message of the other end."""

    def check(self) -> None:
        """Raise if nothing more can be expected of the link."""
        lost = self._broken is not None and time.monotonic() - self._broken > self.grace
        if self.over or self.said or self.closed or lost:
            raise LinkError((self.rank,), timed_out=False)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait, with ``changed`` held, until something holds; raise if it never will."""
        end = time.monotonic() + self.timeout
        while not holds():
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                raise LinkError((self.rank,), timed_out=True)
            self.changed.wait(min(left, TICK))

    def interrupt(self) -> None:
        """End every wait, now and later."""
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def close(self) -> None:
        """Hang up."""
        with self.changed:
            self.closed = True
            self._drop(self.sock)
            self._drop(self._fresh[0] if self._fresh else None)
            self._fresh = None
            self.changed.notify_all()


class Outlet(End):
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
            self._put_away()

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._put_away()

    def _put_away(self) -> None:
        self._ear.close()
        self._bell.close()

    def _talk(self, sock: socket.socket, wanted: int) -> None:
        self._arrived(wanted)
        if wanted > self._made:
            raise RubbishError(f"a wish for message {wanted} of {self._made}")
        sent = wanted  # the next one to send
        while not self.closed and not self._stale:
            with self.changed:
                first = self._kept[0][0].number if self._kept else self._made
                following = None if sent - first >= len(self._kept) else self._kept[sent - first]
                sent += following is not None
                self._begun = max(self._begun, sent)
            if following is not None:
                _send(sock, *following)
            self._listen(sock, 0 if following is not None else TICK)

    def _listen(self, sock: socket.socket, seconds: float) -> None:
        """Hear which messages are there, and whether the other end hangs up."""
        heard = ready(seconds, sock, self._ear)
        if self._ear in heard:
            with suppress(BlockingIOError):
                self._ear.recv(4096)
        if sock in heard:
            self._arrived(_COUNT.unpack(receive(sock, _COUNT.size))[0])

    def _arrived(self, count: int) -> None:
        with self.changed:
            while self._kept and self._kept[0][0].number < count:
                self._bytes -= len(self._kept.popleft()[1])
            self.changed.notify_all()


def _send(sock: socket.socket, header: Header, memory: memoryview) -> None:
    if len(memory) <= 1 << 14:  # one packet rather than two
        sock.sendall(header.packed() + memory)
    else:
        sock.sendall(header.packed())
        send_all(sock, memory)


class Inlet(End):
    """The end that receives."""

    def __init__(
        self, rank: int, peer: str, timeout: float, grace: float, dial: Dialer | None = None
    ) -> None:
        super().__init__(rank, peer, timeout, grace, dial)
        self._unread: defaultdict[int, deque[tuple[Tensor, int]]] = defaultdict(deque)
        self._next = self._bytes = 0
        self._pool = Pool(torch.device("cpu"), pinned=False)
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

    def _talk(self, sock: socket.socket, wanted: int) -> None:
        while not self.closed and not self._stale:
            with self.changed:
                if self._bytes >= AHEAD and not self.urgent:
                    self.changed.wait(TICK)
                    continue
            if not ready(TICK, sock):
                continue
            header = header_of(receive(sock, HEADER_BYTES), self._next)
            if header.kind == BYE:
                self._left(bytes(receive(sock, header.size)).decode(errors="replace"))
                return
            buffer, _ = self._pool.take((header.size,), torch.uint8)
            receive_into(sock, memory_of(buffer)[: header.size])
            with self.changed:
                self._unread[header.tag].append((buffer, header.size))
                self._next += 1
                self._bytes += header.size
                self.changed.notify_all()
            sock.sendall(_COUNT.pack(self._next))

    def _left(self, why: str) -> None:
        with self.changed:
            self._next += 1
            self.said, self.closed = why[:2000] or "left", True
            self.changed.notify_all()
        with suppress(OSError):
            if self.sock is not None:
                self.sock.sendall(_COUNT.pack(self._next))


def ready(seconds: float, *socks: socket.socket) -> Sequence[socket.socket]:
    """Return the connections on which something can be read, within some seconds."""
    # Decrypted bytes lie where the system does not know of them.
    waiting = [s for s in socks if isinstance(s, ssl.SSLSocket) and s.pending()]
    if waiting:
        return waiting
    with Selector() as selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]  # type: ignore[misc]


def memory_of(buffer: Tensor) -> memoryview:
    """Return the memory of a tensor of bytes."""
    return memoryview(cast(Any, buffer.numpy()))


def waiting_for(error: LinkError, ends: dict[int, End]) -> str:
    """Say in words what became of the peers that were waited for in vain."""
    said = []
    for rank in error.peers:
        end = ends[rank]
        if end.said:
            said.append(f"{end.peer} {end.said}")
        elif error.timed_out:
            said.append(f"{end.peer} does not answer")
        else:
            said.append(f"{end.peer} ended, or the link with it broke")
    return "; ".join(said)
