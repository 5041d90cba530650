"""Compressors that look at one number at a time."""

from dataclasses import dataclass
from math import sqrt
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
class Identity(Compressor):
    """Q(v) = v."""

    kind: ClassVar[str] = "identity"
    per_number: ClassVar[bool] = True

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("contraction", 1.0)

    def mixing(self, dim: int) -> float:
        return 1.0

    def row_bits(self, dim: int, each: int = 32) -> int:
        return dim * each

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        return (v,)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        return parts[0]

    def encode(self, parts: Parts, dim: int) -> Tensor:
        return as_bytes(parts[0])

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        return (from_bytes(content, like.dtype),)


@dataclass(frozen=True)
class Rounding(Compressor):
    """The nearest whole number, of ``bits`` bits; a larger one becomes the largest there is.

    Absolute, σ = √d/2, for numbers within the bits. Takes ``bits`` bits a number.

    Args:
        bits: of a number, its sign among them.
    """

    kind: ClassVar[str] = "rounding"
    per_number: ClassVar[bool] = True

    bits: int = 8

    def __post_init__(self) -> None:
        hint = "8 bits hold whole numbers up to 127"
        whole(self.bits, "bits", least=2, most=16, hint=hint)

    @property
    def top(self) -> int:
        """The largest number."""
        return (1 << (self.bits - 1)) - 1

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("absolute", sqrt(dim) / 2)

    def mixing(self, dim: int) -> float:
        return 0.5

    def row_bits(self, dim: int, each: int = 32) -> int:
        return dim * self.bits

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        return (v.round().clamp_(-self.top, self.top),)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        return parts[0]

    def encode(self, parts: Parts, dim: int) -> Tensor:
        return pack(parts[0].to(torch.int64) + self.top, self.bits)

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        return (unpack(content, like.shape[-1], self.bits).to(like.dtype) - self.top,)


@dataclass(frozen=True)
class BF16(Compressor):
    """Every number rounded to bfloat16: 8 bits of precision, 16 bits on the wire.

    Contraction, δ = 1 - 2⁻¹⁶.
    """

    kind: ClassVar[str] = "bf16"
    per_number: ClassVar[bool] = True

    def class_of(self, dim: int) -> CompressorClass:
        return CompressorClass("contraction", 1 - 2.0**-16)

    def mixing(self, dim: int) -> float:
        return 1.0

    def row_bits(self, dim: int, each: int = 32) -> int:
        return dim * 16

    def parts(self, v: Tensor, u: Tensor | None = None) -> Parts:
        return (v.to(torch.bfloat16),)

    def dense(self, parts: Parts, like: Tensor, u: Tensor | None = None) -> Tensor:
        return parts[0].to(like.dtype)

    def encode(self, parts: Parts, dim: int) -> Tensor:
        return as_bytes(parts[0])

    def decode(self, content: Tensor, like: Tensor) -> Parts:
        return (from_bytes(content, torch.bfloat16),)
