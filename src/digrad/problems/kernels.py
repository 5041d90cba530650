"""Convolutions and max-pooling of many small networks at once, on a GPU.

Convolutions are products of a matrix with patches that are gathered as they are needed. A program
handles a few pixels of one network's images; sums have a fixed order, so that runs can be
repeated to the bit. Products run on tensor cores: exact ones as three products of halves, which
are as good as single precision and twice as fast.
"""

from functools import cache
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

PIXELS = 64  # columns of one product
DEPTH = 32  # numbers summed in one product
STRETCH = 256  # pixels that one program sums up for a weight's gradient
MOST = 64  # rows of one product, and numbers of a weight that one program looks after


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], dilation: list[int]
) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w), and add (G, O)."""
    shape = _Shape(x, weight, stride, dilation)
    out = x.new_empty((*x.shape[:2], weight.shape[1], shape.height, shape.width))
    grid = (shape.images, triton.cdiv(shape.places, PIXELS), triton.cdiv(shape.outs, shape.wide))
    shift = weight if bias is None else bias.contiguous()  # which is not read if there is none
    _forward[grid](
        x.contiguous(), weight.contiguous(), shift, out, **shape.sizes, **shape.blocks,
        SHIFTED=bias is not None,
    )  # fmt: skip
    return out


def inputs(
    grad: Tensor, weight: Tensor, x: Tensor, stride: list[int], dilation: list[int]
) -> Tensor:
    """Return the gradient with respect to x, of which only the shape is looked at.

    First that of every patch, then their sums: gathering straight from ``grad`` looks at every
    number of it many times as often.
    """
    shape = _Shape(x, weight, stride, dilation)
    patches = x.new_empty((shape.images, shape.numbers, shape.places))
    wide = _block(shape.numbers)
    grid = (shape.images, triton.cdiv(shape.places, PIXELS), triton.cdiv(shape.numbers, wide))
    blocks = shape.blocks | {"WIDE": wide, "DEPTH": min(DEPTH, _block(shape.outs))}
    _patches[grid](
        grad.contiguous(), weight.contiguous(), patches, **shape.sizes, **blocks, num_warps=2
    )
    out = x.new_empty(x.shape)
    planes = shape.images * shape.channels
    _fold[planes, triton.cdiv(x.shape[-2] * x.shape[-1], PIXELS)](
        patches, out, **shape.sizes, **blocks, num_warps=2
    )
    return out


def weights(
    grad: Tensor, x: Tensor, weight: Tensor, stride: list[int], dilation: list[int]
) -> Tensor:
    """Return the gradient with respect to weight, of which only the shape is looked at."""
    shape = _Shape(x, weight, stride, dilation)
    pixels = x.shape[1] * shape.places
    stretch = STRETCH if pixels > 4 * STRETCH else STRETCH // 2  # few pixels, few programs
    stretches = triton.cdiv(pixels, stretch)
    parts = x.new_empty((len(x), stretches, *weight.shape[1:]))
    across = _block(shape.numbers)
    tiles = triton.cdiv(shape.outs, shape.wide) * triton.cdiv(shape.numbers, across)
    _weights[len(x), stretches, tiles](
        grad.contiguous(), x.contiguous(), parts, stretches, **shape.sizes,
        **shape.blocks | {"DEPTH": across}, STRETCH=stretch,
    )  # fmt: skip
    return parts.sum(1) if stretches > 1 else parts.squeeze(1)


def pool(x: Tensor, high: int, wide: int) -> tuple[Tensor, Tensor]:
    """Return the largest number of every window of (..., H, W), and which of them it is."""
    x, height, width = x.contiguous(), x.shape[-2] // high, x.shape[-1] // wide
    most = x.new_empty((*x.shape[:-2], height, width))
    winner = torch.empty_like(most, dtype=torch.uint8)
    grid = (most.numel() // (height * width), triton.cdiv(height * width, STRETCH))
    _pool[grid](x, most, winner, *x.shape[-2:], height, width, KH=high, KW=wide, PIXELS=STRETCH)
    return most, winner


def unpool(grad: Tensor, winner: Tensor, high: int, wide: int, shape: torch.Size) -> Tensor:
    """Return the gradient with respect to x, of that shape."""
    out = grad.new_empty(shape)
    pixels = shape[-2] * shape[-1]
    _unpool[out.numel() // pixels, triton.cdiv(pixels, STRETCH)](
        grad.contiguous(), winner, out, *shape[-2:], *grad.shape[-2:],
        KH=high, KW=wide, PIXELS=STRETCH,
    )  # fmt: skip
    return out


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
        self.blocks: dict[str, Any] = {"KH": h, "KW": w, "SH": stride[0], "SW": stride[1]}
        self.blocks |= {"DH": dilation[0], "DW": dilation[1], "WIDE": self.wide}
        exact = torch.get_float32_matmul_precision() == "highest"
        precision = _exact(x.device) if exact else "tf32"
        self.blocks |= {"DEPTH": DEPTH, "PIXELS": PIXELS, "PRECISION": precision}


def _block(rows: int) -> int:
    """Return how many rows a product has: a power of two, as the hardware wants it."""
    return int(min(MOST, max(16, triton.next_power_of_2(rows))))


@cache
def _exact(device: torch.device) -> str:
    """Return how exact products are computed: halves need tensor cores that know TF32."""
    if torch.version.hip is not None or device.type != "cuda":  # which is Triton's interpreter
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(device) >= (8, 0) else "ieee"


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward(  # type: ignore[no-untyped-def]
    x, weight, shift, out, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr, SHIFTED: tl.constexpr,
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
    if SHIFTED:
        total += tl.load(shift + group * OUT + o, mask=o < OUT, other=0.0)[:, None]
    tl.store(
        out + image * OUT * places + o[:, None] * places + p[None, :],
        total,
        mask=(o[:, None] < OUT) & (p[None, :] < places),
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _patches(  # type: ignore[no-untyped-def]
    grad, weight, patches, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    group, numbers, places = image // S, C * KH * KW, HO * WO
    p = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    for start in range(0, OUT, DEPTH):
        o = start + tl.arange(0, DEPTH)
        a = tl.load(
            weight + (group * OUT + o[None, :]) * numbers + k[:, None],
            mask=(k[:, None] < numbers) & (o[None, :] < OUT),
            other=0.0,
        )
        b = tl.load(
            grad + (image * OUT + o[:, None]) * places + p[None, :],
            mask=(o[:, None] < OUT) & (p[None, :] < places),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(
        patches + (image * numbers + k[:, None]) * places + p[None, :],
        total,
        mask=(k[:, None] < numbers) & (p[None, :] < places),
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _fold(  # type: ignore[no-untyped-def]
    patches, out, S, C, H, W, OUT, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    PIXELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    plane, places = tl.program_id(0).to(tl.int64), HO * WO  # one channel of one image
    q = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column, real = q // W, q % W, q < H * W
    total = tl.zeros((PIXELS,), dtype=tl.float32)
    for i in range(KH):
        up = row - i * DH
        above = real & (up >= 0) & (up % SH == 0) & (up // SH < HO)
        for j in tl.static_range(KW):
            left = column - j * DW
            inside = above & (left >= 0) & (left % SW == 0) & (left // SW < WO)
            place = ((plane * KH + i) * KW + j) * places + (up // SH) * WO + left // SW
            total += tl.load(patches + place, mask=inside, other=0.0)
    tl.store(out + plane * H * W + q, total, mask=real)


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


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pool(  # type: ignore[no-untyped-def]
    x, most, winner, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    real = p < HO * WO
    corner = x + plane * H * W + (p // WO) * KH * W + (p % WO) * KW
    best = tl.load(corner, mask=real, other=0.0)
    which = tl.zeros((PIXELS,), dtype=tl.int32)
    for k in tl.static_range(1, KH * KW):
        pixel = tl.load(corner + k // KW * W + k % KW, mask=real, other=0.0)
        which = tl.where(pixel > best, k, which)
        # A number that is none must not vanish: a run that diverges has to show it.
        best = tl.where((pixel > best) | (pixel != pixel), pixel, best)
    tl.store(most + plane * HO * WO + p, best, mask=real)
    tl.store(winner + plane * HO * WO + p, which.to(tl.uint8), mask=real)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _unpool(  # type: ignore[no-untyped-def]
    grad, winner, out, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    q = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column, real = q // W, q % W, q < H * W
    window = plane * HO * WO + (row // KH) * WO + column // KW
    inside = real & (row // KH < HO) & (column // KW < WO)
    which = tl.load(winner + window, mask=inside, other=255)
    value = tl.load(grad + window, mask=inside, other=0.0)
    own = which.to(tl.int32) == row % KH * KW + column % KW
    tl.store(out + plane * H * W + q, tl.where(own, value, 0.0), mask=real)
