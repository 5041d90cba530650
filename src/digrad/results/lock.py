"""One writer at a time in a folder."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from digrad.base.errors import DigradError, FileFormatError, param
from digrad.base.files import WriteError, plain_file, write_whole

LOCK, WRITER = ".lock", ".writer.json"
PATIENCE = 0.5  # seconds: who only asks whether a lock is held holds it for a moment


class LockedError(DigradError):
    """A folder that another process is writing to."""


@contextmanager
def locked(folder: Path, part: str = "") -> Iterator[None]:
    """Keep other processes from writing to a folder, or to a part of it that has a name.

    A killed process leaves no lock behind.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / (LOCK + part), timeout=PATIENCE)
        lock.acquire()
    except Timeout:
        raise _locked_error(folder, part) from None
    except OSError as error:
        hint = "choose a folder that can be written to"
        raise WriteError(f"cannot write {folder}: {error}", hint=hint) from error
    try:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        said = {"process": os.getpid(), "host": socket.gethostname(), "since": now}
        write_whole(folder / (WRITER + part), json.dumps(said).encode())
        yield
    finally:
        with suppress(OSError):  # the folder may have been taken away
            (folder / (WRITER + part)).unlink()
        lock.release()


def refuse_held(folder: Path) -> None:
    """Say who is writing to a folder, if anybody is, before anything else is said of it."""
    if is_locked(folder):
        raise _locked_error(folder)


def _locked_error(folder: Path, part: str = "") -> LockedError:
    try:
        said = json.loads((folder / (WRITER + part)).read_text(encoding="utf-8"))
        who = f"process {said['process']} on {said['host']} since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        who = "another process"
    hint = f"wait until it is done, or name another folder with {param('out')}"
    return LockedError(f"{folder / part} is being written by {who}", hint=hint)


def is_locked(folder: Path) -> bool:
    """Say whether a process is writing to a folder; nothing is written to find out."""
    path = folder / LOCK
    if os.path.islink(path) or not os.path.isfile(path):  # no error where no file can be
        return False
    try:
        with plain_file(path, follow=False) as file:
            return not _is_free(file.fileno())
    except (OSError, FileFormatError):
        return False


def _is_free(file: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go of when the file is closed
    except OSError:
        return False
    return True
