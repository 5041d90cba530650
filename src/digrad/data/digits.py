"""The 8 x 8 digits that come with scikit-learn: real images without a download."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from digrad.base.data_folders import MissingDataError
from digrad.base.errors import message
from digrad.data.images import LabeledImages

TRAIN = 1500  # the first so many; the other 297 are the test set
SOURCE = "scikit-learn"


def missing_digits(folder: Path) -> list[str]:
    """Return the package if it is not installed; no folder has to do with it."""
    del folder
    return [] if find_spec("sklearn") else [SOURCE]


def read_digits(folder: Path) -> tuple[LabeledImages, LabeledImages]:
    """Return the digits, whose values 0 .. 16 become 0 .. 255; they need no folder.

    Raises:
        MissingDataError: scikit-learn cannot be imported.
    """
    del folder
    try:
        load = import_module("sklearn.datasets").load_digits
    except ImportError as error:  # also where it is there but something that it needs is not
        what = f"{SOURCE} cannot be imported: {error}"
        raise MissingDataError(message(what, hint=f"pip install {SOURCE}")) from error
    images, labels = load(return_X_y=True)
    pixels = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    return LabeledImages(pixels[:TRAIN], labels[:TRAIN]), LabeledImages(
        pixels[TRAIN:], labels[TRAIN:]
    )
