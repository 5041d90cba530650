"""Where the links of a node are made: it listens, lets members in, and dials."""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock, Semaphore, Thread
from typing import Any

from digrad.base.errors import DigradError, message
from digrad_peers.credentials import AT_ONCE, PATIENCE, AuthenticationError, Credentials, listen
from digrad_peers.frames import (
    ClosedError,
    Connection,
    ProtocolError,
    hang_up,
    receive_text,
    send_text,
)
from digrad_peers.link_ends import Dialer, LinkEnd, MismatchError
from digrad_peers.links import Inlet, Outlet
from digrad_peers.membership import Link, MembershipError
from digrad_peers.pause_clock import PauseAwareClock
from digrad_peers.refusals import Refusals
from digrad_peers.tls import TLSConnection

HELLO = 1 << 16  # bytes of a hello


class EpochLinks:
    """The links of one node in one epoch.

    Args:
        epoch: its number.
        about: what all nodes must have in common, as texts.
        ranks: the number of every member in this epoch, by name.
        links: those that leave the node or lead to it.
    """

    def __init__(
        self,
        who: Credentials,
        epoch: int,
        about: Mapping[str, str],
        ranks: Mapping[str, int],
        links: Sequence[Link],
    ) -> None:
        self._who, self.epoch, self.about = who, epoch, dict(about)
        membership = who.membership
        # A hub says who is lost; a link that is down while both ends live may come back.
        timing = membership.timeout, membership.timeout if membership.hub else membership.grace
        self.outlets: dict[int, Outlet] = {}
        self.inlets: dict[int, Inlet] = {}
        self._ends: dict[Link, LinkEnd] = {}
        for link in links:
            sends = link[0] == who.name
            peer = link[1] if sends else link[0]
            dial = self._dialer(link, peer) if membership.dials(link) == who.name else None
            rank = ranks[peer]
            if sends:
                self._ends[link] = self.outlets[rank] = Outlet(rank, peer, *timing, dial)
            else:
                self._ends[link] = self.inlets[rank] = Inlet(rank, peer, *timing, dial)

    @property
    def ends(self) -> list[LinkEnd]:
        """All of them."""
        return list(self._ends.values())

    def items(self) -> list[tuple[Link, LinkEnd]]:
        """All of them, by link."""
        return list(self._ends.items())

    def _dialer(self, link: Link, peer: str) -> Dialer:
        where = self._who.membership.nodes[peer].reached_at

        def dial(wanted: int) -> tuple[Connection, int]:
            sock = self._who.dial(peer, where)
            try:
                hello = {"link": link, "epoch": self.epoch, "next": wanted, "about": self.about}
                send_text(sock, hello)
                answer = receive_text(sock, PATIENCE, HELLO)
                _check_answer(answer, peer)
                return self._who.finish_handshake(sock), _number(answer.get("next"))
            except BaseException:
                sock.close()
                raise

        return dial

    def connect(self, seconds: float) -> None:
        """Wait until every link is there; raise if one does not come in time."""
        for end in self.ends:
            end.start()
        began = time.monotonic()
        clock, until = PauseAwareClock(began), began + seconds
        while True:
            late = clock.at(time.monotonic()) > until
            lacking = [(link, end) for link, end in self._ends.items() if not end.up]
            refused = [end for _, end in lacking if end.final]
            if not lacking:
                return
            if refused or late or any(end.over for _, end in lacking):
                raise MembershipError(self._missing_text(lacking, refused, seconds))
            time.sleep(0.005)

    def _missing_text(
        self, lacking: list[tuple[Link, LinkEnd]], refused: list[LinkEnd], seconds: float
    ) -> str:
        if refused:
            return refused[0].refused
        lines = [
            f"{j} -> {i}: {end.refused or 'nobody there'}".partition("\n")[0]
            for (j, i), end in lacking[:4]
        ]
        names = ", ".join(dict.fromkeys(end.peer for _, end in lacking))
        hint = "start it, or let `digrad peers check` say which links can be opened"
        return message(f"{names} did not come within {seconds:.3g} s", *lines, hint=hint)

    def answer(self, peer: str, hello: Mapping[str, Any]) -> tuple[LinkEnd, dict[str, Any]]:
        """Say which end a caller wants and what it is told; raise if there is none for it."""
        said = hello.get("link")
        link = [*map(str, said), "", ""] if isinstance(said, list) else ["", ""]
        end = self._ends.get((link[0], link[1]))
        if end is None or end.peer != peer:
            raise AuthenticationError(
                f"{peer} asks for the link {said!r:.80}, which is not between us"
            )
        differing = [key for key, value in self.about.items() if _about(hello).get(key) != value]
        if differing:
            key = differing[0]
            what = f"{peer} and {self._who.name} do not agree about {', '.join(differing)}"
            detail = f"{key}: {str(_about(hello).get(key))[:200]} and {self.about[key][:200]}"
            hint = "start every node with the same network, model, algorithm and versions"
            raise MismatchError(what, detail, hint=hint)
        if end.closed:
            raise ClosedError(f"the link with {peer} is closed")
        end.vacate()
        return end, {"ok": True, "next": end.wanted()}

    def interrupt(self) -> None:
        """End every wait."""
        for end in self.ends:
            end.interrupt()

    def leave(self, why: str, seconds: float) -> None:
        """Send what is on its way, say why nothing more will come, and hang up."""
        for outlet in self.outlets.values():
            with suppress(DigradError):
                outlet.send(0, memoryview(why.encode()), kind=b"bye\n")
        end = time.monotonic() + seconds
        for outlet in self.outlets.values():
            outlet.flush(end, self._who.membership.grace)  # who is done may be gone
        self.close()

    def close(self) -> None:
        """Hang up."""
        for end in self.ends:
            end.close()


class LinkListener:
    """Listens for the other ends of links, as long as the node lives.

    Args:
        refused: is told who was turned away, and why.
    """

    def __init__(
        self, who: Credentials, refused: Callable[[str], None] = lambda text: None
    ) -> None:
        self._who, self._refused = who, Refusals(refused)
        self._links: EpochLinks | None = None
        self._lock, self._room = Lock(), Semaphore(AT_ONCE)
        self._door: socket.socket | None = None
        site = who.membership.sites[who.name]
        if site.address or site.listen:
            self._door = listen(site.listens_at, who.name)
            Thread(target=self._accept_callers, name="digrad door", daemon=True).start()

    def use(self, links: EpochLinks | None) -> None:
        """Let callers have the ends of these links from now on."""
        with self._lock:
            self._links = links

    def _accept_callers(self) -> None:
        while self._door is not None:
            try:
                plain, caller = self._door.accept()
            except OSError:
                return  # closed
            self._room.acquire()
            work = Thread(
                target=self._admit, args=(plain, *caller[:2]), name="digrad caller", daemon=True
            )
            work.start()

    def _admit(self, plain: socket.socket, host: str, port: int) -> None:
        """Let one caller in, or not: it can keep this thread busy for some seconds at most."""
        try:
            peer, sock = self._who.admit(plain)
            self._attach(peer, sock)
        except (DigradError, OSError, ValueError, TypeError) as error:
            self._refused(host, port, str(error))
        finally:
            self._room.release()

    def _attach(self, peer: str, sock: TLSConnection) -> None:
        try:
            hello = receive_text(sock, PATIENCE, HELLO)
            with self._lock:
                links = self._links
            if hello.get("probe") is True:
                send_text(sock, {"ok": True})
                sock.close()
                return
            try:
                if links is None or hello.get("epoch") != links.epoch:
                    raise ClosedError("not yet, or no longer")
                end, answer = links.answer(peer, hello)
            except ClosedError as error:
                send_text(sock, {"ok": False, "again": True, "why": str(error)})
                sock.close()
                return
            except AuthenticationError as error:
                send_text(sock, {"ok": False, "why": str(error)})
                raise
            send_text(sock, answer)
            end.offer(self._who.finish_handshake(sock), _number(hello.get("next")))
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Listen no more."""
        door, self._door = self._door, None
        if door is not None:
            hang_up(door)
            door.close()


def _check_answer(answer: Mapping[str, Any], peer: str) -> None:
    if answer.get("ok") is True:
        return
    why = str(answer.get("why"))[:2000]
    if answer.get("again") is True:
        raise ClosedError(f"{peer} is not ready: {why}")
    raise MismatchError(why)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ProtocolError(f"{value!r:.40} where the number of a message should be")
    return value


def _about(hello: Mapping[str, Any]) -> Mapping[str, Any]:
    said = hello.get("about")
    return said if isinstance(said, dict) else {}
