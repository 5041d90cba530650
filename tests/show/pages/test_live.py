"""A run under way on the terminal and as a page: who is answered, and what is said."""

import http.client
import json
import re
import sys
import threading
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest
from folders import write_run
from reading import Reader

from digrad.base.errors import ParameterError
from digrad.base.text import plain
from digrad.cli import main
from digrad.results.lock import locked
from digrad.results.run_state import NAME, RunAnnouncements
from digrad.show.braille import draw, mark_of
from digrad.show.pages.page import render
from digrad.show.pages.server import Server, live_page, live_state
from digrad.show.watching import RunView, as_text

EVIL = "<script>bad()</script>"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", algorithms=("S-PP", EVIL.replace("/", "")))


def ask(
    server: Server, path: str | None = None, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    place = urlparse(server.address)
    caller = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=10)
    try:
        caller.request(method, place.path if path is None else path, headers=headers)
        answer = caller.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        caller.close()


def test_a_page_and_its_state_are_served(folder: Path) -> None:
    with Server(RunView.of(folder)) as server:
        status, page, headers = ask(server)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Frame-Options"] == "DENY"
        assert "connect-src 'self'" in page.decode()
        said = json.loads(ask(server, f"{urlparse(server.address).path}state")[1])
        assert said["line"].startswith("run: interrupted, ")
        assert said["plot"]["networks"] == ["ring"]
        assert server.asked


def test_it_listens_to_this_machine_alone(folder: Path) -> None:
    with Server(RunView.of(folder)) as server:
        assert server._server.server_address[0] == "127.0.0.1"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", server.address)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "[::1]:80"])
def test_foreign_names_are_refused(folder: Path, host: str) -> None:
    with Server(RunView.of(folder)) as server:
        status, text, _ = ask(server, Host=host)
        assert (status, text) == (421, b"not for this name\n")
        port = urlparse(server.address).port
        assert ask(server, Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("path", ["/", "/state", "/x/", "/../../etc/passwd", "//state", "/%00/"])
def test_without_the_secret_there_is_nothing(folder: Path, path: str) -> None:
    with Server(RunView.of(folder)) as server:
        assert ask(server, path)[0] == 404
        assert ask(server, f"{urlparse(server.address).path}../metrics.csv")[0] == 404
        assert not server.asked


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nobody_can_write(folder: Path, method: str) -> None:
    with Server(RunView.of(folder)) as server:
        assert ask(server, method=method)[0] == 501


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with Server(RunView.of(folder)) as server:
        port = urlparse(server.address).port
        with pytest.raises(ParameterError, match=f"cannot listen on port {port}: .*\n  hint: "):
            Server(RunView.of(folder), port=port or 0)


def test_names_are_words_on_the_page_too(folder: Path) -> None:
    sight = RunView.of(folder)
    page = Reader(render(live_page(sight), live=True))
    assert EVIL.replace("/", "") in page.text
    said = live_state(sight)
    assert "<script" not in said["rows"]
    assert "<" not in json.dumps(said["plot"]["methods"])


def test_what_a_run_says_of_itself_is_shown(folder: Path) -> None:
    with locked(folder):
        told = RunAnnouncements(120, 1200, 65.0, "S-PP on ring")
        (folder / NAME).write_text(json.dumps(told._asdict()))
        sight = RunView.of(folder)
        assert (
            sight.line == "run: running, 10 % of 1,200 trial-steps, about 65 s left; S-PP on ring"
        )
        assert live_state(sight)["share"] == 0.1
        assert live_state(sight)["more"]


def test_the_terminal_shows_the_best_so_far(folder: Path) -> None:
    text = plain(as_text(RunView.of(folder), wide=80), 80)
    assert "gradient norm on ring" in text
    assert "S-PP, γ = 0.1" in text
    assert "γ = 0.05" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_curves_are_told_apart_without_colours(folder: Path) -> None:
    lines = plain(as_text(RunView.of(folder), wide=80), 80).splitlines()
    legend = dict(re.findall(r"^━(\w)━ +(.+?), γ", "\n".join(lines), re.M))
    assert legend == {"a": "S-PP", "b": EVIL.replace("/", "")}
    drawn = "".join(line[12:] for line in lines if line[11:12] in ("│", "┤"))
    assert {letter for letter in drawn if letter.isalpha()} == {"a", "b"}


def test_curves_that_are_the_same_are_both_marked() -> None:
    x = np.arange(1.0, 50.0)
    drawn = draw([(x, 1 / x), (x, 1 / x), (x[:3], 1 / x[:3])], log=True).plain
    assert all(mark_of(k) in drawn for k in range(3))


def test_a_run_without_records_can_be_watched(folder: Path) -> None:
    (folder / "metrics.csv").unlink()
    sight = RunView.of(folder)
    assert "nothing recorded yet" in plain(as_text(sight))
    assert live_state(sight)["plot"] is None
    render(live_page(sight), live=True)


# The commands.


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["digrad", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_watch_ends_with_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    held, go = threading.Event(), threading.Event()

    def write() -> None:
        with locked(folder):
            held.set()
            go.wait(5)

    writer = threading.Thread(target=write)
    writer.start()
    held.wait(5)

    def sleep(seconds: float) -> None:  # between two looks the run ends
        go.set()
        writer.join()

    monkeypatch.setattr(sys.modules["digrad.cli.watch"], "sleep", sleep)
    assert call(monkeypatch, "watch", str(folder), "--page") == 0
    out, err = capsys.readouterr()
    assert out.startswith("page: http://127.0.0.1:")
    assert err.startswith("run: running, ")
    assert "run: interrupted, " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("watch", "nowhere"), "nowhere is not a folder"),
        (("watch", "run", "--port", "8000"), "hint: add --page"),
        (("watch", "run", "--metric", "los"), "did you mean 'loss'?"),
        (("watch", "run", "--metric", "gap"), "recorded are: gradient_norm, loss, consensus"),
        (("runs", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_is_said(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    assert call(monkeypatch, *words) == 2
    assert said in capsys.readouterr().err


def test_runs_lists_folders(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder.parent)
    assert call(monkeypatch, "runs", ".") == 0
    out = capsys.readouterr().out
    assert re.search(r"run +interrupted +0/12 +0 %", out)
    assert "go on with: digrad run run/experiment.toml --out run --resume" in out
    (folder.parent / "empty").mkdir()
    assert call(monkeypatch, "runs", "empty") == 0
    assert "no run folders in empty" in capsys.readouterr().out
