"""Downloads that end in the right file or in none, and go on where they were cut off."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from stat import S_ISREG
from typing import IO, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from digrad.base.errors import DigradError, ParameterError, lookup, param
from digrad.base.files import WriteError, create
from digrad.data.sets import DATASETS, SOURCE, Remote, home_of

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Progress = Callable[[str, int, int], None]  # file, bytes that are there, bytes in all


class FetchError(DigradError):
    """A file that no mirror gave."""


class _MirrorError(Exception):
    """What is wrong with one mirror; the next one is tried."""


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    progress: Progress | None = None,
    local: bool = False,
) -> Path:
    """Download the files of a set that are not there yet, and return their folder.

    Args:
        name: one of ``DATASETS``.
        folder: of all data; the files go into its subfolder ``name``. Without it DIGRAD_DATA
            says where, or else it is the user's cache.
        progress: called with the file, the bytes that are there and the bytes in all.
        local: whether mirrors on this machine may be asked over plain http, for tests.

    Raises:
        FetchError: No mirror gave one of the files; the text says which belong where.
        WriteError: The folder cannot be written to.
    """
    files = lookup(DATASETS, name, "dataset").files
    if not files:
        what = f"{name} are not fetched: they come with {SOURCE}"
        raise ParameterError(what, hint=f"pip install {SOURCE}")
    home = home_of(name, folder)
    for k, remote in enumerate(files):
        try:
            download(remote, home, progress=progress, local=local)
        except FetchError as error:
            left = ", ".join(file.name for file in files[k:])
            hint = f"try again, it goes on where it stopped; or put into {home} yourself: {left}"
            raise FetchError(str(error), hint=hint) from error
    return home


def download(
    remote: Remote, folder: Path, *, progress: Progress | None = None, local: bool = False
) -> Path:
    """Bring one file into a folder, unless it is there already, and return its path.

    It grows in a hidden file beside its place, which the next try takes up, and is moved
    there only if its checksum is right. A mirror that fails in any way is followed by the next.
    """
    target, part = folder / remote.name, folder / f".{remote.name}.part"
    web, report = build_opener(_Redirects(local)), progress or (lambda name, done, total: None)
    if _matches(target, remote):
        return target
    troubles = []
    for mirror in remote.mirrors:
        url = mirror + remote.name
        try:
            _check_address(url, local)
            _fetch_part(url, part, remote, web, report)
        except _MirrorError as error:
            troubles.append(f"{url}: {error}")
            continue
        with _disk(part):
            os.replace(part, target)
        return target
    raise FetchError(f"cannot fetch {remote.name}", *troubles)


def _fetch_part(
    url: str, part: Path, remote: Remote, web: OpenerDirector, report: Progress
) -> None:
    """Complete the partial file from one mirror; delete it if its checksum is wrong."""
    begun = _size(part)
    if begun < remote.size:
        _receive(url, part, remote, web, report)
    if not part.is_symlink() and _matches(part, remote):
        return
    with _disk(part):
        part.unlink(missing_ok=True)
    if not begun:
        raise _MirrorError("the checksum is wrong: it is another file")
    _fetch_part(url, part, remote, web, report)  # perhaps only the earlier part was wrong


def _receive(url: str, part: Path, remote: Remote, web: OpenerDirector, report: Progress) -> None:
    """Append what is missing, or start anew where the server does not give just that."""
    with _blaming_mirror(), _answer(url, _size(part), web) as response:
        start = _start(response, _size(part), remote.size)
        if start is not None:
            wanted = str(remote.size - start)
            length = response.headers.get("Content-Length", wanted)
            if length != wanted:  # another file, such as a page that says sorry
                raise _MirrorError(f"offers {length} bytes instead of {wanted}")
            _write(response, part, start, remote, report)
            return
    with _disk(part):  # an answer to another question than ours: ask for all of it
        part.unlink()
    _receive(url, part, remote, web, report)


def _write(
    response: HTTPResponse, part: Path, start: int, remote: Remote, report: Progress
) -> None:
    """Write what is received, up to the size of the file."""
    with _disk(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        if not start:
            part.unlink(missing_ok=True)
        file = create(part, go_on=start > 0)
    with file:
        done = start
        # read1 hands over what is there; read would lose it if the rest does not come.
        while done < remote.size and (got := response.read1(min(CHUNK, remote.size - done))):
            with _disk(part):
                file.write(got)
            done += len(got)
            report(remote.name, done, remote.size)
        with _disk(part):
            file.flush()
            os.fsync(file.fileno())
    if done < remote.size:
        raise _MirrorError(f"broke off at {done:,} of {remote.size:,} bytes")


def _answer(url: str, begun: int, web: OpenerDirector) -> HTTPResponse:
    headers = {"User-Agent": "digrad"}
    if begun:
        headers["Range"] = f"bytes={begun}-"
    try:
        return cast(HTTPResponse, web.open(Request(url, headers=headers), timeout=TIMEOUT))
    except HTTPError as error:
        with error:
            if begun and error.code == 416:  # nothing there that could be gone on with
                return _answer(url, 0, web)
            raise


def _start(response: HTTPResponse, begun: int, size: int) -> int | None:
    """Return where the answer begins in the file: where we asked, at 0, or None: elsewhere."""
    if response.status == 200:
        return 0
    if response.status != 206:
        raise _MirrorError(f"answers with status {response.status}")
    given = response.headers.get("Content-Range", "").removeprefix("bytes ")
    if begun and given in (f"{begun}-{size - 1}/{size}", f"{begun}-{size - 1}/*"):
        return begun
    if not begun:  # we asked for no part at all
        raise _MirrorError(f"sends a part of the file that was not asked for: {given!r}")
    return None


def _size(path: Path) -> int:
    try:
        found = path.lstat()  # a link in its place is not what an earlier try has left
        return found.st_size if S_ISREG(found.st_mode) else 0
    except OSError:
        return 0


def _matches(path: Path, remote: Remote) -> bool:
    """Whether a file is the one that was meant."""
    if not path.is_file() or path.stat().st_size != remote.size:
        return False
    seen = sha256()
    with _disk(path), path.open("rb") as file:
        while block := file.read(1 << 20):
            seen.update(block)
    return seen.hexdigest() == remote.sha256


class _Redirects(HTTPRedirectHandler):
    """Follows redirects of a mirror, but only to https."""

    def __init__(self, local: bool) -> None:
        self._local = local

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        _check_address(newurl, self._local)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(url: str, local: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return
    if not (local and parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise _MirrorError(f"not https: {url}")


@contextmanager
def _blaming_mirror() -> Iterator[None]:
    """Turn all that a network can do into one error."""
    try:
        yield
    except HTTPError as error:
        raise _MirrorError(f"answers {error.code} {error.reason}") from error
    except URLError as error:
        raise _MirrorError(f"cannot be reached ({error.reason})") from error
    except TimeoutError as error:
        raise _MirrorError(f"silent for {TIMEOUT:g} seconds") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _MirrorError(f"broke off ({type(error).__name__}: {error})") from error


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Tell trouble with our own disk from trouble with a mirror: no other mirror mends it."""
    try:
        yield
    except OSError as error:
        hint = f"choose a folder that can be written to, with {param('data_dir')}"
        raise WriteError(f"cannot use {path}: {error}", hint=hint) from error
