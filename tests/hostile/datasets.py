"""Data files: images, samples, texts, damaged or crafted."""

import bz2
import gzip
from pathlib import Path
from random import Random

from digrad.data import read_images, read_text
from digrad.problems import libsvm_problem, read_libsvm
from hostile.damage import TOKENS, edited
from tiny_images import write_mnist

LIBSVM = b"1 1:0.5 3:-2e-3\n-1 2:1 # a comment\n1 1:1 2:1 3:1\n-1 3:4\n"
PIECE = 20_000  # bytes
TEXT = "To be, or not to be: ümlaut\r\n".encode() * 40


def data_files(draw: Random, folder: Path) -> None:
    [_samples, _text, _images][draw.randrange(3)](draw, folder)


def _packed(raw: bytes, draw: Random) -> tuple[bytes, str]:
    packers = {"": bytes, ".gz": lambda x: gzip.compress(x, 1), ".bz2": _bzipped}
    suffix = draw.choice(list(packers))
    packed = packers[suffix](raw)
    return (edited(packed, draw) if draw.random() < 0.3 else packed), suffix


def _bzipped(raw: bytes) -> bytes:
    """Pack the beginning, over and over: what repeats itself is packed very slowly."""
    return bz2.compress(raw[:PIECE], 1) * max(1, len(raw) // PIECE)


def _many(raw: bytes, draw: Random) -> bytes:
    if draw.random() < 0.7:
        return edited(raw, draw)
    line = draw.choice(
        [b"1 1:1\n", b"\n", b"1\n", b" ", b"1 " + b"1:1 " * 100, draw.choice(TOKENS)]
    )
    return line * min(draw.choice([10**3, 10**5, 10**6, 2 * 10**7]), 10**8 // len(line))


def _samples(draw: Random, folder: Path) -> None:
    raw, suffix = _packed(_many(LIBSVM, draw), draw)
    path = folder / f"s{suffix}"
    path.write_bytes(raw)
    if draw.random() < 0.5:
        read_libsvm(path)
    else:
        libsvm_problem(draw.choice([1, 2, 3]), path, bias=draw.random() < 0.5)


def _text(draw: Random, folder: Path) -> None:
    raw, suffix = _packed(_many(TEXT, draw), draw)
    path = folder / f"t{suffix}"
    path.write_bytes(raw)
    read_text(path)


def _images(draw: Random, folder: Path) -> None:
    write_mnist(folder / "mnist", name=draw.choice(["{}-{}-{}.gz", "{}-{}-{}"]))
    chosen = draw.choice(sorted((folder / "mnist").iterdir()))
    raw = chosen.read_bytes()
    if draw.random() < 0.2:
        raw = gzip.compress(bytes(draw.choice([10**3, 10**8])), 1)
    chosen.write_bytes(edited(raw, draw))
    read_images("mnist", folder)
