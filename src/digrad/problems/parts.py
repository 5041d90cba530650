"""Convolutions of layers with many channels, for many networks at once, on a GPU.

Every number is taken apart into parts of bfloat16: three hold all 24 bits of single precision,
two more than TF32 does. Six products of three parts, or three of two, run on tensor cores and are
summed in single precision: what is left out is below the last bit. Channels lie innermost.
Tiles were measured on one H200: docs/design/0004-deep-learning.md.
"""

from functools import cache
from itertools import product
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from digrad.problems import part_kernels
from digrad.problems.shapes import MOST, Shape

LEAST = 64  # channels or outputs, below which other kernels are faster
UNIT = 16  # channels that a product takes at least: there are a multiple of so many
PROGRAMS = 1024  # that keep a large GPU busy
MOST_WEIGHTS = 1 << 27  # of a group: tiles of 64 x 64 of them are counted in 16 bits
STAGES = 3  # of loading ahead, where shared memory holds so many

PARTS = {"half": 1, "tf32": 2, "tf32x3": 3}


def suit(shape: Shape) -> bool:
    """Whether a convolution is computed here."""
    (height, width), (high, wide) = shape.places, shape.size
    most = max(_padded(shape.channels) * high * wide, _padded(shape.outs) * height * width)
    many = max(shape.channels, shape.outs) >= LEAST
    fits = shape.samples * most < MOST and shape.outs * shape.numbers < MOST_WEIGHTS
    simple = shape.dilation == (1, 1) and shape.high * shape.wide <= 64
    return shape.modern and many and fits and simple


def empty(like: Tensor, channels: int, size: tuple[int, int]) -> Tensor:
    """Return a tensor for so many channels, which lie innermost."""
    return like.new_empty((*like.shape[:2], *size, channels)).permute(0, 1, 4, 2, 3)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w), and add (G, O)."""
    out, count = empty(x, shape.outs, shape.places), PARTS[shape.precision]
    _gather(_split(x, count), _split_weights(weight, count), bias, out, shape)
    return out


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, *, to_x: bool
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients with respect to images, if wanted, and to weights, (G, O * C * h * w).

    The latter are in single precision.
    """
    count, out = PARTS[shape.precision], None
    parts = _split(grad, count)
    if to_x:
        out = empty(grad, shape.channels, shape.size)
        _gather(parts, _split_weights(weight, count), None, out, shape, back=True)
    return out, _weights(parts, _split(x, count), shape)


def _weights(g: Tensor, a: Tensor, shape: Shape) -> Tensor:
    """Sum products of parts over stretches of pixels, and these."""
    tiles, outs, channels = weights_tiles(shape), g.shape[-1], a.shape[-1]
    each = (tiles["WIDE"] + tiles["DEPTH"]) * tiles["PIXELS"] * len(g)
    tiles["num_stages"] = _stages(each, g.device)
    window, (height, width), (high, wide) = shape.high * shape.wide, shape.places, shape.size
    areas = triton.cdiv(shape.outs, tiles["WIDE"]) * triton.cdiv(shape.channels, tiles["DEPTH"])
    areas *= window
    blocks = triton.cdiv(shape.pixels, tiles["PIXELS"])
    each = min(blocks, max(4, blocks * shape.groups * areas // PROGRAMS))
    stretches = triton.cdiv(blocks, each)
    length = triton.cdiv(blocks, stretches) * tiles["PIXELS"]
    sums = torch.empty(
        (shape.groups, stretches, window, outs, channels), dtype=torch.float32, device=g.device
    )
    part_kernels.correlate[shape.groups * stretches, areas](
        g, a, sums, stretches, length, shape.samples, 0, g.stride(0), a.stride(0),
        C=shape.channels, H=high, W=wide, HO=height, WO=width, OUT_PADDED=outs, PADDED=channels,
        **_window(shape), PARTS=len(g), **tiles,
    )  # fmt: skip
    out = sums.new_empty((shape.groups, shape.outs * shape.numbers))
    part_kernels.collect[shape.groups * shape.outs, triton.cdiv(shape.channels, 64)](
        sums, out, stretches, OUT=shape.outs, C=shape.channels, OUT_PADDED=outs, PADDED=channels,
        TAPS=window, WIDE=64, ALL_TAPS=triton.next_power_of_2(window),
    )  # fmt: skip
    return out


def _gather(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, shape: Shape, back: bool = False
) -> None:
    """Convolve parts with parts, or take gradients back."""
    (outs, across), (height, width) = weight.shape[-2:], out.shape[3:]
    tiles = gather_tiles(len(x), x.shape[-1], out.shape[2])
    each = (tiles["PIXELS"] + tiles["WIDE"]) * tiles["DEPTH"] * len(x)
    tiles["num_stages"] = _stages(each, x.device)
    size, padded, inner = shape.size, outs, {"TO_OUT": across, "TO_IN": 1}
    if back:
        size, padded, inner = shape.places, across, {"TO_OUT": 1, "TO_IN": across}
    high, wide = shape.stride if back else (1, 1)  # pixels so far apart are computed alike
    for a, b in product(range(min(high, height)), range(min(wide, width))):
        pixels = shape.samples * triton.cdiv(height - a, high) * triton.cdiv(width - b, wide)
        strips = triton.cdiv(pixels, tiles["PIXELS"])
        part_kernels.gather[shape.groups * strips, triton.cdiv(out.shape[2], tiles["WIDE"])](
            x, weight, weight if bias is None else bias.contiguous(), out, strips, shape.samples,
            x.stride(0), weight.stride(0), weight[0, 0].numel(), TO_TAP=outs * across, **inner,
            C=x.shape[-1], H=size[0], W=size[1], OUT=out.shape[2], PADDED=padded, HO=height,
            WO=width, **_window(shape), BACK=back, A=a, B=b, SHIFTED=bias is not None,
            PARTS=len(x), **tiles,
        )  # fmt: skip


def _window(shape: Shape) -> dict[str, int]:
    pairs = {"K": shape.window, "S": shape.stride, "P": shape.padding}
    return {
        name + axis: pair[k] for name, pair in pairs.items() for k, axis in ((0, "H"), (1, "W"))
    }


def _split(x: Tensor, count: int) -> Tensor:
    """Return the parts of (G, S, C, H, W) as (count, G * S, H * W, C padded)."""
    channels, pixels, inner = x.shape[2], x.shape[3] * x.shape[4], x.movedim(2, -1)
    padded, images = _padded(channels), len(x) * x.shape[1]
    if count == 1 and padded == channels and inner.is_contiguous():
        return inner.reshape(1, images, pixels, channels)
    if not x.is_contiguous():
        inner = inner.contiguous()
    to_row, to_channel = (channels, 1) if inner.is_contiguous() else (1, pixels)
    out = x.new_empty((count, images, pixels, padded), dtype=torch.bfloat16)
    if padded == channels and inner.is_contiguous():
        part_kernels.split_flat[triton.cdiv(x.numel(), 2048),](
            inner, out, x.numel(), PARTS=count, EACH=2048, num_warps=8
        )
        return out
    wide = min(64, triton.next_power_of_2(padded))
    part_kernels.split[triton.cdiv(images * pixels, 32), triton.cdiv(padded, wide)](
        inner, out, out.stride(0), images * pixels, channels * pixels,
        TO_ROW=to_row, TO_CHANNEL=to_channel, HW=pixels, C=channels, PADDED=padded,
        PARTS=count, ROWS=32, WIDE=wide,
    )  # fmt: skip
    return out


def _split_weights(weight: Tensor, count: int) -> Tensor:
    """Return the parts of (G, O, C, h, w) as (count, G, h * w, O padded, C padded)."""
    groups, outs, channels, *window = weight.shape
    sizes, taps = (_padded(outs), _padded(channels)), window[0] * window[1]
    out = weight.new_empty((count, groups, taps, *sizes), dtype=torch.bfloat16)
    wide = min(64, triton.next_power_of_2(sizes[1]))
    if not weight[0].is_contiguous():
        weight = weight.contiguous()
    part_kernels.split_weights[groups * sizes[0], triton.cdiv(sizes[1], wide)](
        weight, out, out.stride(0), weight.stride(0), OUT=outs, C=channels, OUT_PADDED=sizes[0],
        PADDED=sizes[1], TAPS=taps, PARTS=count, WIDE=wide, ALL_TAPS=triton.next_power_of_2(taps),
    )  # fmt: skip
    return out


def _padded(channels: int) -> int:
    return UNIT * -(-channels // UNIT)


def _depth(channels: int, most: int) -> int:
    """Return how many channels go into one product: a power of two that divides them."""
    return min(most, channels & -channels)


def gather_tiles(count: int, channels: int, outs: int) -> dict[str, Any]:
    """Return how many pixels and outputs a program takes, and how many channels at a time."""
    wide = _tile(outs, 256 if count == 2 else 128)
    depth = _depth(channels, 64 if count == 1 else 32)
    tiles = {"PIXELS": 64 if count == 3 else 128, "WIDE": wide, "DEPTH": depth}
    return tiles | {"num_warps": 8 if count == 2 and wide > 64 else 4}


def weights_tiles(shape: Shape) -> dict[str, Any]:
    """Return how many outputs and channels a program takes, and pixels at a time."""
    most = {"half": (128, 128, 64), "tf32": (128, 64, 32)}.get(shape.precision, (64, 64, 32))
    wide, depth = _tile(shape.outs, most[0]), _tile(shape.channels, most[1])
    tiles = {"WIDE": wide, "DEPTH": depth, "PIXELS": most[2]}
    return tiles | {"num_warps": 8 if wide * depth > 8192 else 4}


def _stages(numbers: int, device: torch.device) -> int:
    """Return how many tiles of so many numbers are loaded ahead: the room of GPUs differs."""
    return max(1, min(STAGES, (_shared_memory(device) - 1024) // (2 * numbers)))


@cache
def _shared_memory(device: torch.device) -> int:
    """Return the bytes that programs on one multiprocessor share."""
    if device.type != "cuda":  # which is Triton's interpreter
        return 1 << 20
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)
    return int(properties["max_shared_mem"])


def _tile(count: int, most: int) -> int:
    return int(min(most, max(UNIT, triton.next_power_of_2(count))))
