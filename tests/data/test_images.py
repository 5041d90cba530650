"""Images in memory: what they must be, and who holds how many."""

import numpy as np
import pytest

from digrad.base.errors import ParameterError
from digrad.data import Images, LabeledImages, counts_of


def part(count: int = 4, **changes: np.ndarray) -> LabeledImages:
    values = {
        "pixels": np.zeros((count, 1, 2, 2), np.uint8),
        "labels": np.arange(count, dtype=np.int64) % 2,
    }
    return LabeledImages(**(values | changes))


def test_images_know_their_shape_and_their_number() -> None:
    made = Images("x", part(4), part(2), ("a", "b"), (0.5,), (0.25,))
    assert made.shape == (1, 2, 2)
    assert (len(made.train), len(made.test)) == (4, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pixels": np.zeros((4, 1, 2, 2))}, "pixels are float64"),
        ({"pixels": np.zeros((4, 2, 2), np.uint8)}, r"pixels are uint8 of shape \(4, 2, 2\)"),
        ({"labels": np.zeros(4, np.uint8)}, "labels are uint8"),
        ({"labels": np.zeros(3, np.int64)}, "4 images have 3 labels"),
        ({"labels": np.zeros(0, np.int64)}, "not empty"),
    ],
)
def test_parts_are_checked(changes: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        part(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"test": part(pixels=np.zeros((4, 1, 3, 2), np.uint8))}, r"test images are \(1, 3, 2\)"),
        ({"classes": ("a",)}, "train labels .* 1 classes: number 1 is 1"),
        ({"test": part(labels=np.array([0, 1, -1, 0]))}, "test labels .* number 2 is -1"),
        ({"mean": (0.1, 0.2)}, "mean has 2 numbers for 1 channels"),
        ({"std": ()}, "std has 0 numbers"),
    ],
)
def test_sets_are_checked(changes: dict[str, object], words: str) -> None:
    right = {"name": "x", "train": part(), "test": part(), "classes": ("a", "b")}
    with pytest.raises(ParameterError, match=words):
        Images(**(right | {"mean": (0.5,), "std": (0.2,)} | changes))  # type: ignore[arg-type]


def test_counts_are_those_of_each_node_and_class() -> None:
    labels = np.array([2, 0, 2, 1, 2])
    parts = [np.array([0, 2, 4]), np.array([1]), np.array([3])]
    assert counts_of(labels, parts, 4).tolist() == [[0, 0, 3, 0], [1, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("labels", [[0.0, 1.0], [0, 5], [-1, 0], [[0, 1]], ["a", "b"]])
def test_labels_that_cannot_be_counted_are_refused(labels: list[object]) -> None:
    with pytest.raises(ParameterError, match="labels"):
        counts_of(labels, [np.array([0])], 2)
