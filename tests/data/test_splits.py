"""Splits are partitions, deterministic, and as uneven as asked."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from digrad.base.errors import DigradError, ParameterError, UnknownNameError
from digrad.base.streams import Draws
from digrad.data.splits import (
    SPLITS,
    Parts,
    _dirichlet,
    by_label,
    dirichlet,
    iid,
    k_classes,
    partition,
)

LABELS = [(7 * k + k // 5) % 4 for k in range(40)]
MANY = np.arange(10_000) % 10
# The first 20 of LABELS among four nodes with seed 3: the same on another machine.
GOLDEN = {
    "iid": [[1, 6, 11, 13, 18], [2, 5, 7, 8, 19], [3, 4, 9, 10, 15], [0, 12, 14, 16, 17]],
    "by-label": [[0, 4, 5, 9, 10], [14, 15, 19, 3, 8], [13, 18, 2, 7, 12], [17, 1, 6, 11, 16]],
    "dirichlet": [[4, 5, 9, 10, 14, 15], [0, 3, 11, 19], [1, 6, 7, 8, 12, 13, 16, 17, 18], [2]],
    "k-classes": [[0, 1, 5, 9, 11, 14], [4, 6, 10, 15, 16, 19], [7, 12, 13, 18], [2, 3, 8, 17]],
}


def is_partition(parts: Parts, count: int) -> bool:
    return sorted(np.concatenate(parts).tolist()) == list(range(count))


@given(
    split=st.sampled_from(list(SPLITS)),
    labels=st.lists(st.integers(0, 3) | st.sampled_from([-1, 7]), min_size=1, max_size=60),
    nodes=st.integers(1, 8),
    alpha=st.sampled_from([0.1, 1.0, 100.0]),
    k=st.integers(1, 4),
    seed=st.integers(0, 2**64),
)
@settings(max_examples=60)
def test_splits_are_partitions_or_one_error(
    split: str, labels: list[int], nodes: int, alpha: float, k: int, seed: int
) -> None:
    said, more = "", {"dirichlet": {"alpha": alpha}, "k-classes": {"k": k}}.get(split, {})
    try:
        parts = partition(labels, nodes, split, **more, seed=seed)
    except DigradError as error:
        said = str(error)
    if said:
        assert "\n  hint: " in said
        return
    assert len(parts) == nodes
    assert all(len(part) and part.dtype == np.int64 for part in parts)
    assert is_partition(parts, len(labels))
    again = partition(labels, nodes, split, **more, seed=seed)
    assert all(map(np.array_equal, parts, again))


@pytest.mark.parametrize("split", SPLITS)
def test_frozen_splits(split: str) -> None:
    more = {"dirichlet": {"alpha": 0.3}, "k-classes": {"k": 2}}.get(split, {})
    parts = partition(LABELS[:20], 4, split, **more, seed=3)
    assert [part.tolist() for part in parts] == GOLDEN[split]


def test_iid_parts_are_equal_and_mixed() -> None:
    sizes = [len(part) for part in iid(LABELS, 7)]
    assert set(sizes) == {5, 6}
    for part in iid(MANY, 10, seed=1):
        assert stats.chisquare(np.bincount(MANY[part])).pvalue > 1e-3
    assert not np.array_equal(iid(LABELS, 2, seed=1)[0], iid(LABELS, 2, seed=2)[0])


def test_by_label_is_the_papers_rule() -> None:
    """Stable order by label, blocks of ⌊N/n⌋, the last takes the remainder."""
    parts = by_label(LABELS, 7)
    order = sorted(range(40), key=lambda j: LABELS[j])
    blocks = [order[5 * i : 5 * i + 5 if i < 6 else 40] for i in range(7)]
    assert [part.tolist() for part in parts] == blocks


def test_by_label_takes_any_labels() -> None:
    assert [p.tolist() for p in by_label(["b", "a", "b", "a"], 2)] == [[1, 3], [0, 2]]


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_dirichlet_shares_have_the_right_law(alpha: float) -> None:
    """Each share is Beta(α, (n - 1)α)."""
    shares = _dirichlet(Draws(1), alpha, (4000, 5))
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-12)
    assert stats.kstest(shares[:, 2], stats.beta(alpha, 4 * alpha).cdf).pvalue > 1e-3


def test_a_small_alpha_is_uneven() -> None:
    def largest_share(alpha: float) -> float:
        parts = dirichlet(MANY, 8, alpha=alpha)
        return float(np.mean([np.bincount(MANY[p]).max() / len(p) for p in parts]))

    assert largest_share(0.1) > 0.4 > 0.2 > largest_share(10.0) > 0.11 > largest_share(1e6)


def test_extreme_alpha() -> None:
    even = dirichlet(MANY, 4, alpha=1e6)
    assert max(map(len, even)) - min(map(len, even)) < 50
    tiny = dirichlet(MANY, 2, alpha=1e-6)
    assert all(len(part) % 1000 == 0 for part in tiny)


@pytest.mark.parametrize(("nodes", "k"), [(10, 1), (10, 3), (7, 2), (25, 2), (4, 10), (1, 10)])
def test_k_classes_gives_each_node_k_classes(nodes: int, k: int) -> None:
    parts = k_classes(MANY, nodes, k=k, seed=2)
    assert is_partition(parts, len(MANY))
    holders = np.zeros(10, dtype=int)
    for part in parts:
        counts = np.bincount(MANY[part], minlength=10)
        assert np.count_nonzero(counts) == k
        holders += counts > 0
    assert holders.max() - holders.min() <= 1
    for part in parts:  # a class is shared evenly
        counts = np.bincount(MANY[part], minlength=10)
        assert (np.abs(counts - 1000 / holders)[counts > 0] < 1).all()


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: iid([], 1), "0 samples cannot be given to 1 nodes"),
    (lambda: iid([1, 2], 3), "2 samples cannot be given to 3 nodes, .*\n  hint: take 1 to 2 nodes"),
    (lambda: iid([1, 2], 0), "2 samples cannot be given to 0 nodes"),
    (lambda: by_label([1, 2], 1.5), "1.5 nodes"),  # type: ignore[arg-type]
    (lambda: by_label([[1], [2]], 1), r"labels are a list of .* of \(2, 1\)"),
    (
        lambda: dirichlet(LABELS, 2, alpha=0.0),
        "alpha must be a finite number, at least 1e-06, .* got 0.0",
    ),
    (lambda: dirichlet(LABELS, 2, alpha=math.nan), "alpha"),
    (lambda: dirichlet(LABELS, 30, alpha=0.01), "hint: take a larger alpha or fewer nodes"),
    (lambda: k_classes(LABELS, 2, k=1), "2 nodes and 4 classes need k in 2 .. 4, got k = 1"),
    (lambda: k_classes(LABELS, 9, k=5), "need k in 1 .. 4, got k = 5\n  hint: pass k = 1"),
    (lambda: k_classes([0, 0, 0, 1], 4, k=1), "is left without samples: too few in its classes"),
    (lambda: iid(LABELS, 2, seed=-1), "seed"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
def test_wrong_parameters(wrong: Callable[[], object], text: str) -> None:
    with pytest.raises(ParameterError, match=text) as caught:
        wrong()
    assert "\n  hint: " in str(caught.value)


def test_unknown_splits_are_suggested() -> None:
    with pytest.raises(UnknownNameError, match="hint: did you mean 'by-label'"):
        partition(LABELS, 2, "by-labels")


def test_an_option_of_another_split_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"split = 'iid' does not use alpha = 0.3") as error:
        partition(LABELS, 2, "iid", alpha=0.3)
    assert "leave alpha out, or take another split: dirichlet" in str(error.value)
