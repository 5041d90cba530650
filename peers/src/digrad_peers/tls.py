"""A connection under TLS that encrypts in memory, in large pieces.

Over a socket OpenSSL makes a system call for each record it sends, 16 KB at most, and two for each
it takes in, and wakes the other end up as often. Here records are made and read in memory, and go
to and come from the system many at a time.
"""

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

PIECE = 1 << 19  # bytes to and from the system at a time
HEADER = 5  # bytes of a record, the last two of which say how many follow
T = TypeVar("T")


class TLSConnection:
    """One end; one thread reads and writes, any may hang up.

    Until ``in_pieces`` it takes no more from the system than the record it needs: what comes
    after the last one may be in the clear.

    Args:
        plain: belongs to it from now on.
        server: whether this is the end that was dialled.
    """

    def __init__(self, context: ssl.SSLContext, plain: socket.socket, *, server: bool) -> None:
        self._plain, self._timeout = plain, plain.gettimeout()
        self._coming, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._coming, self._leaving, server_side=server)
        self._room = memoryview(bytearray(HEADER))
        self._header, self._left = b"", 0  # of the record that is being taken in

    def in_pieces(self) -> None:
        """Take in as much as there is from now on."""
        self._room = memoryview(bytearray(PIECE))

    def fileno(self) -> int:
        """Return the system's number of it."""
        return self._plain.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """Say how long each call may take."""
        self._timeout = seconds

    @property
    def pending(self) -> bool:
        """Whether bytes lie where the system does not know of them."""
        return bool(self.tls.pending() or self._coming.pending)

    def handshake(self) -> None:
        """Do the handshake."""
        self._finish(self.tls.do_handshake)

    def end_encryption(self) -> socket.socket:
        """End the encryption on both sides; return what is below it."""
        self._finish(self.tls.unwrap)
        return self._plain

    def _finish(self, work: Callable[[], T]) -> T:
        """Do what may need several words from the other end."""
        end = self._end()
        while True:
            try:
                done = work()
                self._flush(end)
                return done
            except ssl.SSLWantReadError:
                self._flush(end)
                self._fill(end)
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush(end)  # so that the other end hears why
                raise

    def sendall(self, data: memoryview | bytes) -> None:
        """Send bytes."""
        end, memory = self._end(), memoryview(data)
        for first in range(0, len(memory), PIECE):
            self.tls.write(memory[first : first + PIECE])
            self._flush(end)

    def recv_into(self, memory: memoryview) -> int:
        """Fill memory with what is there; wait if there is nothing. None: it was hung up."""
        end, got = self._end(), 0
        while got < len(memory):
            try:
                count = cast(int, self.tls.read(len(memory) - got, cast(Any, memory[got:])))
            except ssl.SSLWantReadError:
                if got:
                    break
                self._flush(end)
                self._fill(end)
            except ssl.SSLEOFError:
                break
            else:
                if not count:
                    break
                got += count
        return got

    def _flush(self, end: float | None) -> None:
        if self._leaving.pending:
            self._limit(end)
            self._plain.sendall(self._leaving.read())

    def _fill(self, end: float | None) -> None:
        """Take in what is there, or wait for it."""
        self._limit(end)
        if len(self._room) == PIECE:
            count = self._plain.recv_into(self._room)
            self._coming.write(self._room[:count])
        else:
            count = self._fill_one()
        if not count:
            self._coming.write_eof()

    def _fill_one(self) -> int:
        """Take in no more than the record that has begun."""
        said = self._plain.recv(self._left or HEADER - len(self._header))
        self._coming.write(said)
        if self._left:
            self._left -= len(said)
        else:
            self._header += said
            if len(self._header) == HEADER:
                self._left, self._header = int.from_bytes(self._header[3:], "big"), b""
        return len(said)

    def _end(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _limit(self, end: float | None) -> None:
        # What is there is taken, also when the time is over: see ``frames.receive_into``.
        self._plain.settimeout(None if end is None else max(end - time.monotonic(), 0.0))

    def shutdown(self, how: int) -> None:
        """Break the connection, so that whoever reads from it or writes to it notices."""
        self._plain.shutdown(how)

    def close(self) -> None:
        """Hang up."""
        self._plain.close()
