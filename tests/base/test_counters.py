"""The counter generator: known answers, and a function of (seed, node, step) alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from digrad.base.counters import Sampler, _philox

ONES = 0xFFFFFFFF
# From the test vectors that come with the generator's reference implementation (Random123).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
INDICES = [6, 65, 133, 178, 399, 160, 17, 244]
NORMALS = [
    [1.132213503368981, 1.7953132934230411, -2.9875067671815723],
    [-0.4421433508179828, -0.2299126148647737, 1.3332018980258193],
    [-0.08968310965276306, -0.6615124027548691, 0.6698044487952063],
    [-0.6912610442345367, -0.5508541332213961, -0.029657281377068127],
]
SEEDS = st.integers(0, 2**63 - 1)
NODES = st.lists(st.integers(0, 2**20), min_size=1, max_size=3)


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 in Python's integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & ONES, (p0 >> 32) ^ c3 ^ k1, p0 & ONES
        k0, k1 = (k0 + 0x9E3779B9) & ONES, (k1 + 0xBB67AE85) & ONES
    return c0, c1, c2, c3


def word(seed: int, node: int, place: int, stream: int) -> int:
    block, k = divmod(place, 4)
    return philox((block & ONES, block >> 32, node, stream), (seed & ONES, seed >> 32))[k]


def sampler(seeds: list[int] | int, rows: list[int]) -> Sampler:
    return Sampler(torch.tensor(seeds), torch.tensor(rows))


def many(count: int, *, stream: int = 0) -> Sampler:
    return sampler(12345 + stream, list(range(count)))


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    words = _philox(
        tuple(torch.tensor(c) for c in counter), (torch.tensor(key[0]), torch.tensor(key[1]))
    )
    assert tuple(map(int, words)) == answer == philox(counter, key)


def test_the_first_block_is_the_first_known_answer() -> None:
    assert tuple(sampler(0, [0]).bits(range(1), 4).flatten().tolist()) == KNOWN[0][2]


@given(
    seeds=st.lists(SEEDS, min_size=1, max_size=3),
    rows=NODES,
    first=st.integers(0, 2**34),
    length=st.integers(1, 5),
    count=st.integers(1, 6),
    stream=st.integers(0, 9),
)
def test_every_number_is_a_function_of_seed_node_step(
    seeds: list[int], rows: list[int], first: int, length: int, count: int, stream: int
) -> None:
    """Whatever is drawn along with it."""
    drawn = sampler(seeds, rows).bits(range(first, first + length), count, stream)
    expected = [
        [[[word(s, i, t * count + k, stream) for k in range(count)] for i in rows] for s in seeds]
        for t in range(first, first + length)
    ]
    assert drawn.tolist() == expected


@given(
    seeds=st.lists(SEEDS, min_size=2, max_size=4),
    rows=NODES,
    cut=st.integers(0, 12),
    count=st.integers(1, 5),
)
def test_chunks_rows_and_trials_do_not_matter(
    seeds: list[int], rows: list[int], cut: int, count: int
) -> None:
    whole = sampler(seeds, rows).normals(range(12), count)
    pieces = [sampler(seeds, rows).normals(r, count) for r in (range(cut), range(cut, 12))]
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(sampler(seeds[1], rows).normals(range(12), count), whole[:, 1])
    assert torch.equal(sampler(seeds, rows[:1]).normals(range(12), count), whole[:, :, :1])


def test_shapes() -> None:
    assert sampler([1, 2, 3], [0, 5]).bits(range(4, 10), 7).shape == (6, 3, 2, 7)
    assert sampler(1, [0, 5]).bits(range(4, 10), 7).shape == (6, 2, 7)
    assert sampler([1], [0]).bits(range(3, 3), 7).shape == (0, 1, 1, 7)
    assert sampler([1], [0]).normals(range(2), 3).shape == (2, 1, 1, 3)


def test_uniforms_are_inside_the_interval() -> None:
    u = many(50).uniforms(range(100), 8)
    assert u.dtype == torch.float64
    assert 0 < u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_normals_are_normal(count: int) -> None:
    x = many(40).normals(range(4000 // count), count).flatten().numpy()
    assert stats.kstest(x, "norm").pvalue > 1e-3
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) / len(x))  # E x^2p = (2p - 1)!!
        assert abs((x**power).mean() - moment) < 4 * spread


def test_neighbours_are_uncorrelated() -> None:
    """In time, across nodes, within a step, across trials and streams."""
    whole = sampler([1, 2], [0, 1, 2]).normals(range(20_000), 2)
    other = sampler([1, 2], [0, 1, 2]).normals(range(20_000), 2, stream=1)
    pairs = [
        (whole[:-1], whole[1:]),
        (whole[:, :, 0], whole[:, :, 1]),
        (whole[..., 0], whole[..., 1]),
        (whole[:, 0], whole[:, 1]),
        (whole, other),
    ]
    for a, b in pairs:
        assert abs((a * b).mean()) < 4 / math.sqrt(a.numel())


@pytest.mark.parametrize("high", [2, 7, 400])
def test_indices_are_uniform(high: int) -> None:
    drawn = many(20).indices(range(5000), high, 1).flatten().numpy()
    counts = np.bincount(drawn, minlength=high)
    assert len(counts) == high
    assert stats.chisquare(counts).pvalue > 1e-3


@given(sizes=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4), seed=SEEDS)
def test_each_row_may_have_its_own_range(sizes: list[int], seed: int) -> None:
    draw = sampler([seed, 3], list(range(len(sizes))))
    drawn = draw.indices(range(5, 9), torch.tensor(sizes), 3)
    for row, size in enumerate(sizes):
        single = sampler([seed, 3], [row]).indices(range(5, 9), size, 3)
        assert torch.equal(drawn[:, :, row : row + 1], single)
        assert 0 <= int(single.min()) <= int(single.max()) < size


def test_frozen_values() -> None:
    """The numbers of every published run: they must never change."""
    draw = sampler([7, 2**40 + 1], [0, 3])
    assert draw.indices(range(1000, 1002), 400, 1).flatten().tolist() == INDICES
    np.testing.assert_allclose(draw.normals(range(2, 3), 3).reshape(4, 3), NORMALS, rtol=1e-12)
