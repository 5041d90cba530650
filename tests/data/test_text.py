"""Text as codes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import FileFormatError
from digrad.data import formats as text
from digrad.data import read_text


@given(st.text(min_size=1).filter(lambda words: "\0" not in words))
def test_codes_spell_the_text(tmp_path_factory: pytest.TempPathFactory, words: str) -> None:
    path = tmp_path_factory.mktemp("text") / "file.txt"
    path.write_bytes(words.encode())
    plain = words.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not plain:
        return
    codes, alphabet = read_text(path)
    assert codes.dtype == np.int64
    assert "".join(alphabet[code] for code in codes) == plain
    assert list(alphabet) == sorted(set(plain))


def test_text_may_be_zipped(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress("añb".encode()))
    codes, alphabet = read_text(path)
    assert (codes.tolist(), alphabet) == ([0, 2, 1], "abñ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no text in it"),
        (b"one\ntwo \xff", "line 2: byte 0xff is no text"),
        (b"one\0", "line 1: byte 0x00 is no text"),
        (gzip.compress(b"0" * 2000, mtime=0), "more than"),
        (gzip.compress(b"0" * 100, mtime=0)[:-4], "damaged"),
    ],
)
def test_what_is_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.setattr(text, "LARGEST", 1000)
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=words) as caught:
        read_text(path)
    assert str(path) in str(caught.value)
    assert "hint: " in str(caught.value)
