"""The files of MNIST and of all that look like it: bytes under a header of big-endian sizes.

The header is 0 0 8 d, where 8 says bytes and d is the number of dimensions, then d sizes of
four bytes each.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import FileFormatError, message
from digrad.data.images import LabeledImages
from digrad.data.reading import check_end, name_file_in_errors, opened, read_exactly

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
            raise FileFormatError(message(what, hint=f"there should be {fit}, N up to {MOST:,}"))
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
