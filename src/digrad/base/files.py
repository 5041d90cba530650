"""Files: untrusted ones read as plain bytes, text, JSON or TOML; own ones written whole."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from digrad.base.errors import DigradError, FileFormatError
from digrad.base.machine import allowed_bytes

CHUNK = 1 << 24
LARGEST_TABLE = 64 << 20  # bytes of JSON or TOML
DEEPEST = 64  # lists and tables within each other


def check_bytes(count: int, most: int | None = None) -> None:
    """Refuse more than ``most`` bytes, or more than memory has room for."""
    most = allowed_bytes() // 2 if most is None else most  # once in pieces, once as a whole
    if count > most:
        raise FileFormatError(
            f"more than {most / 2**30:.3g} GiB of data", hint="is it the right file?"
        )


def read_bounded(stream: BinaryIO, most: int | None = None) -> bytes:
    """Return all that is left of a stream, unless that is too much."""
    most = allowed_bytes() // 2 if most is None else most
    parts, count = list[bytes](), 0
    while part := stream.read(min(CHUNK, most + 1 - count)):
        parts.append(part)
        count += len(part)
        check_bytes(count, most)
    return b"".join(parts)


def plain_bytes(path: str | Path, most: int = LARGEST_TABLE, *, follow: bool = True) -> bytes:
    """Return the bytes of a plain file: no pipe, no device, no folder.

    Args:
        path: the file.
        most: bytes that it may have.
        follow: whether it may be a link to one.

    Raises:
        OSError: It cannot be opened.
        FileFormatError: It is not plain, or too large.
    """
    with plain_file(path, follow=follow) as stream:
        check_bytes(os.fstat(stream.fileno()).st_size, most)
        return read_bounded(stream, most)


def plain_file(path: str | Path, *, follow: bool = True) -> BinaryIO:
    """Open a plain file: no pipe, no device, no folder; see ``plain_bytes``."""
    flags = os.O_RDONLY
    for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK", *(() if follow else ("O_NOFOLLOW",))):
        flags |= getattr(os, name, 0)
    stream = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise FileFormatError("not a plain file")
    return stream


def json_of(raw: bytes | str) -> Any:
    """Return what a JSON text holds, or say why it is none."""
    return _table_of(json.loads, raw if isinstance(raw, str) else text_of(raw), "JSON")


def toml_of(raw: bytes | str) -> dict[str, Any]:
    """Return what a TOML text holds, or say why it is none."""
    import tomllib

    text = raw if isinstance(raw, str) else text_of(raw)
    found: dict[str, Any] = _table_of(tomllib.loads, text, "TOML")
    return found


def _table_of(parse: Any, text: str, kind: str) -> Any:
    try:
        found = parse(text)
        check_depth(found)
    except FileFormatError:
        raise
    except ValueError as error:
        # Of an integer with thousands of digits Python says how to take it all the same.
        why = "a number in it has too many digits" if "digits; use sys." in str(error) else error
        raise FileFormatError(f"not a {kind} file: {why}") from error
    except RecursionError as error:
        raise FileFormatError(_too_deep()) from error
    return found


def check_depth(value: Any) -> None:
    """Refuse lists and tables that are so deep in each other that walking them would fail."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise FileFormatError(_too_deep())


def _too_deep() -> str:
    return f"lists and tables in it are more than {DEEPEST} deep in each other"


def text_of(raw: bytes) -> str:
    """Decode UTF-8 with any line ends, or say which line is no text."""
    wrong = raw.find(b"\0")
    try:
        if wrong < 0:
            return raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        wrong = error.start
    line = raw.count(b"\n", 0, wrong) + 1
    raise FileFormatError(
        f"line {line}: byte 0x{raw[wrong]:02x} is no text", hint="save it as UTF-8"
    )


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
        raise WriteError(f"cannot write {path}: {error}", hint=hint) from error
    finally:
        if ours:
            with suppress(OSError):  # moved away
                part.unlink()
    return path


def part_of(path: Path) -> Path:
    """Return an unpredictable name beside a file, to write it under."""
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
