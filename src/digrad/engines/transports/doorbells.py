"""Unix sockets between ranks of one machine: short messages, and handing over memory.

Sockets have no name in the file system and belong to one network namespace; only processes
of the same user are let in. A rank that dies closes its sockets, so its peers notice at once.
"""

import os
import secrets
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakSet

LONGEST = 4096  # bytes of one message
_CREDENTIALS = struct.Struct("3i")
_RANK = struct.Struct("<I")
_HANDLE = struct.Struct("i")
_ONE_FILE = socket.CMSG_LEN(_HANDLE.size) if hasattr(socket, "CMSG_LEN") else 0

_open: "WeakSet[socket.socket]" = WeakSet()


def _leave() -> None:
    """Close the copies that a forked child (a data loader's worker) has of our sockets.

    As long as it kept them open, peers would not notice that this rank ended.
    """
    for connection in list(_open):
        connection.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)


def available() -> bool:
    """Whether this system has what shared memory needs: Linux has."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


class Listener:
    """Where ranks of the same machine can call this one."""

    def __init__(self, backlog: int) -> None:
        self.name = f"digrad-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(backlog)

    def accept(self, count: int, seconds: float) -> dict[int, "Bell"]:
        """Wait for the calls of some ranks; anybody else's are turned away."""
        bells: dict[int, Bell] = {}
        end = time.monotonic() + seconds
        while len(bells) < count:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            caller, _ = self._socket.accept()
            if not _same_user(caller):
                caller.close()
                continue
            caller.settimeout(max(0.001, end - time.monotonic()))
            (rank,) = _RANK.unpack(caller.recv(_RANK.size))
            bells[rank] = Bell(caller)
        return bells

    def close(self) -> None:
        """Take no more calls."""
        self._socket.close()


def call(name: str, rank: int) -> "Bell | None":
    """Call a listener as a rank; none if it is on another machine, or another user's."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        caller.connect(f"\0{name}")
        if _same_user(caller):
            caller.send(_RANK.pack(rank))
            return Bell(caller)
    except OSError:  # nobody of that name here
        pass
    caller.close()
    return None


def _same_user(peer: socket.socket) -> bool:
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(said)
    return bool(user == os.getuid())


class Bell:
    """One connection; messages keep their order and their bounds."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        _open.add(connection)
        self._socket = connection
        self._waiting: deque[tuple[bytes, int | None]] = deque()
        self._closed = False

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    @property
    def has_some(self) -> bool:
        """Whether a message was taken in that nobody asked for yet."""
        return bool(self._waiting)

    def fetch(self) -> None:
        """Take in all that has come."""
        while (came := self._receive()) is not None:
            self._waiting.append(came)

    def _receive(self) -> tuple[bytes, int | None] | None:
        """Return the next message that has come, with the file handed over; none if none."""
        while not self._closed:
            try:
                text, extra, _, _ = self._socket.recvmsg(LONGEST, _ONE_FILE)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # The peer closed with messages of ours unread. That is told once and ahead of
                # what it still sent, which can be read after.
                continue
            except OSError:
                text, extra = b"", []
            if text:
                return text, (_HANDLE.unpack(extra[0][2])[0] if extra else None)
            self._closed = True
        return None

    def await_message(self, seconds: float) -> tuple[bytes, int | None]:
        """Wait for a message; return it with the file handed over."""
        if self._waiting:
            return self._waiting.popleft()
        came = self._receive()
        end = time.monotonic() + seconds
        while came is None:
            if self._closed:
                raise ConnectionResetError("the connection was closed")
            _ready([self], None, end)
            came = self._receive()
        return came

    def ring(
        self, text: bytes, handle: int | None, seconds: float, others: Iterable["Bell"]
    ) -> None:
        """Send a message; while it does not get through, take in what others send.

        Two ranks that fill each other's queues would otherwise wait for ever.
        """
        extra = (
            [] if handle is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _HANDLE.pack(handle))]
        )
        try:
            self._send(text, extra)
            return
        except BlockingIOError:
            end = time.monotonic() + seconds
        every = list(others)
        while True:
            for bell in _ready([bell for bell in every if not bell._closed], self, end):
                bell.fetch()
            with suppress(BlockingIOError):
                self._send(text, extra)
                return

    def _send(self, text: bytes, extra: list[tuple[int, int, bytes]]) -> None:
        if extra:
            self._socket.sendmsg([text], extra, socket.MSG_NOSIGNAL)
        else:
            self._socket.send(text, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
        for _, handle in self._waiting:
            if handle is not None:
                os.close(handle)
        self._waiting.clear()


def _ready(readable: list[Bell], writable: Bell | None, end: float) -> list[Bell]:
    """Wait until one can be read, or the other be written to; return those to be read."""
    poll = select.poll()
    known = {bell.fileno(): bell for bell in readable}
    for number in known:
        poll.register(number, select.POLLIN)
    if writable is not None:
        number = writable.fileno()
        poll.register(number, select.POLLOUT | (select.POLLIN if number in known else 0))
    left = end - time.monotonic()
    found = poll.poll(max(0.0, left) * 1000)
    if not found and left <= 0:
        raise TimeoutError("nothing came")
    return [known[number] for number, event in found if number in known and event != select.POLLOUT]
