"""Links that were cut: tried again and again, and reported once they can be opened."""

from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event, Thread

from digrad.base.errors import DigradError
from digrad_peers.credentials import PATIENCE, Credentials
from digrad_peers.frames import receive_text, send_text
from digrad_peers.membership import Link

PERIOD = 1.0  # seconds from one try to the next
TRIES = 2  # that succeed one after the other: a link that comes and goes is not back


class LinkRetrier:
    """Tries out the links that an epoch does without, from the end that dials them.

    Args:
        mended: called, once, with the links that can be opened again.
    """

    def __init__(
        self, who: Credentials, cut: Sequence[Link], mended: Callable[[list[Link]], None]
    ) -> None:
        self._who, self._mended, self._closed = who, mended, Event()
        self._links = [link for link in cut if who.membership.dials(link) == who.name]
        if self._links:
            Thread(target=self._run, name="digrad mender", daemon=True).start()

    def _run(self) -> None:
        opened = dict.fromkeys(self._links, 0)
        while not self._closed.wait(PERIOD):
            for link in self._links:
                opened[link] = opened[link] + 1 if self._opens(link) else 0
            back = [link for link, times in opened.items() if times >= TRIES]
            if back and not self._closed.is_set():
                self._mended(back)
                return

    def _opens(self, link: Link) -> bool:
        peer = link[1] if link[0] == self._who.name else link[0]
        try:
            where = self._who.membership.nodes[peer].reached_at
            with closing(self._who.dial(peer, where)) as sock:
                send_text(sock, {"probe": True})
                return receive_text(sock, PATIENCE).get("ok") is True
        except (DigradError, OSError, ValueError):
            return False

    def close(self) -> None:
        """Try no more."""
        self._closed.set()
