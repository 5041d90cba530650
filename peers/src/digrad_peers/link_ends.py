"""One end of a link: a connection that is made again when it breaks, and waits that end.

Either end may be the one that dials.
"""

import logging
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import Condition, Thread

from digrad.engines.transports.transport import LinkError
from digrad_peers.credentials import AuthenticationError
from digrad_peers.frames import ClosedError, Connection, ProtocolError, hang_up
from digrad_peers.pause_clock import PauseAwareClock
from digrad_peers.tls import TLSConnection

SLOWEST = 1.0  # seconds between two tries to dial
TICK = 0.2  # seconds in which a thread notices that its link was closed
Dialer = Callable[[int], tuple[Connection, int]]  # what is wanted next; connection, the same
Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
log = logging.getLogger("digrad.peers")


class MismatchError(AuthenticationError):
    """A member that was started with something else than this node."""


class LinkEnd(ABC):
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
        self.sock: Connection | None = None
        self._fresh: tuple[Connection, int] | None = None
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

    def offer(self, sock: Connection, wanted: int) -> None:
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
        """LinkEnd the connection there is, so that ``wanted`` stays what it is until the next."""
        with self.changed:
            self._stale = True
            self._drop(self.sock)
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self.sock is None, TICK + self.timeout):
                raise ClosedError(f"the old connection with {self.peer} does not end")

    def _drop(self, sock: Connection | None) -> None:
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
            except ProtocolError as error:
                self._cut_off(str(error))
            except (OSError, ValueError) as error:
                log.debug("link with %s: %s", self.peer, error)
            finally:
                with self.changed:
                    self.sock, self._broken = None, time.monotonic()
                    self.changed.notify_all()
                sock.close()

    def _connection(self) -> tuple[Connection, int] | None:
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
            except AuthenticationError as error:
                self._refuse(str(error), final=isinstance(error, MismatchError))
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
            self.said = f"was cut off: it sent {why}"
            self._shut()

    def wanted(self) -> int:
        """Return the number of the next message, where this is the end that receives."""
        return 0

    @abstractmethod
    def _talk(self, sock: Connection, wanted: int) -> None:
        """Use a connection until it breaks; ``wanted`` is the next message of the other end."""

    def check(self) -> None:
        """Raise if nothing more can be expected of the link."""
        lost = self._broken is not None and time.monotonic() - self._broken > self.grace
        if self.over or self.said or self.closed or lost:
            raise LinkError((self.rank,), timed_out=False)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait, with ``changed`` held, until something holds; raise if it never will."""
        began = time.monotonic()
        clock, end = PauseAwareClock(began), began + self.timeout
        while not holds():
            self.check()
            left = end - clock.at(time.monotonic())
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
            self._shut()

    def _shut(self) -> None:
        """LinkEnd every connection there is, with ``changed`` held, and take no other."""
        self.closed = True
        self._drop(self.sock)
        self._drop(self._fresh[0] if self._fresh else None)
        self._fresh = None
        self.changed.notify_all()


def ready(seconds: float, *socks: Connection) -> Sequence[Connection]:
    """Return the connections on which something can be read, within some seconds."""
    waiting = [s for s in socks if isinstance(s, TLSConnection) and s.pending]
    if waiting:
        return waiting
    with Selector() as selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]  # type: ignore[misc]


def waiting_for(error: LinkError, ends: dict[int, LinkEnd]) -> str:
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
