"""Untrusted files of images and text: opened only if plain, and read no further than allowed.

Files of MNIST, and of all that look like it, begin with 0 0 8 d, where 8 says bytes and d is the
number of dimensions, then d big-endian sizes of four bytes each.

CIFAR-10 is six files, or the archive that holds them. A record is a byte for the label, then
32 x 32 bytes each of red, green, blue; a file that is published has 10 000 of them.
"""

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from digrad.base.checks import kind_of
from digrad.base.errors import DigradError, FileFormatError, message
from digrad.base.files import read_bounded, text_of
from digrad.base.machine import check_memory
from digrad.data.images import LabeledImages

BYTES = 8  # the header's code for values of one byte
SIDE = 28  # pixels
CLASSES = 10
MOST = 1_000_000  # images in a file; MNIST has 60 000
STEMS = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)


def missing_idx(folder: Path) -> list[str]:
    """Return which of the four files are not in a folder, in any spelling."""
    return [f"{stem}.gz" for stem in STEMS if _spelled(folder, stem) is None]


def read_mnist(folder: Path) -> tuple[LabeledImages, LabeledImages]:
    """Read the training and the test set from a folder with the four files.

    Raises:
        FileFormatError: A file is not there, or damaged, or something else.
    """
    train_images, train_labels, images, labels = (
        _spelled(folder, stem) or folder / f"{stem}.gz" for stem in STEMS
    )
    return _pair(train_images, train_labels), _pair(images, labels)


def read_idx(path: str | Path, *shape: int) -> NDArray[np.uint8]:
    """Read a file of bytes, gzipped or not, whose items have the given shape.

    Raises:
        FileFormatError: The file is not there, or damaged, or its items have another shape.
    """
    with name_file_in_errors(path), opened(Path(path)) as stream:
        code, dims = read_exactly(stream, 4, "the first words of an idx file")[2:]
        if code != BYTES or dims != len(shape) + 1:
            raise FileFormatError(_complaint(code, dims, len(shape) + 1))
        sizes = np.frombuffer(read_exactly(stream, 4 * dims, "its sizes"), ">u4").tolist()
        if sizes[1:] != list(shape) or not 1 <= sizes[0] <= MOST:
            what = f"holds {' x '.join(map(str, sizes))} values"
            fit = " x ".join(["N", *map(str, shape)])
            raise FileFormatError(what, hint=f"there should be {fit}, N up to {MOST:,}")
        count = int(np.prod(sizes))
        values = read_exactly(stream, count, "its values")
        check_end(stream, 4 + 4 * dims + count)
    return np.frombuffer(bytearray(values), np.uint8).reshape(sizes)  # so that it is writable


def _pair(images: Path, labels: Path) -> LabeledImages:
    pixels = read_idx(images, SIDE, SIDE)
    values = read_idx(labels).astype(np.int64)
    with name_file_in_errors(labels, hint=f"it must belong to {images.name}"):
        if values.max() >= CLASSES:
            raise FileFormatError(f"a label is {values.max()}, but there are {CLASSES} classes")
        return LabeledImages(pixels[:, None], values)


def _complaint(code: int, dims: int, wanted: int) -> str:
    if code != BYTES or not 1 <= dims <= 4:
        what = f"does not begin with 0 0 8 {wanted}"
        return message(what, hint="is it an idx file, as of MNIST? An image or a page is none")
    kind = {1: "labels", 3: "images"}
    what = f"has {dims} dimensions, {kind.get(wanted, 'the file')} should have {wanted}"
    return message(what, hint="were the files of images and labels mixed up?")


def _spelled(folder: Path, stem: str) -> Path | None:
    """Find a file under the names that it goes by; the one that is fetched comes first."""
    for name in (stem, stem.replace("-idx", ".idx")):
        for suffix in (".gz", ""):
            if (folder / f"{name}{suffix}").is_file():
                return folder / f"{name}{suffix}"
    return None


SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
RECORDS = 10_000  # in a file, at most
ARCHIVE, FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST = "test_batch.bin"
BLOCK = 512  # a tar header, and what contents are padded to
PLAIN = (b"0", b"\0")  # the kinds of member that are plain files
LOOSE = f"{FOLDER}/: {TRAIN[0]} .. {TRAIN[-1]}, {TEST}"  # what may be there in its place
# What an archive may unpack to beside the six files: headers, a page of text, padding.
SLACK = 1 << 20


def missing_cifar(folder: Path) -> list[str]:
    """Return which of the six files are not in a folder: none where the archive is."""
    if (folder / ARCHIVE).is_file():
        return []
    return [name for name in (*TRAIN, TEST) if not (_home(folder) / name).is_file()]


def read_cifar(folder: Path) -> tuple[LabeledImages, LabeledImages]:
    """Read the training and the test set, from the six files or else out of the archive.

    Raises:
        FileFormatError: A file is not there, or damaged, or something else.
    """
    home, archive = _home(folder), folder / ARCHIVE
    loose = all((home / name).is_file() for name in (*TRAIN, TEST))
    if not loose and archive.is_file():
        files = _unpack_archive(archive)
        paths = {name: archive / FOLDER / name for name in files}
    else:
        paths = {name: home / name for name in (*TRAIN, TEST)}
        files = {}
        for name, path in paths.items():
            with name_file_in_errors(path), opened(path) as stream:
                files[name] = read_up_to(stream, RECORDS * RECORD)
                check_end(stream, RECORDS * RECORD)
                _check_whole(len(files[name]))
    parts = {}
    for name, content in files.items():
        with name_file_in_errors(paths[name]):
            parts[name] = _records(content)
    return _join_files([parts[name] for name in TRAIN]), _join_files([parts[TEST]])


def _home(folder: Path) -> Path:
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def _check_whole(size: int) -> None:
    if not size or size % RECORD:
        what = f"{size:,} bytes are no whole number of images, which take {RECORD:,} each"
        raise FileFormatError(f"cut off, or no batch of CIFAR-10: {what}")


def _unpack_archive(archive: Path) -> dict[str, bytes]:
    """Take the six files out of the archive, in memory; all else in there is passed over."""
    wanted = {f"{FOLDER}/{name}": name for name in (*TRAIN, TEST)}
    found: dict[str, bytes] = {}
    with name_file_in_errors(archive), archive.open("rb") as raw, gzip.open(raw) as unzipped:
        stream = _Bounded(unzipped, len(wanted) * RECORDS * RECORD + SLACK)
        while any(header := stream.exactly(BLOCK)):
            path, kind, size = _member(header)
            name = wanted.get(path.removeprefix("./"))
            if name is None:
                stream.exactly(size)
            else:
                _check_member(path, kind, size, twice=name in found)
                found[name] = stream.exactly(size)
            stream.exactly(-size % BLOCK)
        stream.finish()
        lost = [name for name in wanted.values() if name not in found]
        if lost:
            raise FileFormatError(f"does not hold {', '.join(lost)}")
    return found


def _member(header: bytes) -> tuple[str, bytes, int]:
    """Return name, kind and size of the next member of a tar archive.

    Twenty lines of our own instead of ``tarfile``: extended headers, links and sparse files
    have no place in this archive, and are what crafted ones do harm with.
    """
    checked = sum(header[:148]) + sum(b" " * 8) + sum(header[156:])
    if checked != _octal(header[148:156]):
        raise FileFormatError("damaged: a header's checksum is wrong")
    prefix = header[345:500] if header[257:263] == b"ustar\0" else b""
    name = b"/".join(part.split(b"\0")[0] for part in (prefix, header[:100]) if part[:1] > b"\0")
    return name.decode("utf-8", "replace"), header[156:157], _octal(header[124:136])


def _octal(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    if not re.fullmatch(b"[0-7]+", digits):
        raise FileFormatError(f"damaged: {digits!r} is no number of a tar header")
    return int(digits, 8)


def _check_member(path: str, kind: bytes, size: int, twice: bool) -> None:
    most = RECORDS * RECORD
    if twice:
        raise FileFormatError(f"holds {path} twice")
    if kind not in PLAIN:
        raise FileFormatError(f"{path} in it is not a plain file")
    if size > most:
        raise FileFormatError(f"{path} in it has {size:,} bytes; {most:,} are the most")
    with name_file_in_errors(path):
        _check_whole(size)


class _Bounded:
    """An unpacked stream that refuses to be longer than it should."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = cast(BinaryIO, stream), most

    def exactly(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise FileFormatError("unpacks to more than CIFAR-10 takes")
        return read_exactly(self._stream, count, "the next files")

    def finish(self) -> None:
        """Read the padding, up to the end, where the checksum of all is compared."""
        while rest := self._stream.read(CHUNK):
            self._left -= len(rest)
            if self._left < 0:
                raise FileFormatError("unpacks to more than CIFAR-10 takes")


def _records(content: bytes) -> NDArray[np.uint8]:
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    most = int(records[:, 0].max())
    if most > 9:
        what = f"a label is {most}, but there are 10 classes"
        raise FileFormatError(what, hint="is it CIFAR-10, in the binary version?")
    return records


def _join_files(files: list[NDArray[np.uint8]]) -> LabeledImages:
    pixels = np.concatenate([records[:, 1:] for records in files]).reshape(-1, *SHAPE)
    labels = np.concatenate([records[:, 0] for records in files]).astype(np.int64)
    return LabeledImages(pixels, labels)


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
        raise FileFormatError(f"{shown}: {error}", hint=hint) from error
    except Exception as error:  # there is no end to what unpackers raise when fed rubbish
        said = " ".join(f"damaged ({type(error).__name__}: {error})".split())[:200]
        if isinstance(error, OSError) and error.strerror:  # the system's word
            said, hint = error.strerror, "check the path, and who may read it"
        raise FileFormatError(f"{shown}: {said}", hint=hint) from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading, unpacking it if its content is gzip, whatever its name."""
    if not path.is_file():  # a pipe, say, might keep us waiting for ever
        raise FileFormatError(
            "not a plain file" if path.exists() else "no such file", hint="check the path"
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
