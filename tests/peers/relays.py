"""A cable that can be cut: connections to one address are handed on to another."""

import socket
from contextlib import suppress
from threading import Lock, Thread

from digrad_peers.local import free_ports


class Relay:
    """Hands on what comes to ``port`` to another port of this machine, while it is whole."""

    def __init__(self, target: int) -> None:
        (self.port,) = free_ports(1)
        self._target, self._lock = target, Lock()
        self._lines: list[socket.socket] = []
        self._door: socket.socket | None = None
        self.mend()

    def mend(self) -> None:
        door = self._door = socket.create_server(("127.0.0.1", self.port))
        Thread(target=self._open, args=(door,), daemon=True).start()

    def cut(self) -> None:
        """End every connection, and let none be made."""
        with self._lock:
            door, self._door = self._door, None
            ended, self._lines = [*self._lines, *([door] if door else [])], []
        for line in ended:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _open(self, door: socket.socket) -> None:
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                return  # cut
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                cut = self._door is not door
                self._lines += [] if cut else [near, far]
            if cut:
                near.close()
                far.close()
                return
            for ends in ((near, far), (far, near)):
                Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
        for line in (source, target):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
