"""Compressors that send some of the numbers and leave out the rest."""

from dataclasses import dataclass
from math import ceil, log2
from typing import ClassVar

import torch
from torch import Tensor

from digrad.algorithms.compression.compressor import (
    Compressor,
    CompressorClass,
    Parts,
    as_bytes,
    from_bytes,
    pack,
    unpack,
)
from digrad.base.checks import real, whole
from digrad.base.errors import ParameterError


@dataclass(frozen=True)
class _Some(Compressor):
    """Keeps k numbers of each block."""

    share: float = 0.1
    k: int = 0
    block: int = 1024

    def __post_init__(self) -> None:
        self._check_block()
        whole(self.k, "k", hint="0 takes the share")
        real(self.share, "share", above=0, most=1, hint="0.1 keeps every tenth number")
        if self.k and self.share != _Some.share:
            what = f"k = {self.k} and share = {self.share} both say how many are kept"
            raise ParameterError(what, hint="leave one of them out")
        if self.block and self.k > self.block:
            what = f"k = {self.k} numbers of a block of {self.block} cannot be kept"
            raise ParameterError(what, hint="take a larger block, or block = 0")

    def kept(self, dim: int) -> int:
        """k: how many numbers of a block are kept."""
        size = self.size(dim)
        return min(size, self.k or max(1, round(self.share * size)))

    def _scattered(self, values: Tensor, places: Tensor, like: Tensor) -> Tensor:
        dim, size = like.shape[-1], self.size(like.shape[-1])
        whole = like.new_zeros(*like.shape[:-1], self.blocks(dim), size)
        return whole.scatter_(-1, places, values).flatten(-2)[..., :dim]


@dataclass(frozen=True)
class TopK(_Some):
    """Keeps the k numbers of each block that are largest in size; ties go to the lower place.

    Contraction, δ = k/B. Takes k (b + ⌈log₂ B⌉) bits a block: numbers and places.

    >>> TopK(k=2, block=0)(torch.tensor([0.3, -1.2, 0.7, 0, 2])).tolist()
    [0.0, -1.2000000476837158, 0.0, 0.0, 2.0]

    Args:
        share: which share of a block is kept, at least one number.
        k: how many are kept, instead of a share.
        block: numbers in a block; 0 takes whole rows.
    """

    kind: ClassVar[str] = "top-k"

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("contraction", self.kept(dim) / self.size(dim))

    def mixing(self, dim: int) -> float:
        # What is sent was largest: more of the whole than its share of places.
        return min(1.0, 2 * self.class_of(dim).constant)

    def row_bits(self, dim: int, each: int = 32) -> int:
        return self.blocks(dim) * self.kept(dim) * (each + self._width(dim))

    def _width(self, dim: int) -> int:
        return ceil(log2(self.size(dim)))

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        whole = self._cut(v)
        places = first_places(whole.abs(), self.kept(v.shape[-1]), largest=True)
        return whole.gather(-1, places), places

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        return self._scattered(parts[0], parts[1], like)

    def encode(self, parts: Parts, dim: int) -> Tensor:
        values, places = as_bytes(parts[0].flatten(-2)), parts[1].flatten(-2)
        width = self._width(dim)
        return torch.cat([values, pack(places, width)], dim=-1) if width else values

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        dim = like.shape[-1]
        shape, width = (self.blocks(dim), self.kept(dim)), self._width(dim)
        count = shape[0] * shape[1]
        head = count * like.element_size()
        values, packed = content[..., :head], content[..., head:]
        places = (
            unpack(packed, count, width) if width else packed.new_zeros(*values.shape[:-1], count)
        )
        return (
            from_bytes(values, like.dtype).reshape(*like.shape[:-1], *shape),
            places.to(torch.int64).reshape(*like.shape[:-1], *shape),
        )


def first_places(numbers: Tensor, count: int, *, largest: bool) -> Tensor:
    """Return the places of the first numbers in order along the last axis; ties: lower first."""
    if count == 1:
        return (numbers.argmax if largest else numbers.argmin)(-1, keepdim=True)
    if numbers.dtype == torch.float32:
        # With its place, every number is a different whole one, and the fast search is exact.
        size = numbers.shape[-1]
        places = torch.arange(size, device=numbers.device)
        order = numbers.contiguous().view(torch.int32).to(torch.int64)  # as sizes are ordered
        keys = (order if largest else -order) * size + (size - 1 - places)
        return keys.topk(count, dim=-1).indices
    return numbers.sort(dim=-1, descending=largest, stable=True).indices[..., :count]


@dataclass(frozen=True)
class RandomK(_Some):
    """Keeps k numbers of each block, those with the k smallest u; ties go to the lower place.

    Contraction, δ = k/B; ``unbiased`` multiplies by B/k and has ω = B/k - 1. Takes k b bits a
    block: the receiver draws the same u.

    Args:
        share: which share of a block is kept, at least one number.
        k: how many are kept, instead of a share.
        block: numbers in a block; 0 takes whole rows.
        unbiased: whether what is kept is multiplied by B/k.
    """

    kind: ClassVar[str] = "random-k"
    random: ClassVar[bool] = True
    draws_places: ClassVar[bool] = True

    unbiased: bool = False

    def class_of(self, dim: int) -> CompressorClass:
        share = self.kept(dim) / self.size(dim)
        if self.unbiased:
            return CompressorClass("unbiased", 1 / share - 1)
        return CompressorClass("contraction", share)

    def mixing(self, dim: int) -> float:
        return self.class_of(dim).delta / 2

    def row_bits(self, dim: int, each: int = 32) -> int:
        return self.blocks(dim) * self.kept(dim) * each

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        values = self._cut(v).gather(-1, self._places(u, v.shape[-1]))
        return (values * self._factors(v) if self.unbiased else values,)

    def _factors(self, v: Tensor) -> Tensor:
        """Return B/k of each block; the last may be shorter."""
        size, kept = self.size(v.shape[-1]), self.kept(v.shape[-1])
        factors = v.new_full((self.blocks(v.shape[-1]), 1), size / kept)
        last = v.shape[-1] % size
        if last:
            factors[-1] = last / min(last, kept)
        return factors

    def _places(self, u: Tensor | None, dim: int) -> Tensor:
        assert u is not None
        size, kept = self.size(dim), self.kept(dim)
        missing = -dim % size
        if missing:  # what fills up the last block comes last, too
            u = torch.nn.functional.pad(u, (0, missing), value=1.0)
        return first_places(u.reshape(*u.shape[:-1], -1, size), kept, largest=False)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        return self._scattered(parts[0], self._places(u, like.shape[-1]), like)

    def encode(self, parts: Parts, dim: int) -> Tensor:
        return as_bytes(parts[0].flatten(-2))

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        shape = self.blocks(like.shape[-1]), self.kept(like.shape[-1])
        return (from_bytes(content, like.dtype).reshape(*like.shape[:-1], *shape),)
