"""Compressors that send a scale for each block, and a few bits for each number."""

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, log, log2, sqrt
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
from digrad.base.checks import whole


@dataclass(frozen=True)
class _Scaled(Compressor):
    """One scale for each block, and for each number a whole one of a few bits.

    The parts are the scales, (..., blocks), and whole numbers, (..., dim), from 0 on.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """Bits of a number."""

    def row_bits(self, dim: int, each: int = 32) -> int:
        return self.blocks(dim) * each + dim * self.width

    def encode(self, parts: Parts, dim: int) -> Tensor:
        scales, numbers = parts
        return torch.cat([as_bytes(scales), pack(numbers, self.width)], dim=-1)

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        dim = like.shape[-1]
        head = self.blocks(dim) * like.element_size()
        scales, rest = content[..., :head], content[..., head:]
        return from_bytes(scales, like.dtype), unpack(rest, dim, self.width)

    def _flat(self, blocks: Tensor, dim: int) -> Tensor:
        return blocks.flatten(-2)[..., :dim]


@dataclass(frozen=True)
class _Levels(_Scaled):
    """Numbers between -s and s times a scale, rounded up or down by u."""

    block: int = 64

    @property
    @abstractmethod
    def top(self) -> int:
        """s: levels from 0 to the scale."""

    @abstractmethod
    def _scale(self, whole: Tensor) -> Tensor:
        """Return the scale of each block, (..., blocks, 1)."""

    def _rounded(self, sizes: Tensor, u: Tensor | None) -> Tensor:
        """⌊size + u⌋."""
        assert u is not None
        return (sizes + self._cut(u)).floor_()

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        whole = self._cut(v)
        scale = self._scale(whole)
        sizes = whole.abs().mul_(self.top).div_(torch.where(scale > 0, scale, 1))
        levels = self._rounded(sizes, u).clamp_(max=self.top).copysign_(whole)
        numbers = self._flat(levels.add_(self.top), v.shape[-1])
        return scale.squeeze(-1), numbers.to(torch.uint8 if self.top < 128 else torch.int64)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        scales, numbers = parts
        levels = self._cut(numbers.to(like.dtype).sub_(self.top))
        return self._flat(levels * (scales / self.top).unsqueeze(-1), like.shape[-1])


@dataclass(frozen=True)
class QSGD(_Levels):
    """QSGD: ‖v‖₂ sign(v) ⌊s|v|/‖v‖₂ + u⌋ / s, in each block.

    Unbiased, ω = min(B/s², √B/s). Takes b + B (1 + ⌈log₂(s + 1)⌉) bits a block.

    Args:
        levels: s.
        block: numbers in a block; 0 takes whole rows.

    References:
        Alistarh, Grubic, Li, Tomioka, Vojnović, NeurIPS 2017.
    """

    kind: ClassVar[str] = "qsgd"
    random: ClassVar[bool] = True

    levels: int = 8

    def __post_init__(self) -> None:
        self._check_block()
        whole(self.levels, "levels", least=1, hint="8 levels take 5 bits")

    @property
    def top(self) -> int:
        return self.levels

    @property
    def width(self) -> int:
        return 1 + ceil(log2(self.levels + 1))

    def class_of(self, dim: int) -> CompressorClass:
        size = self.size(dim)
        return CompressorClass("unbiased", min(size / self.levels**2, sqrt(size) / self.levels))

    def mixing(self, dim: int) -> float:
        return 1 / (1 + self.size(dim) / (6 * self.levels**2))

    def _scale(self, whole: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(whole, dim=-1, keepdim=True)
        return norms


@dataclass(frozen=True)
class _Largest(_Levels):
    """The scale is the largest size in a block, and whole numbers have ``bits`` bits."""

    bits: int = 4

    def __post_init__(self) -> None:
        self._check_block()
        whole(self.bits, "bits", least=2, most=16, hint="4 is a good start; sign takes one")

    @property
    def top(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def width(self) -> int:
        return self.bits

    def _usual(self, dim: int) -> float:
        """‖Q(v) - v‖²/‖v‖² of normal numbers rounded to the nearest: m² is about 2 ln B."""
        return log(self.size(dim)) / (6 * self.top**2)

    def _scale(self, whole: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(whole, ord=torch.inf, dim=-1, keepdim=True)
        return norms


@dataclass(frozen=True)
class Dither(_Largest):
    """m sign(v) ⌊s|v|/m + u⌋ / s in each block, m the largest size in it, s = 2^(bits - 1) - 1.

    Unbiased, ω = B/(4s²). Takes b + bits · B bits a block.

    Args:
        bits: of a number.
        block: numbers in a block; 0 takes whole rows.
    """

    kind: ClassVar[str] = "dither"
    random: ClassVar[bool] = True

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("unbiased", self.size(dim) / (4 * self.top**2))

    def mixing(self, dim: int) -> float:
        return 1 / (1 + 4 * self._usual(dim))


@dataclass(frozen=True)
class Nearest(_Largest):
    """m sign(v) ⌊s|v|/m + 1/2⌋ / s in each block: dither that draws nothing, and is off by less.

    Contraction, δ = 1 - (B - 1)/(4s²), or 1/B where that is more: the largest number is exact,
    every other off by m/(2s) and by its own size at most. Takes as many bits as dither.

    Args:
        bits: of a number.
        block: numbers in a block; 0 takes whole rows.
    """

    kind: ClassVar[str] = "nearest"

    def class_of(self, dim: int) -> CompressorClass:
        size = self.size(dim)
        return CompressorClass("contraction", max(1 / size, 1 - (size - 1) / (4 * self.top**2)))

    def mixing(self, dim: int) -> float:
        return 1 / (1 + 4 * self._usual(dim))

    def _rounded(self, sizes: Tensor, u: Tensor | None) -> Tensor:
        return sizes.add_(0.5).floor_()


@dataclass(frozen=True)
class Sign(_Scaled):
    """Scaled sign: (‖v‖₁/B) sign(v) in each block, sign(0) = +1.

    Contraction, δ = ‖v‖₁²/(B‖v‖₂²), which is at least 1/B; of normal numbers 2/π. Takes b + B
    bits a block.

    Args:
        block: numbers in a block; 0 takes whole rows.
    """

    kind: ClassVar[str] = "sign"

    block: int = 1024

    def __post_init__(self) -> None:
        self._check_block()

    @property
    def width(self) -> int:
        return 1

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("contraction", 1 / self.size(dim))

    def mixing(self, dim: int) -> float:
        return 0.05

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        dim = v.shape[-1]
        sizes = torch.full((self.blocks(dim),), self.size(dim), device=v.device)
        sizes[-1] -= self.blocks(dim) * self.size(dim) - dim  # what fills up the last is no number
        return self._cut(v).abs().sum(-1) / sizes, (v >= 0).to(torch.uint8)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        scales, signs = parts
        both = self._cut(signs.to(like.dtype).mul_(2).sub_(1))
        return self._flat(both * scales.unsqueeze(-1), like.shape[-1])
