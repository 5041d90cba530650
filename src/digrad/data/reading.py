"""Untrusted files: opened only if plain, read no further than allowed, blamed by name."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from digrad.base.checks import kind_of
from digrad.base.errors import DigradError, FileFormatError, message
from digrad.base.files import read_bounded, text_of
from digrad.base.memory import check_memory

GZIP = b"\x1f\x8b"
CHUNK = 1 << 20
DAMAGED = "fetch it again, or copy it again from where it is whole"


@contextmanager
def name_file_in_errors(path: str | Path, hint: str = DAMAGED) -> Iterator[None]:
    """Turn whatever goes wrong inside into one error that names the file and the fix."""
    shown = str(path).encode(errors="backslashreplace").decode()  # a name may be no text
    try:
        yield
    except DigradError as error:
        hint = "" if "  hint: " in str(error) else hint
        raise FileFormatError(message(f"{shown}: {error}", hint=hint)) from error
    except Exception as error:  # there is no end to what unpackers raise when fed rubbish
        said = " ".join(f"damaged ({type(error).__name__}: {error})".split())[:200]
        if isinstance(error, OSError) and error.strerror:  # the system's word
            said, hint = error.strerror, "check the path, and who may read it"
        raise FileFormatError(message(f"{shown}: {said}", hint=hint)) from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading, unpacking it if its content is gzip, whatever its name."""
    if not path.is_file():  # a pipe, say, might keep us waiting for ever
        raise FileFormatError(
            message("not a plain file" if path.exists() else "no such file", hint="check the path")
        )
    with path.open("rb") as raw:
        zipped = raw.read(len(GZIP)) == GZIP
        raw.seek(0)
        if not zipped:
            yield raw
            return
        with gzip.open(raw) as unpacked:
            yield cast(BinaryIO, unpacked)


def read_exactly(stream: BinaryIO, count: int, what: str) -> bytes:
    """Return so many bytes, in pieces, so that a mere claim of many takes no memory."""
    content = read_up_to(stream, count)
    if len(content) < count:
        raise FileFormatError(f"cut off: {what} take {count:,} bytes, {len(content):,} are there")
    return content


def read_up_to(stream: BinaryIO, most: int) -> bytes:
    """Return what there is, but not more than so many bytes."""
    parts, left = list[bytes](), most
    while left and (part := stream.read(min(left, CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def check_end(stream: BinaryIO, count: int) -> None:
    """Refuse anything more; at the end of a gzip stream its checksum is compared too."""
    if stream.read(1):
        raise FileFormatError(f"more than the {count:,} bytes that belong there")


LARGEST = 256 << 20  # bytes, unpacked
LETTER_BYTES = 24  # that a letter takes on its way to a code


def read_text(path: str | Path) -> tuple[NDArray[np.int64], str]:
    """Read UTF-8 and return a code for each character, and the alphabet that codes count in.

    Character k of the text is ``alphabet[codes[k]]``; the alphabet is sorted. Line ends
    become newlines. The file may be gzipped.

    Raises:
        FileFormatError: The file is not there, empty, too large or not UTF-8.
    """
    kind_of(path, "path", str, Path)
    with name_file_in_errors(path, hint="any plain text will do"), opened(Path(path)) as stream:
        raw = read_bounded(stream, LARGEST)
        check_memory(
            LETTER_BYTES * len(raw), f"a text of {len(raw):,} bytes", error=FileFormatError
        )
        text = text_of(raw)
        if not text:
            raise FileFormatError("there is no text in it")
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    used = np.zeros(int(points.max()) + 1, dtype=bool)
    used[points] = True
    codes = (np.cumsum(used) - 1)[points]
    return codes.astype(np.int64), "".join(map(chr, np.flatnonzero(used)))
