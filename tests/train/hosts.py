"""Several hosts on one machine: a network namespace each, joined by a switch of our own.

The switch is a thread that hands on Ethernet frames between TAP devices, and can delay and
lose those of some hosts. So no module of the kernel is needed beyond TUN/TAP.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import time
from collections.abc import Collection
from threading import Thread
from types import TracebackType

TUN = "/dev/net/tun"
SET_NAME, TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
LONGEST = 1 << 16  # bytes of a frame
INTERFACE = "eth0"


def possible() -> bool:
    """Whether this process may build hosts."""
    return os.geteuid() == 0 and shutil.which("ip") is not None and os.access(TUN, os.R_OK)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Hosts 10.77.0.1, 10.77.0.2, ...

    Args:
        count: how many.
        bad: hosts whose frames, in both directions, are delayed and lost.
        delay: seconds.
        loss: share of the frames.
    """

    def __init__(
        self, count: int, *, bad: Collection[int] = (), delay: float = 0.0, loss: float = 0.0
    ) -> None:
        self.names = [f"digrad-{os.getpid()}-{k}" for k in range(count)]
        self.bad, self.delay, self.loss = set(bad), delay, loss
        self.cut: set[int] = set()  # hosts whose cable is pulled
        self.apart: set[frozenset[int]] = set()  # pairs of hosts that do not reach each other
        self.lost = self.carried = 0  # frames
        self._ports: list[int] = []
        self._ending = False
        self._switch = Thread(target=self._work, daemon=True)

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int) -> list[str]:
        """What to write before a command to run it on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def __enter__(self) -> "Hosts":
        try:
            for host, name in enumerate(self.names):
                ip("netns", "add", name)
                self._ports.append(self._plug_in(host))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._switch.start()
        return self

    def _plug_in(self, host: int) -> int:
        """Give a host its interface; return the other end of the cable."""
        name, device = self.names[host], f"dg{os.getpid()}x{host}"
        port = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(port, SET_NAME, struct.pack("16sH", device.encode(), TAP_WITHOUT_HEADER))
        ip("link", "set", device, "netns", name)
        ip("-n", name, "link", "set", device, "name", INTERFACE)
        ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
        for up in ("lo", INTERFACE):
            ip("-n", name, "link", "set", up, "up")
        return port

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending = True
        if self._switch.is_alive():
            self._switch.join()
        for port in self._ports:
            os.close(port)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def _work(self) -> None:
        chance, known = random.Random(0), dict[bytes, int]()
        waiting: list[tuple[float, int, int, bytes]] = []  # when, in which order, where to, what
        while not self._ending:
            pause = waiting[0][0] - time.monotonic() if waiting else 0.1
            for port in select.select(self._ports, [], [], min(0.1, max(0.0, pause)))[0]:
                host, frame = self._ports.index(port), os.read(port, LONGEST)
                known[frame[6:12]] = host
                target = known.get(frame[:6])
                others = [k for k in range(len(self._ports)) if k != host]
                for to in others if target is None else [target]:
                    if self._loses({host, to}, chance):
                        self.lost += 1
                        continue
                    self.carried += 1
                    late = self.delay if {host, to} & self.bad else 0.0
                    heapq.heappush(waiting, (time.monotonic() + late, self.carried, to, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(waiting)
                os.write(self._ports[to], frame)

    def _loses(self, ends: set[int], chance: random.Random) -> bool:
        if ends & self.cut or frozenset(ends) in self.apart:
            return True
        return bool(ends & self.bad) and chance.random() < self.loss
