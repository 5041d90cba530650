"""Tiny files in the formats of the real ones, for tests that read images."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np

from digrad.data import formats as cifar

CIFAR_FILES = (*cifar.TRAIN, cifar.TEST)


def idx(values: np.ndarray, code: int = 8) -> bytes:
    """Bytes under the header of an idx file."""
    sizes = np.array(values.shape, dtype=">u4").tobytes()
    return bytes([0, 0, code, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def images(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random 28 x 28 pixels; the labels go round 0 .. 9."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (count, 28, 28)), np.arange(count) % 10


def write_mnist(folder: Path, train: int = 30, test: int = 10, name: str = "{}-{}-{}.gz") -> Path:
    """Write the four files of MNIST, or Fashion-MNIST, gzipped if their name ends in .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate((("train", train), ("t10k", test))):
        pixels, labels = images(count, seed)
        for what, kind, values in (
            ("images", "idx3-ubyte", pixels),
            ("labels", "idx1-ubyte", labels),
        ):
            content = idx(values)
            file = folder / name.format(part, what, kind)
            zipped = file.suffix == ".gz"
            file.write_bytes(gzip.compress(content, mtime=0) if zipped else content)
    return folder


def cifar_records(records: int, seed: int = 0) -> bytes:
    """So many records of label, red, green, blue."""
    table = np.random.default_rng(seed).integers(0, 256, (records, cifar.RECORD), dtype=np.uint8)
    table[:, 0] %= 10
    return table.tobytes()


def cifar_contents(records: int) -> dict[str, bytes]:
    return {name: cifar_records(records, seed) for seed, name in enumerate(CIFAR_FILES)}


def tar(members: list[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def cifar_tar(contents: dict[str, bytes], prefix: str = f"{cifar.FOLDER}/") -> bytes:
    """An archive like the real one: a folder, the files, and a page that nobody reads."""
    folder = tarfile.TarInfo(prefix)
    folder.type = tarfile.DIRTYPE
    files = [(tarfile.TarInfo(prefix + name), content) for name, content in contents.items()]
    return tar([(folder, b""), (tarfile.TarInfo(f"{prefix}readme.html"), b"<p>"), *files])
