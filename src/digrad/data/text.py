"""Text as numbers, for models of characters."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import FileFormatError
from digrad.base.files import check_bytes, text_of
from digrad.data.reading import blaming, opened

LARGEST = 256 << 20  # bytes, unpacked; codes take eight times as much


def read_text(path: str | Path) -> tuple[NDArray[np.int64], str]:
    """Read UTF-8 and return a code for each character, and the alphabet that codes count in.

    Character k of the text is ``alphabet[codes[k]]``; the alphabet is sorted. Line ends
    become newlines. The file may be gzipped.

    Raises:
        FileFormatError: The file is not there, empty, too large or not UTF-8.
    """
    with blaming(path, hint="any plain text will do"), opened(Path(path)) as stream:
        raw = stream.read(LARGEST + 1)
        check_bytes(len(raw), LARGEST)
        text = text_of(raw)
        if not text:
            raise FileFormatError("there is no text in it")
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    used = np.zeros(int(points.max()) + 1, dtype=bool)
    used[points] = True
    codes = (np.cumsum(used) - 1)[points]
    return codes.astype(np.int64), "".join(map(chr, np.flatnonzero(used)))
