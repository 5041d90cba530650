"""One writer at a time in a folder."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from digrad.base.atomic import WriteError, write_whole
from digrad.base.errors import DigradError, message

LOCK, WRITER = ".lock", ".writer.json"


class LockedError(DigradError):
    """A folder that another process is writing to."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder; a killed one leaves no lock behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise LockedError(
            message(
                f"{folder} is being written by {_holder(folder)}",
                hint="wait until it is done, or name another folder with --out",
            )
        ) from None
    except OSError as error:
        hint = "choose a folder that can be written to"
        raise WriteError(message(f"cannot write {folder}: {error}", hint=hint)) from error
    try:
        _sign(folder)
        yield
    finally:
        with suppress(OSError):  # the folder may have been taken away
            (folder / WRITER).unlink()
        lock.release()


def _sign(folder: Path) -> None:
    """Say who holds the lock; that means nothing to anybody once the lock is free."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    said = {"process": os.getpid(), "host": socket.gethostname(), "since": now}
    write_whole(folder / WRITER, json.dumps(said).encode())


def _holder(folder: Path) -> str:
    try:
        said = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {said['process']} on {said['host']} since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
