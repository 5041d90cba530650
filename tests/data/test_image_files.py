"""The original files of MNIST and CIFAR-10: read rightly, or refused in one sentence."""

import gzip
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import DigradError, FileFormatError
from digrad.data import formats as cifar
from digrad.data import read_images
from digrad.data.formats import read_idx
from tiny_images import (
    CIFAR_FILES,
    cifar_contents,
    cifar_records,
    cifar_tar,
    idx,
    images,
    tar,
    write_mnist,
)

RECORDS = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of CIFAR-10 hold three images."""
    monkeypatch.setattr(cifar, "RECORDS", RECORDS)


def refused(call: Callable[[], object], *words: str) -> str:
    with pytest.raises(FileFormatError) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in (*words, "hint: ")), text
    return text


@pytest.mark.parametrize("name", ["{}-{}-{}.gz", "{}-{}-{}", "{}-{}.{}", "{}-{}.{}.gz"])
def test_mnist_in_every_spelling(tmp_path: Path, name: str) -> None:
    found = read_images("mnist", write_mnist(tmp_path, train=25, test=12, name=name))
    for seed, part, count in ((0, found.train, 25), (1, found.test, 12)):
        pixels, labels = images(count, seed)
        assert part.pixels.dtype == np.uint8
        assert part.labels.dtype == np.int64
        assert (part.pixels[:, 0] == pixels).all()
        assert (part.labels == labels).all()
    assert found.mean == (0.1307,)
    assert found.train.pixels.flags.writeable  # or torch.from_numpy would warn


def test_fashion_mnist_has_other_classes(tmp_path: Path) -> None:
    found = read_images("fashion-mnist", write_mnist(tmp_path))
    assert found.classes[9] == "Ankle boot"
    assert found.name == "fashion-mnist"


PIXELS = idx(images(4)[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut off"),
        (PIXELS[:3], "cut off"),
        (PIXELS[:10], "cut off: its sizes take 12 bytes, 6 are there"),
        (PIXELS[:-1], "cut off: its values take 3,136 bytes, 3,135 are there"),
        (PIXELS + b"x", "more than the 3,152 bytes"),
        (b"<html>404</html>", "does not begin with 0 0 8 3"),
        (idx(images(4)[0], code=13), "does not begin with 0 0 8 3"),
        (idx(np.arange(4)), "mixed up"),
        (idx(np.zeros((4, 27, 28))), "holds 4 x 27 x 28 values"),
        (idx(np.zeros((0, 28, 28))), "holds 0 x 28 x 28 values"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "holds 4294967295 x"),
        (gzip.compress(PIXELS, mtime=0)[:-9], "damaged"),
        (gzip.compress(PIXELS, mtime=0)[:-8] + bytes(8), "damaged"),  # its checksum is wrong
        (gzip.compress(PIXELS + b"x", mtime=0), "more than"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    refused(lambda: read_idx(path, 28, 28), str(path), words)


def test_labels_must_belong_to_their_images(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(idx(np.arange(9)))
    refused(lambda: read_images("mnist", tmp_path), str(path), "10 images have 9 labels")
    path.write_bytes(idx(np.arange(1, 11)))
    refused(lambda: read_images("mnist", tmp_path), str(path), "a label is 10")


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    refused(lambda: read_idx(tmp_path), "not a plain file")
    refused(lambda: read_idx(tmp_path / "none"), "no such file")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        refused(lambda: read_idx(tmp_path / "pipe"), "not a plain file")


def test_claims_and_bombs_take_no_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(idx(images(1)[0]) + bytes(50_000_000), mtime=0))
    claim = tmp_path / "claim"
    claim.write_bytes(bytes([0, 0, 8, 3, 0, 0x0F, 0x42, 0x40, 0, 0, 0, 28, 0, 0, 0, 28]))
    tracemalloc.start()
    try:
        refused(lambda: read_idx(bomb, 28, 28), "more than")
        refused(lambda: read_idx(claim, 28, 28), "cut off: its values take 784,000,000 bytes")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_files_of_another_set_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace
    from hashlib import sha256

    from digrad.data import DATASETS

    seen = sha256(bytes(range(10))).hexdigest()
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], test_labels=seen))
    write_mnist(tmp_path)
    assert len(read_images("mnist", tmp_path).test) == 10
    refused(lambda: read_images("fashion-mnist", tmp_path), "holds mnist, not fashion-mnist")


def write_loose(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(folder: Path, content: bytes) -> Path:
    path = folder / cifar.ARCHIVE
    path.write_bytes(gzip.compress(content, mtime=0))
    return path


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("form", ["loose", "folder", "archive", "dotted archive", "pax archive"])
def test_cifar_in_every_form(tmp_path: Path, form: str) -> None:
    contents = cifar_contents(RECORDS)
    if form == "loose":
        write_loose(tmp_path, contents)
    elif form == "folder":
        write_loose(tmp_path / cifar.FOLDER, contents)
    elif form == "pax archive":  # a header of its own before each file, with times, says
        members = []
        for name, content in contents.items():
            info = tarfile.TarInfo(f"{cifar.FOLDER}/{name}")
            info.pax_headers = {"mtime": "1.5"}
            members.append((info, content))
        write_archive(tmp_path, tar(members, tarfile.PAX_FORMAT))
    else:
        prefix = f"{'./' if form.startswith('dotted') else ''}{cifar.FOLDER}/"
        write_archive(tmp_path, cifar_tar(contents, prefix))
    found = read_images("cifar-10", tmp_path)
    assert found.train.pixels.shape == (5 * RECORDS, 3, 32, 32)
    assert found.test.pixels.shape == (RECORDS, 3, 32, 32)
    records = np.frombuffer(contents["data_batch_2.bin"], np.uint8).reshape(RECORDS, -1)
    second = slice(RECORDS, 2 * RECORDS)
    assert (found.train.labels[second] == records[:, 0]).all()
    green = records[:, 1 + 1024 : 1 + 2048].reshape(-1, 32, 32)
    assert (found.train.pixels[second, 1] == green).all()
    assert found.train.pixels.flags.writeable


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cifar_files_of_fewer_images(tmp_path: Path, form: str) -> None:
    counts = (3, 1, 2, 1, 1, 2)
    made = zip(CIFAR_FILES, counts, strict=True)
    contents = {name: cifar_records(count) for name, count in made}
    if form == "folder":
        write_loose(tmp_path / cifar.FOLDER, contents)
    else:
        write_archive(tmp_path, cifar_tar(contents))
    found = read_images("cifar-10", tmp_path)
    assert (len(found.train), len(found.test)) == (8, 2)


@pytest.mark.usefixtures("few")
def test_damaged_cifar_files_are_refused(tmp_path: Path) -> None:
    contents = cifar_contents(RECORDS)
    write_loose(tmp_path, contents)
    path = tmp_path / "data_batch_3.bin"
    for content, words in (
        (
            contents["data_batch_3.bin"][:-1],
            "9,218 bytes are no whole number of images, which take 3,073 each",
        ),
        (b"", "0 bytes are no whole number of images"),
        (contents["data_batch_3.bin"] + b"x", "more than the 9,219 bytes"),
        (b"\x0a" + contents["data_batch_3.bin"][1:], "a label is 10"),
    ):
        path.write_bytes(content)
        refused(lambda: read_images("cifar-10", tmp_path), str(path), words)


def hostile(kind: str) -> bytes:
    contents = cifar_contents(RECORDS)
    whole = cifar_tar(contents)
    first = tarfile.TarInfo(f"{cifar.FOLDER}/{CIFAR_FILES[0]}")
    if kind == "cut":
        return whole[:-20_000]
    if kind == "bits":
        return b"X" + whole[1:]
    if kind == "page":
        return b"<html>not here</html>" * 100
    if kind == "twice":
        return tar([(first, contents[CIFAR_FILES[0]])] * 2)
    if kind == "size":
        return cifar_tar(contents | {CIFAR_FILES[2]: cifar_records(RECORDS + 1)})
    if kind == "part":
        return cifar_tar(contents | {CIFAR_FILES[2]: cifar_records(2)[:-1]})
    if kind == "lost":
        return cifar_tar({name: contents[name] for name in CIFAR_FILES[:-1]})
    if kind == "negative":
        info = tarfile.TarInfo("x")
        info.size = -1
        return info.tobuf(tarfile.GNU_FORMAT) + whole
    if kind == "large":
        return tar([(tarfile.TarInfo("x"), bytes(3_000_000))]) + whole
    if kind == "long":
        return whole + bytes(3_000_000)
    of_kind = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE}
    first.type, first.linkname = of_kind[kind], "/etc/passwd"
    return tar([(first, b"")])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cut", "cut off"),
        ("bits", "a header's checksum is wrong"),
        ("page", "damaged"),
        ("twice", "holds cifar-10-batches-bin/data_batch_1.bin twice"),
        ("size", "data_batch_3.bin in it has 12,292 bytes; 9,219 are the most"),
        ("part", "data_batch_3.bin: cut off, or no batch of CIFAR-10: 6,145 bytes"),
        ("lost", "does not hold test_batch.bin"),
        ("negative", "is no number of a tar header"),
        ("large", "unpacks to more than CIFAR-10 takes"),
        ("long", "unpacks to more than CIFAR-10 takes"),
        ("symlink", "is not a plain file"),
        ("hard link", "is not a plain file"),
        ("pipe", "is not a plain file"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, kind: str, words: str) -> None:
    path = write_archive(tmp_path, hostile(kind))
    refused(lambda: read_images("cifar-10", tmp_path), str(path), words)
    assert [file.name for file in tmp_path.iterdir()] == [cifar.ARCHIVE]  # nothing is unpacked


@pytest.mark.usefixtures("few")
def test_a_wrong_checksum_of_the_archive_is_noticed(tmp_path: Path) -> None:
    path = write_archive(tmp_path, cifar_tar(cifar_contents(RECORDS)))
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    refused(lambda: read_images("cifar-10", tmp_path), str(path), "damaged")


@pytest.mark.usefixtures("few")
def test_the_six_files_go_before_the_archive(tmp_path: Path) -> None:
    write_archive(tmp_path, b"rubbish")
    write_loose(tmp_path, cifar_contents(RECORDS))
    assert len(read_images("cifar-10", tmp_path).test) == RECORDS


@given(at=st.integers(0, 3151), value=st.integers(0, 255), end=st.integers(0, 3200))
def test_no_damage_gets_past_with_another_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, end: int
) -> None:
    path = tmp_path_factory.mktemp("idx") / "file"
    content = bytearray(PIXELS)
    content[at] = value
    path.write_bytes(content[:end])
    try:
        found = read_idx(path, 28, 28).shape
    except DigradError:  # anything else is a bug
        return
    assert found == (4, 28, 28)


@pytest.mark.skipif("not __import__('importlib.util').util.find_spec('sklearn')")
def test_digits() -> None:
    found = read_images("digits")
    assert found.train.pixels.shape == (1500, 1, 8, 8)
    assert found.test.pixels.shape == (297, 1, 8, 8)
    pixels = found.train.pixels
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert abs((pixels / 255).mean() - found.mean[0]) < 1e-4
    assert abs((pixels / 255).std() - found.std[0]) < 1e-4
    assert found.train.labels[:10].tolist() == list(range(10))


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from digrad.data import MissingDataError
    from digrad.data.sets import read_digits

    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDataError, match="hint: pip install scikit-learn"):
        read_digits(Path())
    monkeypatch.setattr("digrad.data.sets.find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match="hint: pip install scikit-learn"):
        read_images("digits")
