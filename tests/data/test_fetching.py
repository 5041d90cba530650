"""Downloads against a real server on this machine that misbehaves as told."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from digrad.base.errors import ParameterError
from digrad.base.files import WriteError
from digrad.data import DATASETS, FetchError, fetch, fetching, read_images
from digrad.data.fetching import download
from digrad.data.sets import Remote
from tiny_images import write_mnist

CONTENT = bytes(range(256)) * 2000  # more than a chunk
SIZE = len(CONTENT)
HALF = SIZE // 2


@dataclass
class Server:
    """What the server holds, how it behaves in each folder, and what it was asked and sent."""

    base: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def mirrors(self, *manners: str) -> tuple[str, ...]:
        return tuple(f"{self.base}/{manner}/" for manner in manners)


class Quiet(ThreadingHTTPServer):
    def handle_error(self, *about: object) -> None:
        """Say nothing: a client that hangs up is part of the play."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    state = Server(files={"file": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append((self.path, asked))
            _, manner, name = self.path.split("/")
            answer(self, state, manner, state.files.get(name, b""), asked)

    listening = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    state.base = f"http://127.0.0.1:{listening.server_port}"
    yield state
    state.over.set()
    listening.shutdown()
    listening.server_close()
    thread.join()


def answer(
    to: BaseHTTPRequestHandler, state: Server, manner: str, content: bytes, asked: str | None
) -> None:
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    status, headers, size = 206 if asked else 200, dict[str, str](), len(content)
    if manner in ("no-range", "no-range-cut"):
        start, status = 0, 200
    if asked and status == 206:
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    body = content[start:]
    if manner == "wrong":
        body = bytes(len(body))
    elif manner == "longer":
        body += b"x"
    elif manner == "liar" and asked:  # says 206, but sends another part
        body = content[start - 1 :]
        headers["Content-Range"] = f"bytes {start - 1}-{size - 1}/{size}"
    elif manner == "unasked":
        status, headers["Content-Range"] = 206, f"bytes 0-{size - 1}/{size}"
    elif manner == "416" and asked:
        status, body = 416, b""
    elif manner in ("404", "500"):
        status, body = int(manner), b"gone"
    elif manner == "redirect":
        status, headers["Location"], body = 302, f"{state.base}/good/file", b""
    elif manner == "elsewhere":
        status, headers["Location"], body = 302, "http://example.invalid/file", b""
    elif manner == "local-file":
        status, headers["Location"], body = 302, "file:///etc/passwd", b""
    length = str(len(body))
    if manner in ("cut", "no-range-cut"):
        body = body[:HALF]
    if manner == "slow":  # begins, then says no more
        body = body[:1000]
    to.send_response(status)
    for key, value in headers.items():
        to.send_header(key, value)
    if manner != "no-length":
        to.send_header("Content-Length", length)
    to.end_headers()
    state.sent += len(body)  # before: the client may look at it as soon as it has all
    to.wfile.write(body)
    if manner == "slow":
        to.wfile.flush()
        state.over.wait()


@pytest.fixture
def get(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def run(*manners: str, **options: object) -> Path:
        remote = Remote("file", SIZE, hashlib.sha256(CONTENT).hexdigest(), server.mirrors(*manners))
        return download(remote, tmp_path, local=True, **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / ".file.part"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("manner", ["good", "no-length", "redirect"])
def test_a_file_arrives_whole(get: Callable[..., Path], tmp_path: Path, manner: str) -> None:
    told: list[tuple[str, int, int]] = []
    path = get(manner, progress=lambda *now: told.append(now))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == {"file"}
    assert told[-1] == ("file", SIZE, SIZE)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_what_is_there_is_not_fetched_again(
    get: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    get("good")
    server.asked.clear()
    get("good")
    assert not server.asked
    (tmp_path / "file").write_bytes(CONTENT[:-1] + b"x")  # damaged since
    assert get("good").read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_a_cut_download_goes_on_where_it_was_cut(
    get: Callable[..., Path], server: Server, tmp_path: Path, part: Path
) -> None:
    with pytest.raises(FetchError, match=f"broke off at {HALF:,} of {SIZE:,} bytes"):
        get("cut")
    assert names(tmp_path) == {".file.part"}
    assert part.read_bytes() == CONTENT[:HALF]
    assert server.sent == HALF
    assert get("good").read_bytes() == CONTENT
    assert server.asked == [("/cut/file", None), ("/good/file", f"bytes={HALF}-")]
    assert server.sent == SIZE  # only the missing bytes travelled
    assert names(tmp_path) == {"file"}


def test_the_next_mirror_goes_on_in_the_same_call(
    get: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    assert get("404", "cut", "500", "good").read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, None] + 2 * [f"bytes={HALF}-"]
    assert server.sent == SIZE + 2 * len(b"gone")


@pytest.mark.parametrize(("manner", "then"), [("no-range", []), ("liar", [None]), ("416", [None])])
def test_where_a_range_is_not_honoured_it_starts_anew(
    get: Callable[..., Path], server: Server, part: Path, manner: str, then: list[None]
) -> None:
    part.write_bytes(CONTENT[:HALF])
    assert get(manner).read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [f"bytes={HALF}-", *then]


@pytest.mark.parametrize("begun", [bytes(HALF), bytes(SIZE), bytes(SIZE + 1)])
def test_a_wrong_beginning_is_thrown_away(
    get: Callable[..., Path], part: Path, begun: bytes
) -> None:
    part.write_bytes(begun)
    assert get("good").read_bytes() == CONTENT


def test_a_complete_part_needs_no_network(
    get: Callable[..., Path], server: Server, part: Path
) -> None:
    part.write_bytes(CONTENT)
    assert get("good").read_bytes() == CONTENT
    assert not server.asked


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("wrong", "the checksum is wrong"),
        ("longer", f"offers {SIZE + 1} bytes instead of {SIZE}"),
        ("404", "answers 404"),
        ("500", "answers 500"),
        ("unasked", "sends a part of the file that was not asked for"),
        ("elsewhere", "not https: http://example.invalid/file"),
        ("local-file", "file:///etc/passwd' is not allowed"),
    ],
)
def test_bad_mirrors_are_named_and_leave_nothing(
    get: Callable[..., Path], tmp_path: Path, manner: str, words: str
) -> None:
    with pytest.raises(FetchError, match=words) as caught:
        get(manner)
    assert f"/{manner}/file: " in str(caught.value)
    assert not names(tmp_path)
    assert get(manner, "good").read_bytes() == CONTENT


def test_a_silent_server_is_given_up(
    get: Callable[..., Path], part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 1.0)
    with pytest.raises(FetchError, match=r"silent for 1 seconds"):
        get("slow")
    assert part.read_bytes() == CONTENT[:1000]


def test_endless_bytes_are_not_taken(
    server: Server, get: Callable[..., Path], tmp_path: Path
) -> None:
    server.files["file"] = CONTENT + bytes(10_000_000)
    path = get("no-length")  # the first bytes are right, and no more of them are read
    assert path.stat().st_size == SIZE


def test_plain_http_is_refused(server: Server, tmp_path: Path) -> None:
    sha = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(FetchError, match="not https"):
        download(Remote("file", SIZE, sha, server.mirrors("good")), tmp_path)
    assert not server.asked
    far = Remote("file", SIZE, sha, ("http://example.invalid/",))
    with pytest.raises(FetchError, match="not https"):
        download(far, tmp_path, local=True)
    assert all(
        mirror.startswith("https://") and mirror.endswith("/")
        for dataset in DATASETS.values()
        for file in dataset.files
        for mirror in file.mirrors
    )


def test_a_full_disk_is_no_mirrors_fault(get: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / ".file.part").mkdir()
    with pytest.raises(WriteError, match="hint: choose a folder"):
        get("good", "good")


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """MNIST, but tiny and on this machine."""
    source = write_mnist(tmp_path / "source")
    files = []
    for path in sorted(source.iterdir()):
        content = server.files[path.name] = path.read_bytes()
        sha = hashlib.sha256(content).hexdigest()
        files.append(Remote(path.name, len(content), sha, server.mirrors("good")))
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], files=tuple(files)))
    return server


def test_a_fetched_set_can_be_read(tiny: Server, tmp_path: Path) -> None:
    place = fetch("mnist", tmp_path / "data", local=True)
    assert place == tmp_path / "data" / "mnist"
    assert len(read_images("mnist", tmp_path / "data").train) == 30
    assert len(tiny.asked) == 4


def test_the_error_says_which_files_belong_where(tiny: Server, tmp_path: Path) -> None:
    tiny.files["train-images-idx3-ubyte.gz"] = b"rubbish"
    with pytest.raises(FetchError) as caught:
        fetch("mnist", tmp_path / "data", local=True)
    first, mirror, hint = str(caught.value).splitlines()
    assert first == "cannot fetch train-images-idx3-ubyte.gz"
    assert tiny.base in mirror
    assert f"put into {tmp_path / 'data' / 'mnist'} yourself: train-images" in hint
    assert "t10k" not in hint  # these two have come


def test_digits_are_not_fetched(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="they come with scikit-learn"):
        fetch("digits", tmp_path)
