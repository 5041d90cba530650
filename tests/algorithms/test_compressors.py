"""Compressors: values by hand, the class each declares, the bits each takes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from digrad.algorithms import COMPRESSORS, Compression
from digrad.algorithms.compression.compressor import Compressor, pack, unpack
from digrad.algorithms.compression.kept import RandomK, TopK, first_places
from digrad.algorithms.compression.levels import QSGD, Dither, Nearest, Sign
from digrad.algorithms.compression.single import BF16, Identity, Rounding
from digrad.base.counters import Sampler
from digrad.base.errors import DigradError

V = torch.tensor([0.3, -1.2, 0.7, 0, 2], dtype=torch.float64)
U = torch.tensor([0.1, 0.9, 0.5, 0.3, 0.7], dtype=torch.float64)
BY_HAND = [
    (TopK(k=2, block=0), [0, -1.2, 0, 0, 2]),
    (RandomK(k=2, block=0), [0.3, 0, 0, 0, 0]),
    (RandomK(k=2, block=0, unbiased=True), [0.75, 0, 0, 0, 0]),
    (QSGD(levels=4, block=0), [0, -1.226784414639, 0.613392207319, 0, 1.840176621958]),
    (Dither(bits=3, block=0), [0, -1.333333333333, 0.666666666667, 0, 2]),
    (Sign(block=0), [0.84, -0.84, 0.84, 0.84, 0.84]),
    (Rounding(), [0, -1, 1, 0, 2]),
    (Nearest(bits=3, block=0), [0, -4 / 3, 2 / 3, 0, 2]),
    (BF16(), [0.30078125, -1.203125, 0.69921875, 0, 2]),
    (Identity(), V.tolist()),
    (TopK(k=1, block=2), [0, -1.2, 0.7, 0, 2]),  # three blocks, the last of one number
    (Sign(block=2), [0.75, -0.75, 0.35, 0.35, 2]),
]
ALL: list[Compressor] = [
    *(q for q, _ in BY_HAND),
    *(kind() for kind in COMPRESSORS.values()),
    TopK(share=0.3, block=16),
    RandomK(share=0.3, block=16),
    RandomK(share=0.3, block=16, unbiased=True),
    QSGD(levels=3, block=16),
    QSGD(levels=200, block=16),
    Dither(bits=2, block=16),
    Dither(bits=5, block=16),
    Dither(bits=10, block=16),
    Nearest(bits=2, block=16),
    Nearest(bits=4),
    Rounding(bits=3),
    Rounding(bits=12),
]
every = pytest.mark.parametrize("q", ALL, ids=map(str, ALL))


@pytest.mark.parametrize(("q", "wanted"), BY_HAND, ids=[str(q) for q, _ in BY_HAND])
def test_by_hand(q: Compressor, wanted: list[float]) -> None:
    torch.testing.assert_close(
        q(V, U), torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-9
    )


def drawn(count: int, dim: int) -> Tensor:
    return Sampler(torch.tensor(3), torch.arange(count)).columns(0, 0, dim, 9).double()


@every
@pytest.mark.parametrize("dim", [8, 37])
def test_the_declared_class_holds(q: Compressor, dim: int) -> None:
    """Of skewed and of even rows; expectations over 800 draws."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(4, dim, dtype=torch.float64, generator=generator)
    rows[1::2] = rows[1::2] ** 5  # a few numbers are much larger than the others
    kind, constant = q.class_of(dim)
    for v in rows:
        made = q(v.expand(800, dim), drawn(800, dim))
        error, size = (made - v).square().sum(-1).mean(), v.square().sum()
        if kind == "absolute":
            assert v.abs().max() > q.top or error <= constant**2  # type: ignore[attr-defined]
            continue
        bound = 1 - constant if kind == "contraction" else constant
        assert error <= (bound + 1e-12) * size * (1.2 if q.random else 1)
        if kind == "unbiased":
            off = (made.mean(0) - v).norm() / v.norm()
            assert off < 6 * (constant / 800) ** 0.5 + 1e-6


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_hold_the_rows_and_are_as_many_as_declared(q: Compressor, dtype: Any) -> None:
    for dim in (2, 5, 16, 33):
        rows = torch.randn(3, 4, dim, generator=torch.Generator().manual_seed(dim)).to(dtype)
        u = drawn(12, dim).reshape(3, 4, dim).to(dtype)
        parts = q.parts(rows, u)
        content = q.encode(parts, dim)
        assert content.dtype == torch.uint8
        assert content.shape[-1] == -(-q.row_bits(dim, 8 * rows.element_size()) // 8)
        decoded = q.dense(q.decode(content, rows), rows, u)
        assert torch.equal(decoded, q(rows, u))


@every
def test_zeros_stay_zeros(q: Compressor) -> None:
    zeros = torch.zeros(2, 20, dtype=torch.float64)
    assert torch.equal(q(zeros, drawn(2, 20)), zeros)


@every
def test_blocks_do_not_see_each_other(q: Compressor) -> None:
    """Where a row may be cut, its parts are compressed as the whole is."""
    if not q.block or q.block > 16:
        return
    rows, u = torch.randn(2, 64, dtype=torch.float64), drawn(2, 64)
    parts = [q(rows[:, k : k + 16], u[:, k : k + 16]) for k in range(0, 64, 16)]
    assert torch.equal(torch.cat(parts, dim=-1), q(rows, u))


@pytest.mark.parametrize("q", [TopK(block=0), Sign(block=0), Dither(block=0), QSGD(block=0)])
def test_scaling_changes_nothing(q: Compressor) -> None:
    torch.testing.assert_close(q(8 * V, U) / 8, q(V, U), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 3])
def test_ties_go_to_the_lower_place(dtype: Any, count: int) -> None:
    tied = torch.tensor([1, 2, 0, 2, 2, 0, 2], dtype=dtype)
    assert sorted(first_places(tied, count, largest=True).tolist()) == [1, 3, 4][:count]
    assert sorted(first_places(tied, count, largest=False).tolist()) == [0, 2, 5][-count:][
        :count
    ] or (first_places(tied, count, largest=False).tolist() == [2])


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 11, 16])
def test_numbers_of_a_few_bits(width: int) -> None:
    numbers = torch.randint(2**width, (3, 21), generator=torch.Generator().manual_seed(0))
    content = pack(numbers, width)
    assert content.shape == (3, -(-21 * width // 8))
    assert torch.equal(unpack(content, 21, width).long(), numbers)


def test_draws_do_not_depend_on_how_a_row_is_cut() -> None:
    sampler = Sampler(torch.tensor([5, 6]), torch.arange(3))
    whole = sampler.columns(7, 0, 30, 2)
    assert torch.equal(whole[..., 11:25], sampler.columns(7, 11, 14, 2))
    other = Sampler(torch.tensor([6]), torch.tensor([2])).columns(7, 0, 30, 2)
    assert torch.equal(whole[1:, 2:], other)  # by seed and node, whoever else draws
    assert not torch.equal(whole, sampler.columns(8, 0, 30, 2))
    assert not torch.equal(whole, sampler.columns(7, 0, 30, 3))
    assert 0 <= whole.min() <= whole.max() < 1


WRONG = [
    ({"kind": "topk"}, "unknown kind in compress 'topk'"),
    ({"share": 0.1}, "compress has no kind"),
    ({"kind": "top-k", "share": 0}, "share must be a finite number, above 0, at most 1, got 0.0"),
    ({"kind": "top-k", "share": 0.2, "k": 3}, "k = 3 and share = 0.2 both say how many are kept"),
    ({"kind": "top-k", "k": 9, "block": 4}, "k = 9 numbers of a block of 4"),
    ({"kind": "top-k", "k": -1}, "k must be a whole number from 0 on, got -1"),
    ({"kind": "top-k", "shares": 0.1}, "unknown key in compress 'shares'"),
    ({"kind": "top-k", "share": "all"}, "share in compress must be a number"),
    ({"kind": "dither", "bits": 1}, "bits must be a whole number in 2 .. 16, got 1"),
    ({"kind": "dither", "bits": 4.5}, "bits in compress must be a whole number"),
    ({"kind": "dither", "block": -1}, "block must be a whole number from 0 on, got -1"),
    ({"kind": "qsgd", "levels": 0}, "levels must be a whole number from 1 on, got 0"),
    ({"kind": "sign", "mixing": 1.5}, "mixing must be a finite number, at least 0, at most 1"),
    ({"kind": "sign", "memory": -1}, "memory must be a finite number, at least 0, at most 1"),
    ({"kind": "sign", "decay": 0}, "decay must be a finite number, above 0, at most 1, got 0.0"),
    ({"kind": "sign", "scheme": "none"}, "unknown scheme in compress 'none'"),
    ({"kind": "sign", "start": "there"}, "unknown start in compress 'there'"),
    (7, "compress cannot be 7"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_wrong_tables(given: Any, said: str) -> None:
    with pytest.raises(DigradError) as error:
        Compression.of(given)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_table_says_it_all(kind: str) -> None:
    made = Compression.of({"kind": kind, "mixing": 0.25})
    assert Compression.of(made.table()) == made
    assert Compression.of(kind) == Compression.of(COMPRESSORS[kind]())
