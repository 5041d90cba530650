"""Files from outside and files of our own: plain, bounded, whole, and nobody else's."""

import os
from pathlib import Path

import pytest

from digrad.base.errors import FileFormatError
from digrad.base.files import (
    WriteError,
    create,
    json_of,
    part_of,
    plain_bytes,
    toml_of,
    write_whole,
)


def test_only_plain_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert plain_bytes(tmp_path / "file", 5) == plain_bytes(tmp_path / "link") == b"12345"
    for name in ("pipe", "."):
        with pytest.raises((FileFormatError, OSError)):
            plain_bytes(tmp_path / name)
    with pytest.raises(FileFormatError, match="not a plain file"):
        plain_bytes("/dev/zero")
    with pytest.raises(FileFormatError, match="more than"):
        plain_bytes(tmp_path / "file", 4)
    with pytest.raises(OSError, match="symbolic link"):
        plain_bytes(tmp_path / "link", follow=False)


@pytest.mark.parametrize("text", ["[" * 5000, "[" * 100 + "]" * 100, "9" * 5000, "{", "\0", ""])
def test_no_text_is_too_wild(text: str) -> None:
    for read in (json_of, toml_of):
        with pytest.raises(FileFormatError):
            read(f"x = {text}" if read is toml_of else text)
    with pytest.raises(FileFormatError, match="more than 64 deep"):
        toml_of("[" + ".".join("a" * 100) + "]")


def test_a_link_that_is_planted_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, target = tmp_path / "victim", tmp_path / "target"
    victim.write_text("as it was")
    target.symlink_to(victim)
    write_whole(target, b"new")  # in the place of the link
    assert (victim.read_text(), target.read_text()) == ("as it was", "new")
    assert part_of(target) != part_of(target)
    monkeypatch.setattr("digrad.base.files.part_of", lambda path: tmp_path / "foreseen")
    (tmp_path / "foreseen").symlink_to(victim)
    with pytest.raises(WriteError, match="exists"):
        write_whole(tmp_path / "other", b"new")
    assert victim.read_text() == "as it was"


def test_nothing_goes_on_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        create(tmp_path / "link", go_on=True)
    assert not (tmp_path / "victim").exists()


def test_names_of_any_length(tmp_path: Path) -> None:
    name = "x" * 250
    assert write_whole(tmp_path / name, b"1").read_bytes() == b"1"
    with pytest.raises(WriteError):
        write_whole(tmp_path / "nul\0", b"1")
    assert os.listdir(tmp_path) == [name]
