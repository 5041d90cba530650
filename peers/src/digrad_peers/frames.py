"""What travels on a connection: short JSON texts, and messages with a header of fixed size.

Every size is compared with a bound before memory is taken for it, and every read has an end in
time, however slowly the other side sends. Nothing is unpickled.
"""

import json
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from digrad.base.errors import DigradError

LARGEST = 1 << 26  # bytes of one message
LONGEST = 1 << 20  # bytes of one text
PIECE = 1 << 20  # bytes that are handed to the system at a time
_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<4sQQQ")
MARK, BYE = b"row\n", b"bye\n"


class ProtocolError(DigradError, ValueError):
    """A peer that sends what no peer of ours would."""


class ClosedError(DigradError, OSError):
    """The other end hung up."""


class Connection(Protocol):
    """A socket, or one that encrypts (``sealed``)."""

    def fileno(self) -> int:
        """Return the system's number of it."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Say how long each call may take."""

    def sendall(self, data: memoryview | bytes, /) -> None:
        """Send bytes."""

    def recv_into(self, memory: memoryview, /) -> int:
        """Fill memory with what is there; wait if there is nothing. None: it was hung up."""

    def shutdown(self, how: int, /) -> None:
        """Break it, whoever reads from it or writes to it."""

    def close(self) -> None:
        """Hang up."""


class Header(NamedTuple):
    """What comes before the bytes of a message."""

    kind: bytes
    number: int  # of the message on its link
    tag: int
    size: int

    def packed(self) -> bytes:
        """Write it down."""
        return _HEADER.pack(*self)


HEADER_BYTES = _HEADER.size


def header_of(raw: bytes, expected: int) -> Header:
    """Read a header; refuse one that no peer of ours would send now.

    >>> header_of(Header(MARK, 3, 8, 1 << 40).packed(), 3)
    Traceback (most recent call last):
        ...
    digrad_peers.frames.ProtocolError: a message of 1,099,511,627,776 bytes: at most 67,108,864
    """
    made = Header(*_HEADER.unpack(raw))
    if made.kind not in (MARK, BYE):
        raise ProtocolError(f"{raw[:4]!r} where a message should begin")
    if made.size > (LARGEST if made.kind == MARK else LONGEST):
        raise ProtocolError(f"a message of {made.size:,} bytes: at most {LARGEST:,}")
    if made.number != expected:
        raise ProtocolError(f"message {made.number} where {expected} was next")
    return made


def receive_into(sock: Connection, memory: memoryview, end: float | None = None) -> None:
    """Fill memory from a connection, before ``end`` if it is given."""
    got = 0
    while got < len(memory):
        if end is not None:
            # When the time is over what is there is still taken: it may be ours that was late.
            sock.settimeout(max(end - time.monotonic(), 0.0))
        try:
            count = sock.recv_into(memory[got : got + PIECE])
        except (BlockingIOError, ssl.SSLWantReadError) as error:
            raise TimeoutError("no whole message in time") from error
        if not count:
            raise ClosedError("the other end hung up")
        got += count


def receive(sock: Connection, count: int, end: float | None = None) -> bytes:
    """Return so many bytes."""
    memory = bytearray(count)
    receive_into(sock, memoryview(memory), end)
    return bytes(memory)


def send_all(sock: Connection, memory: memoryview) -> None:
    """Send memory, piece by piece: each has the connection's timeout for itself."""
    for first in range(0, len(memory), PIECE):
        sock.sendall(memory[first : first + PIECE])


def send_text(sock: Connection, value: object) -> None:
    """Send a value as JSON."""
    raw = json.dumps(value).encode()
    sock.sendall(_LENGTH.pack(len(raw)) + raw)


def receive_text(sock: Connection, seconds: float, most: int = LONGEST) -> Any:
    """Return the table that comes as JSON, within some seconds."""
    end = time.monotonic() + seconds
    (size,) = _LENGTH.unpack(receive(sock, _LENGTH.size, end))
    if size > most:
        raise ProtocolError(f"a text of {size:,} bytes, where {most:,} are most")
    raw = receive(sock, size, end)
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a text that is no JSON: {raw[:40]!r}") from error
    if not isinstance(said, dict):
        raise ProtocolError(f"a text that is no table: {raw[:40]!r}")
    return said


def hang_up(sock: Connection) -> None:
    """Break a connection, so that whoever reads from it or writes to it in a thread notices."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
