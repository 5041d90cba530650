"""Files that are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from digrad.base.errors import DigradError, message


class WriteError(DigradError):
    """A file that cannot be written where it should be."""


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file next to its place, then move it there; missing folders are made.

    Where that is not possible nothing is left behind, and an older file stays as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        hint = "choose a folder that can be written to"
        raise WriteError(message(f"cannot write {path}: {error}", hint=hint)) from error
    finally:
        with suppress(OSError):  # moved away, or never there
            part.unlink()
    return path
