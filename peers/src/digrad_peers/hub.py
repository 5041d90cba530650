"""The hub: a small server that says who takes part; no model ever passes through it."""

import json
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Semaphore, Thread
from typing import Any, NamedTuple

from digrad.base.errors import DigradError
from digrad_peers.coordinator import EpochCoordinator
from digrad_peers.credentials import AT_ONCE, PATIENCE, Credentials, listen
from digrad_peers.epochs import NONE, Epoch
from digrad_peers.frames import hang_up, receive_text, send_text
from digrad_peers.membership import HUB, Membership, MembershipError
from digrad_peers.refusals import Refusals
from digrad_peers.tls import TLSConnection

PERIOD = 0.1  # seconds between two looks at who is silent
log = logging.getLogger("digrad.peers")


class Hub:
    """Hears every node, and answers with the epoch; one thread for each line.

    Args:
        tell: is told what happens, a line each.
        history: a file to which epochs are added, and from which the last is read.
    """

    def __init__(
        self,
        membership: Membership,
        key_file: Path,
        tell: Callable[[str], None] = lambda text: None,
        history: Path | None = None,
    ) -> None:
        if membership.hub is None:
            hint = 'add [hub] with address = "HOST:PORT" and key = "..."'
            raise MembershipError("the membership file names no hub", hint=hint)
        self._who = Credentials(membership, HUB, key_file)
        self._tell, self._history, self._refused = tell, history, Refusals(tell)
        self._coordinator = EpochCoordinator(membership, time.monotonic(), _last_epoch(history))
        self._known = len(self._coordinator.history)
        self._lock, self._room, self._closed = Lock(), Semaphore(AT_ONCE), Event()
        self._door = listen(membership.hub.listens_at, HUB)
        self._lines: set[TLSConnection] = set()
        for work in (self._accept_callers, self._watch):
            Thread(target=work, name="digrad hub", daemon=True).start()

    def wait(self) -> None:
        """Serve until all members are done, or too few are left."""
        while not self._closed.wait(PERIOD):
            with self._lock:
                council = self._coordinator
                over = council.ended or (council.stopped and not self._lines)
            if over:
                break
        self.close()

    def _watch(self) -> None:
        while not self._closed.wait(PERIOD):
            with self._lock:
                self._coordinator.tick(time.monotonic())
                self._log_epochs()

    def _log_epochs(self) -> None:
        """Write down what was decided since."""
        for epoch in self._coordinator.history[self._known :]:
            count = len(epoch.members)
            self._tell(f"epoch {epoch.number}: {count} nodes: {epoch.why}")
            if self._history is not None:
                with self._history.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(epoch.to_dict()) + "\n")
        self._known = len(self._coordinator.history)

    def _accept_callers(self) -> None:
        while not self._closed.is_set():
            try:
                plain, caller = self._door.accept()
            except OSError:
                return
            self._room.acquire()
            work = Thread(
                target=self._admit, args=(plain, *caller[:2]), name="digrad line", daemon=True
            )
            work.start()

    def _admit(self, plain: socket.socket, host: str, port: int) -> None:
        try:
            name, sock = self._who.admit(plain)
        except (DigradError, OSError, ValueError) as error:
            self._refused(host, port, str(error))
            return
        finally:
            self._room.release()
        with self._lock:
            self._lines.add(sock)
        try:
            self._serve(name, sock)
        except (DigradError, OSError, ValueError) as error:
            log.debug("line to %s: %s", name, error)
        finally:
            sock.close()
            with self._lock:
                self._lines.discard(sock)
                self._coordinator.gone(name, time.monotonic())

    def _serve(self, name: str, sock: TLSConnection) -> None:
        while not self._closed.is_set():
            said = receive_text(sock, self._who.membership.timeout)
            with self._lock:
                answer = self._coordinator.report(name, said, time.monotonic())
                self._log_epochs()
            sock.settimeout(PATIENCE)
            send_text(sock, answer)

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        hang_up(self._door)
        for sock in list(self._lines):
            hang_up(sock)
        self._door.close()


def _last_epoch(history: Path | None) -> Epoch | None:
    """Return the last epoch that was written down."""
    if history is None or not history.is_file():
        return None
    lines = history.read_text(encoding="utf-8").splitlines()
    try:
        return Epoch.parse(json.loads(lines[-1])) if lines else None
    except ValueError as error:
        hint = "move it away: the hub learns the epoch from the nodes"
        raise MembershipError(f"{history} holds no epochs: {error}", hint=hint) from error


class Answer(NamedTuple):
    """What the hub tells a node: the epoch, whether it is in it, and whether it is over."""

    epoch: Epoch
    member: bool
    over: bool
    stopped: str
    leaver: str = ""  # who leaves politely
    halt: int | None = None  # at which place it does

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> "Answer":
        """Read what the council said."""
        flags = said.get("member") is True, said.get("over") is True
        told = said.get("farewell")
        farewell = told if isinstance(told, dict) else {}
        leaver, halt = str(farewell.get("leaver", ""))[:200], farewell.get("halt")
        epoch, stopped = Epoch.parse(said.get("epoch") or {}), str(said.get("stopped"))[:500]
        return cls(epoch, *flags, stopped, leaver, None if halt is None else int(halt))


class HubConnection:
    """A node's line to the hub: it reports, and hears what is decided.

    Args:
        heard: called, in a thread of its own, with every answer.
    """

    def __init__(self, who: Credentials, heard: Callable[[Answer], None]) -> None:
        hub = who.membership.hub
        assert hub is not None
        self._who, self._where, self._heard = who, hub.reached_at, heard
        self._said: dict[str, Any] = {"epoch": NONE, "t": 0, "fresh": True, "token": token_hex(8)}
        self._lock, self._news, self._closed = Lock(), Event(), Event()
        self.up = False
        self._thread = Thread(target=self._run, name="digrad hub line", daemon=True)
        self._thread.start()

    def say(self, **said: Any) -> None:
        """Report from now on; the hub hears it at once."""
        with self._lock:
            self._said |= said
        self._news.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with closing(self._who.dial(HUB, self._where)) as sock:
                    self._talk(sock)
            except (DigradError, OSError, ValueError) as error:
                if self.up:
                    log.warning("the hub does not answer; training goes on without it")
                log.debug("line to the hub: %s", error)
            self.up = False
            self._closed.wait(2 * PERIOD)

    def _talk(self, sock: TLSConnection) -> None:
        while True:
            self._news.clear()
            with self._lock:
                said = dict(self._said)
            sock.settimeout(PATIENCE)
            send_text(sock, said)
            answer = receive_text(sock, self._who.membership.timeout)
            self.up = True
            self._heard(Answer.parse(answer))
            if self._closed.is_set():
                return
            self._news.wait(PERIOD)

    def close(self, seconds: float = 2.0) -> None:
        """Report a last time, and hang up."""
        self._closed.set()
        self._news.set()
        self._thread.join(seconds)
