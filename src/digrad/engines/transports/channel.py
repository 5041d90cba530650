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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias
from weakref import WeakSet

LONGEST = 4096  # bytes of one message
Received: TypeAlias = tuple[bytes, int | None]  # a message, and the file handed over with it
_CREDENTIALS = struct.Struct("3i")
_RANK = struct.Struct("<I")

_open: "WeakSet[socket.socket]" = WeakSet()


def _close_copies() -> None:
    """Close the copies that a forked child (a data loader's worker) has of our sockets.

    As long as it kept them open, peers would not notice that this rank ended.
    """
    for connection in list(_open):
        connection.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)


def available() -> bool:
    """Whether this system has what shared memory needs: Linux has."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


class Listener:
    """Where ranks of the same machine can connect with this one."""

    def __init__(self, backlog: int) -> None:
        self.name = f"digrad-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(backlog)

    def accept(self, count: int, seconds: float) -> dict[int, "Channel"]:
        """Wait for some ranks to connect; anybody else is turned away."""
        channels: dict[int, Channel] = {}
        end = time.monotonic() + seconds
        while len(channels) < count:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            caller, _ = self._socket.accept()
            caller.settimeout(max(0.001, end - time.monotonic()))
            said = caller.recv(_RANK.size) if _same_user(caller) else b""
            if len(said) == _RANK.size:
                channels[_RANK.unpack(said)[0]] = Channel(caller)
            else:
                caller.close()
        return channels

    def close(self) -> None:
        """Let nobody in any more."""
        self._socket.close()


def connect(name: str, rank: int) -> "Channel | None":
    """Connect with a listener as a rank; none if it is on another machine, or another user's."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with suppress(OSError):  # nobody of that name here
        caller.connect(f"\0{name}")
        if _same_user(caller):
            caller.send(_RANK.pack(rank))
            return Channel(caller)
    caller.close()
    return None


def _same_user(peer: socket.socket) -> bool:
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(said)
    return bool(user == os.getuid())


class Channel:
    """One connection, used both ways; messages keep their order and their bounds."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        _open.add(connection)
        self._socket = connection
        self._queue: deque[Received] = deque()
        self._ended = False

    def receive(self, seconds: float) -> Received:
        """Wait for a message."""
        end = time.monotonic() + seconds
        while not self._queue and not self._fetch():
            if self._ended:
                raise ConnectionResetError("the connection was closed")
            _await([self], None, end)
        return self._queue.popleft()

    def arrived(self) -> Iterator[Received]:
        """Go through the messages that are there, without waiting."""
        while self._queue or self._fetch():
            yield self._queue.popleft()

    def _fetch(self) -> bool:
        """Take in the next message, if one is there."""
        while not self._ended:
            try:
                text, handles, _, _ = socket.recv_fds(self._socket, LONGEST, 1)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                # The peer closed with messages of ours unread. That is told once and ahead of
                # what it still sent, which can be read after.
                continue
            except OSError:
                text = b""
            if text:
                self._queue.append((text, handles[0] if handles else None))
                return True
            self._ended = True
        return False

    def send(
        self, text: bytes, handle: int | None, seconds: float, every: Iterable["Channel"]
    ) -> None:
        """Send a message and maybe a file; while it does not get through, take in what comes.

        Two ranks that fill each other's queues would otherwise wait for ever.
        """
        try:
            return self._send(text, handle)
        except BlockingIOError:
            end, every = time.monotonic() + seconds, list(every)
        while True:
            for channel in _await([c for c in every if not c._ended], self, end):
                while channel._fetch():
                    pass
            with suppress(BlockingIOError):
                return self._send(text, handle)

    def _send(self, text: bytes, handle: int | None) -> None:
        if handle is None:
            self._socket.send(text, socket.MSG_NOSIGNAL)
        else:
            socket.send_fds(self._socket, [text], [handle], socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
        for _, handle in self._queue:
            if handle is not None:
                os.close(handle)
        self._queue.clear()


def _await(readable: list[Channel], writable: Channel | None, end: float) -> list[Channel]:
    """Wait until one can be read, or the other be written to; return those to be read."""
    poll = select.poll()
    known = {channel._socket.fileno(): channel for channel in readable}
    for number in known:
        poll.register(number, select.POLLIN)
    if writable is not None:
        number = writable._socket.fileno()
        poll.register(number, select.POLLOUT | (select.POLLIN if number in known else 0))
    left = end - time.monotonic()
    found = poll.poll(max(0.0, left) * 1000)
    if not found and left <= 0:
        raise TimeoutError("nothing came")
    return [known[number] for number, event in found if number in known and event != select.POLLOUT]
