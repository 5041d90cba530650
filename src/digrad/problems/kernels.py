"""Convolutions of many small networks at once, on a GPU: one kernel each, nothing unfolded.

All are products of a matrix with patches that are gathered as they are needed. A program
handles one image (``forward``, ``inputs``) or one network and a stretch of its pixels
(``weights``); sums have a fixed order, so that runs can be repeated to the bit.
"""

from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

PIXELS = 64  # columns of one product
DEPTH = 32  # numbers summed in one product
STRETCH = 256  # pixels that one program sums up for a weight's gradient


def forward(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int]) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w)."""
    shape = _Shape(x, weight, stride, dilation)
    out = x.new_empty((*x.shape[:2], weight.shape[1], shape.height, shape.width))
    grid = (shape.images, triton.cdiv(shape.places, PIXELS), triton.cdiv(shape.outs, shape.wide))
    _forward[grid](x.contiguous(), weight.contiguous(), out, **shape.sizes, **shape.blocks)
    return out


def inputs(
    grad: Tensor, weight: Tensor, x: Tensor, stride: list[int], dilation: list[int]
) -> Tensor:
    """Return the gradient with respect to x, of which only the shape is looked at."""
    shape = _Shape(x, weight, stride, dilation)
    out = x.new_empty(x.shape)
    pixels, wide = x.shape[-2] * x.shape[-1], _block(shape.channels)
    grid = (shape.images, triton.cdiv(pixels, PIXELS), triton.cdiv(shape.channels, wide))
    blocks = shape.blocks | {"WIDE": wide}
    _inputs[grid](grad.contiguous(), weight.contiguous(), out, **shape.sizes, **blocks)
    return out


def weights(
    grad: Tensor, x: Tensor, weight: Tensor, stride: list[int], dilation: list[int]
) -> Tensor:
    """Return the gradient with respect to weight, of which only the shape is looked at."""
    shape = _Shape(x, weight, stride, dilation)
    stretches = triton.cdiv(x.shape[1] * shape.places, STRETCH)
    parts = x.new_empty((len(x), stretches, *weight.shape[1:]))
    tiles = triton.cdiv(shape.outs, shape.wide) * triton.cdiv(shape.numbers, DEPTH)
    grid = (len(x), stretches, tiles)
    _weights[grid](
        grad.contiguous(), x.contiguous(), parts, stretches, **shape.sizes, **shape.blocks,
        STRETCH=STRETCH,
    )  # fmt: skip
    return parts.sum(1) if stretches > 1 else parts.squeeze(1)


class _Shape:
    """The sizes that all kernels are told."""

    def __init__(self, x: Tensor, weight: Tensor, stride: list[int], dilation: list[int]) -> None:
        groups, samples, self.channels, high, wide = x.shape
        _, self.outs, _, h, w = weight.shape
        self.height = (high - dilation[0] * (h - 1) - 1) // stride[0] + 1
        self.width = (wide - dilation[1] * (w - 1) - 1) // stride[1] + 1
        self.images, self.places = groups * samples, self.height * self.width
        self.numbers, self.wide = self.channels * h * w, _block(self.outs)
        self.sizes: dict[str, int] = {"S": samples, "C": self.channels, "H": high, "W": wide}
        self.sizes |= {"OUT": self.outs, "HO": self.height, "WO": self.width}
        exact = torch.get_float32_matmul_precision() == "highest"
        self.blocks: dict[str, Any] = {"KH": h, "KW": w, "SH": stride[0], "SW": stride[1]}
        self.blocks |= {"DH": dilation[0], "DW": dilation[1], "WIDE": self.wide}
        self.blocks |= {"DEPTH": DEPTH, "PIXELS": PIXELS, "PRECISION": "ieee" if exact else "tf32"}


def _block(rows: int) -> int:
    """Return how many rows a product has: a power of two, as the hardware wants it."""
    return int(min(64, max(16, triton.next_power_of_2(rows))))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward(  # type: ignore[no-untyped-def]
    x, weight, out, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    group, numbers, places = image // S, C * KH * KW, HO * WO
    p = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    o = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    corner = (p // WO) * SH * W + (p % WO) * SW
    total = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    for start in range(0, numbers, DEPTH):
        k = start + tl.arange(0, DEPTH)
        r = k % (KH * KW)
        offset = (k // (KH * KW)) * H * W + (r // KW) * DH * W + (r % KW) * DW
        a = tl.load(
            weight + group * OUT * numbers + o[:, None] * numbers + k[None, :],
            mask=(o[:, None] < OUT) & (k[None, :] < numbers),
            other=0.0,
        )
        b = tl.load(
            x + image * C * H * W + offset[:, None] + corner[None, :],
            mask=(k[:, None] < numbers) & (p[None, :] < places),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(
        out + image * OUT * places + o[:, None] * places + p[None, :],
        total,
        mask=(o[:, None] < OUT) & (p[None, :] < places),
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _inputs(  # type: ignore[no-untyped-def]
    grad, weight, out, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    group, places = image // S, HO * WO
    q = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    c = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    row, column = q // W, q % W
    total = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    for start in range(0, OUT * KH * KW, DEPTH):
        k = start + tl.arange(0, DEPTH)
        o, r = k // (KH * KW), k % (KH * KW)
        up = row[None, :] - (r // KW * DH)[:, None]
        left = column[None, :] - (r % KW * DW)[:, None]
        inside = (up >= 0) & (left >= 0) & (up % SH == 0) & (left % SW == 0)
        inside = inside & (up // SH < HO) & (left // SW < WO) & (o[:, None] < OUT)
        a = tl.load(
            weight + (group * OUT + o[None, :]) * C * KH * KW + c[:, None] * KH * KW + r[None, :],
            mask=(c[:, None] < C) & (o[None, :] < OUT),
            other=0.0,
        )
        b = tl.load(
            grad + (image * OUT + o[:, None]) * places + (up // SH) * WO + left // SW,
            mask=inside,
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(
        out + (image * C + c[:, None]) * H * W + q[None, :],
        total,
        mask=(c[:, None] < C) & (q[None, :] < H * W),
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weights(  # type: ignore[no-untyped-def]
    grad, x, parts, stretches, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr, STRETCH: tl.constexpr,
):  # fmt: skip
    group, stretch = tl.program_id(0).to(tl.int64), tl.program_id(1)
    numbers, places = C * KH * KW, HO * WO
    across = tl.cdiv(numbers, DEPTH)
    o = tl.program_id(2) // across * WIDE + tl.arange(0, WIDE)
    k = tl.program_id(2) % across * DEPTH + tl.arange(0, DEPTH)
    r = k % (KH * KW)
    offset = (k // (KH * KW)) * H * W + (r // KW) * DH * W + (r % KW) * DW
    total = tl.zeros((WIDE, DEPTH), dtype=tl.float32)
    for start in range(0, STRETCH, PIXELS):
        q = stretch * STRETCH + start + tl.arange(0, PIXELS)
        image, p = group * S + q // places, q % places
        corner = (p // WO) * SH * W + (p % WO) * SW
        real = q < S * places
        a = tl.load(
            grad + image[None, :] * OUT * places + o[:, None] * places + p[None, :],
            mask=(o[:, None] < OUT) & real[None, :],
            other=0.0,
        )
        b = tl.load(
            x + (image * C * H * W + corner)[:, None] + offset[None, :],
            mask=real[:, None] & (k[None, :] < numbers),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(
        parts + ((group * stretches + stretch) * OUT + o[:, None]) * numbers + k[None, :],
        total,
        mask=(o[:, None] < OUT) & (k[None, :] < numbers),
    )
