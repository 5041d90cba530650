"""Files that are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from digrad.base.errors import DigradError, message


class WriteError(DigradError):
    """A file that cannot be written where it should be."""


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file next to its place, then move it there; missing folders are made.

    Where that is not possible nothing is left behind, and an older file stays as it was.
    """
    part, ours = part_of(path), False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with create(part) as file:
            ours = True
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except (OSError, ValueError) as error:  # a name may hold a zero byte
        hint = "choose a folder that can be written to"
        raise WriteError(message(f"cannot write {path}: {error}", hint=hint)) from error
    finally:
        if ours:
            with suppress(OSError):  # moved away
                part.unlink()
    return path


def part_of(path: Path) -> Path:
    """Return a name beside a file that nobody can foresee, to write it under."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}.{token_hex(6)}.part")


def create(path: Path, *, go_on: bool = False) -> BinaryIO:
    """Open a new file for writing; an old one, or a link that lies there, is an error.

    Args:
        path: where; its folder may be one in which others can put things.
        go_on: append to what an earlier try has left there; links are refused all the same.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if go_on else os.O_EXCL)
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):  # not all systems have all
        flags |= getattr(os, name, 0)
    return os.fdopen(os.open(path, flags, 0o666), "ab" if go_on else "wb")
