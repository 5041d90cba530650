"""Compressors: what a row becomes on its way, in how few bits, and how far off it may be.

A compressor Q works on blocks of a row's numbers, each by itself; a ``block`` of 0 is the whole
row. It belongs to a class, in which B is the number of numbers in a block:

- ``contraction`` δ: E‖Q(v) - v‖² ≤ (1 - δ)‖v‖²;
- ``unbiased`` ω: E Q(v) = v and E‖Q(v) - v‖² ≤ ω‖v‖²;
- ``absolute`` σ: E‖Q(v) - v‖² ≤ σ² in each block, whatever the size of v.

What is not a multiple of a block ends in a shorter one, which zeros fill up. Zeros stay zeros.
"""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from digrad.base.checks import whole

Kind = Literal["contraction", "unbiased", "absolute"]
Parts = tuple[Tensor, ...]  # what a row is compressed to, before it is put into bytes


class CompressorClass(NamedTuple):
    """How far off a compressor may be."""

    kind: Kind
    constant: float  # δ, ω or σ

    @property
    def delta(self) -> float:
        """δ of the contraction that it is, or that it is once divided by 1 + ω."""
        if self.kind == "unbiased":
            return 1 / (1 + self.constant)
        return self.constant if self.kind == "contraction" else 1.0


class Compressor(ABC):
    """Makes a row short; all of them are frozen dataclasses with plain parameters."""

    kind: ClassVar[str]  # what files call it
    random: ClassVar[bool] = False  # whether it takes a uniform number u for each number
    draws_places: ClassVar[bool] = False  # whether these say which numbers are sent
    per_number: ClassVar[bool] = False  # whether it looks at one number at a time
    block: int = 0

    @abstractmethod
    def class_of(self, dim: int) -> CompressorClass:
        """To which class it belongs, for rows of so many numbers."""

    @abstractmethod
    def row_bits(self, dim: int, each: int = 32) -> int:
        """How many bits a row takes on a link; ``each`` is what one of its numbers takes."""

    @abstractmethod
    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        """Compress rows (..., dim)."""

    @abstractmethod
    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        """Return Q(v), of the shape and type of ``like``."""

    @abstractmethod
    def encode(self, parts: Parts, dim: int) -> Tensor:
        """Put parts into bytes, (..., ⌈bits / 8⌉)."""

    @abstractmethod
    def decode(self, content: Tensor, like: Tensor) -> Parts:
        """Get parts out of bytes, of rows of the shape and type of ``like``."""

    def __call__(self, v: Tensor, u: Tensor | None = None) -> Tensor:
        """Q(v)."""
        return self.dense(self.parts(v, u), v, u)

    @abstractmethod
    def mixing(self, dim: int) -> float:
        """Return a ζ that suits it: stable when rings and denser graphs of 8 nodes average."""

    def size(self, dim: int) -> int:
        """How many numbers a block has."""
        return min(self.block, dim) if self.block else max(1, dim)

    def blocks(self, dim: int) -> int:
        """How many blocks a row has."""
        return -(-dim // self.size(dim))

    def table(self) -> dict[str, object]:
        """Return its name and parameters, as a file holds them."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **values}

    def _cut(self, v: Tensor) -> Tensor:
        """Return rows as (..., blocks, numbers of a block), filled up with zeros."""
        dim, size = v.shape[-1], self.size(v.shape[-1])
        missing = -dim % size
        if missing:
            v = torch.nn.functional.pad(v, (0, missing))
        return v.reshape(*v.shape[:-1], -1, size)

    def _check_block(self) -> None:
        whole(self.block, "block", hint="0 takes whole rows")


def as_bytes(numbers: Tensor) -> Tensor:
    """Return the bytes of floating numbers along the last axis."""
    return numbers.contiguous().view(torch.uint8)


def from_bytes(content: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers from their bytes along the last axis."""
    # A copy begins where numbers of that size may, and its rows follow each other.
    return content.clone(memory_format=torch.contiguous_format).view(dtype)


def pack(numbers: Tensor, width: int) -> Tensor:
    """Put numbers from 0 to 2ʷ - 1 into bytes along the last axis, the first in the lowest bits.

    >>> pack(torch.tensor([1, 2, 3]), 4)
    tensor([33,  3], dtype=torch.uint8)
    """
    if width % 8 == 0:
        kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
        return numbers.to(kind).contiguous().view(torch.uint8)
    if 8 % width == 0:
        return _joined(numbers.to(torch.uint8), width)
    places = torch.arange(width, device=numbers.device)
    bits = (numbers.unsqueeze(-1) >> places) & 1
    return _joined(bits.to(torch.uint8).flatten(-2), 1)


def _joined(numbers: Tensor, width: int) -> Tensor:
    each = 8 // width
    missing = -numbers.shape[-1] % each
    if missing:
        numbers = torch.nn.functional.pad(numbers, (0, missing))
    whole = numbers.reshape(*numbers.shape[:-1], -1, each)
    made = whole[..., 0].clone()
    for k in range(1, each):
        made |= whole[..., k] << (width * k)
    return made


def unpack(content: Tensor, count: int, width: int) -> Tensor:
    """Return so many numbers that ``pack`` put into bytes.

    >>> unpack(pack(torch.tensor([5, 0, 7]), 3), 3, 3).tolist()
    [5, 0, 7]
    """
    if width % 8 == 0:
        if width == 8:
            return content[..., :count]
        kind = {16: torch.int16, 32: torch.int32}[width]
        part = content[..., : count * width // 8]
        whole = part.clone(memory_format=torch.contiguous_format).view(kind)
        return whole.to(torch.int64).bitwise_and(2**width - 1)
    if 8 % width == 0:
        return _parted(content, width)[..., :count]
    bits = _parted(content, 1)[..., : count * width]
    places = torch.arange(width, device=content.device)
    whole = bits.reshape(*bits.shape[:-1], count, width).to(torch.int64)
    made: Tensor = (whole << places).sum(-1)
    return made


def _parted(content: Tensor, width: int) -> Tensor:
    mask = 2**width - 1
    parts = [(content >> (width * k)) & mask for k in range(8 // width)]
    return torch.stack(parts, dim=-1).flatten(-2)
