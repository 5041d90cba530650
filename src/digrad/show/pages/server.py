"""A page of a run under way, which changes every other second, served to this machine alone.

The server listens on 127.0.0.1, at an address with a secret in it, since a machine may have other
users. It answers those who call it by that name: a page from elsewhere that has its own name lead
here (DNS rebinding) is refused, as is whoever wants to write.
"""

import json
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_urlsafe
from threading import Lock, Thread
from typing import Any

from digrad.base.errors import ParameterError
from digrad.show.pages.answer import curves, lean
from digrad.show.pages.curves import plot_data
from digrad.show.pages.markup import to_html
from digrad.show.pages.page import Page, Section, render
from digrad.show.tables import final_values, one_table
from digrad.show.watching import RunView

HERE = "127.0.0.1"
PATIENCE = 10.0  # seconds that a caller has to say what it wants
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server:
    """Serves what is seen of a run until it is left.

    Args:
        sight: what is seen now.
        port: where to listen; a free one by default.
    """

    def __init__(self, sight: RunView, *, port: int = 0) -> None:
        self.asked = False  # whether somebody has
        self._lock, self._sight, self._state = Lock(), sight, b""
        self._secret = token_urlsafe(16)
        try:
            self._server = ThreadingHTTPServer((HERE, port), _handler(self._answer))
        except OSError as error:
            hint = "another one, or none: then a free one is taken"
            raise ParameterError(f"cannot listen on port {port}: {error}", hint=hint) from error
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self._port}/{self._secret}/"

    def update(self, sight: RunView) -> None:
        with self._lock:
            self._sight, self._state = sight, b""

    def __enter__(self) -> "Server":
        Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, host: str, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return the status, the kind of content and the content for a path."""
        if host not in (f"{HERE}:{self._port}", f"localhost:{self._port}"):
            return HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"not for this name\n"
        secret, _, name = path.removeprefix("/").partition("/")
        if not compare_digest(secret.encode(), self._secret.encode()) or name not in ("", "state"):
            return HTTPStatus.NOT_FOUND, "text/plain", b"not here\n"
        self.asked = True
        with self._lock:
            if name:
                # Made once for each look, however many ask.
                self._state = self._state or json.dumps(live_state(self._sight)).encode()
                return HTTPStatus.OK, "application/json", self._state
            return HTTPStatus.OK, "text/html", render(live_page(self._sight), live=True).encode()


Answer = Callable[[str, str], tuple[HTTPStatus, str, bytes]]


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "digrad", ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            status, kind, content = answer(self.headers.get("Host", ""), self.path)
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Be quiet: the terminal shows the run."""

    return Handler


def live_page(sight: RunView) -> Page:
    """Return the page as it is now; its script asks for the rest."""
    said = live_state(sight)
    more = ' data-more="yes"' if said["more"] else ""
    body = (
        f'<div class="live"{more}><p id="line">{escape(said["line"])}</p>'
        f'<progress id="done" max="1" value="{said["share"]:.4f}"></progress></div>'
    )
    sections = [Section("How far it is", body)]
    if said["plot"] and sight.results is not None:
        sections.append(Section("Curves", curves(sight.results, _leaders(sight)), plotted=True))
    sections.append(Section("Values so far", f'<div id="rows">{said["rows"]}</div>'))
    name = sight.run.experiment.name if sight.run.experiment else sight.run.path.name
    return Page(name, str(sight.run.path), sections)


def live_state(sight: RunView) -> dict[str, Any]:
    """Return what changes, as plain values; the rows of the table are HTML, escaped."""
    share = min(1.0, sight.run.done / sight.run.total) if sight.run.total else 0.0
    said: dict[str, Any] = {"line": sight.line, "share": share, "more": sight.under_way}
    if sight.results is None or not sight.results.metrics:
        return said | {"plot": None, "rows": '<p class="note">nothing recorded yet</p>'}
    rows = to_html(one_table(lean(final_values(sight.results))))
    return said | {"plot": plot_data(sight.results, _leaders(sight)), "rows": rows}


def _leaders(sight: RunView) -> frozenset[Any]:
    assert sight.results is not None
    panels = sight.leaders(sight.results.metrics[0])
    return frozenset(curve.key for curves in panels.values() for curve in curves)
