"""Labelled images in memory, and who holds how many of which class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from digrad.base.checks import kind_of, whole
from digrad.base.errors import ParameterError, short_repr
from digrad.base.machine import check_memory


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images with their labels.

    Args:
        pixels: uint8, (N, C, H, W).
        labels: int64, (N,).
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        _check("pixels", self.pixels, np.uint8, ndim=4)
        _check("labels", self.labels, np.int64, ndim=1)
        if len(self.pixels) != len(self.labels):
            what = f"{len(self.pixels)} images have {len(self.labels)} labels"
            raise ParameterError(what, hint="give each image one label")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Images:
    """A set of images to learn from and to test on.

    Args:
        name: as in ``DATASETS``.
        train: what the nodes share out.
        test: images that no node trains on.
        classes: their names; label k is class k.
        mean: of each channel's pixels / 255 in the training set.
        std: their standard deviation.
    """

    name: str
    train: LabeledImages
    test: LabeledImages
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for what, part in (("train", self.train), ("test", self.test)):
            if part.pixels.shape[1:] != self.shape:
                raise ParameterError(
                    f"{what} images are {part.pixels.shape[1:]}, the others {self.shape}",
                    hint="all images must have the same channels, height and width",
                )
            _check_labels(part.labels, len(self.classes), what)
        for what, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.shape[0]:
                raise ParameterError(
                    f"{what} has {len(values)} numbers for {self.shape[0]} channels",
                    hint="give one for each channel",
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return self.train.pixels.shape[1:]


def counts_of(
    labels: ArrayLike, parts: Sequence[NDArray[np.int64]], classes: int
) -> NDArray[np.int64]:
    """Count who holds what: row i, column c is how many samples of class c node i has.

    Args:
        labels: one of 0 .. classes - 1 for each sample.
        parts: the indices of each node's samples, as from a split.
        classes: how many there are.

    >>> counts_of([0, 1, 1, 2], [np.array([0, 1]), np.array([2, 3])], classes=3).tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    classes, values = whole(classes, "classes", least=1), np.asarray(labels)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        what = f"labels are a list of whole numbers, got {values.dtype} of shape {values.shape}"
        raise ParameterError(what, hint="number the classes 0, 1, 2, ...")
    _check_labels(values, classes, "some")
    kind_of(parts, "parts", list, tuple, hint="pass what a split returns")
    what = f"a table of {classes:,} classes for {len(parts):,} nodes"
    check_memory(16.0 * classes * len(parts), what)
    try:
        rows = [np.bincount(values[part], minlength=classes) for part in parts]
    except (TypeError, ValueError, IndexError) as error:
        hint = "pass what a split returns"
        raise ParameterError(f"parts are no lists of samples: {error}", hint=hint) from error
    return np.array(rows, dtype=np.int64).reshape(len(rows), classes)


def _check(what: str, array: NDArray[Any], dtype: type[np.generic], ndim: int) -> None:
    if not isinstance(array, np.ndarray):
        what = f"{what} must be an array, got {short_repr(array)}"
        raise ParameterError(what, hint="numpy.asarray makes one")
    if array.dtype != dtype or array.ndim != ndim or not array.size:
        kind = np.dtype(dtype).name
        raise ParameterError(
            f"{what} are {array.dtype} of shape {array.shape}",
            hint=f"they must be {kind} with {ndim} dimensions, and not empty",
        )


def _check_labels(labels: NDArray[Any], classes: int, what: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        k = wrong[0]
        raise ParameterError(
            f"{what} labels are not among the {classes} classes: number {k} is {labels[k]}",
            hint=f"labels go from 0 to {classes - 1}",
        )
