"""Text as numbers, for models of characters."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digrad.base.checks import kind_of
from digrad.base.errors import FileFormatError
from digrad.base.files import read_bounded, text_of
from digrad.base.machine import check_memory
from digrad.data.reading import name_file_in_errors, opened

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
