"""Convolutions of layers with many channels, for many networks at once, on a GPU.

Every number is taken apart into parts of bfloat16: three hold all 24 bits of single precision,
two more than TF32 does. Six products of three parts, or three of two, run on tensor cores and are
summed in single precision: what is left out is below the last bit. Channels lie innermost.
Tiles were measured on one H200: docs/design/0004-deep-learning.md.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from digrad.kernels import split_kernels
from digrad.kernels.shapes import MOST, Frame, Shape, reads

LEAST, MANY = 16, 64  # channels and outputs, or one of them: other kernels are faster below
UNIT = 16  # channels that a product takes at least: there are a multiple of so many
PROGRAMS = 1024  # that keep a large GPU busy
LARGE = 100_000  # pixels, above which larger tiles of weights' gradients are faster
MOST_WEIGHTS = 1 << 27  # of a group: tiles of 64 x 64 of them are counted in 16 bits
STAGES = 3  # of loading ahead, where shared memory holds so many

PARTS = {"half": 1, "tf32": 2, "tf32x3": 3}


def suit(shape: Shape) -> bool:
    """Whether a convolution is computed here."""
    simple = shape.dilation == (1, 1) and shape.high * shape.wide <= 64
    few, many = sorted((shape.channels, shape.outs))
    if not (shape.modern and simple and (few >= LEAST or many >= MANY)):
        return False
    images = Frame.of(shape).pixels * _padded(shape.channels)
    grads = Frame.back(shape).pixels * _padded(shape.outs)
    return shape.samples * max(images, grads) < MOST and shape.outs * shape.numbers < MOST_WEIGHTS


def empty(like: Tensor, channels: int, size: tuple[int, int]) -> Tensor:
    """Return a tensor for so many channels, which lie innermost."""
    return like.new_empty((*like.shape[:2], *size, channels)).permute(0, 1, 4, 2, 3)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w), and add (G, O)."""
    out, count = empty(x, shape.outs, shape.places), PARTS[shape.precision]
    images = _split(x, count, Frame.of(shape))
    _gather(images, _split_weights(weight, count), bias, out, [_forward(shape)])
    return out


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, *, to_x: bool
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients with respect to images, if wanted, and to weights, (G, O * C * h * w).

    The latter are in single precision.
    """
    count, out = PARTS[shape.precision], None
    frame = Frame.back(shape) if to_x else Frame(0, 0, *shape.places)
    parts = _split(grad, count, frame)
    if to_x:
        out = empty(grad, shape.channels, shape.size)
        turned = _split_weights(weight, count).mT
        _gather(parts, turned, None, out, _backward(shape, frame))
    return out, _weights(parts, frame, _split(x, count, Frame.of(shape)), shape)


def _forward(shape: Shape) -> dict[str, int]:
    """Say which pixels a program of ``gather`` reads and writes."""
    (height, width), (step_h, step_w) = shape.places, shape.stride
    sizes = {"high": height, "wide": width, "rows": shape.high, "columns": shape.wide}
    steps = {"step_h": step_h, "step_w": step_w, "first_h": 0, "first_w": 0}
    taps = {"tap": 0, "down": shape.wide, "across": 1}
    return sizes | steps | taps | {"out_h": 1, "out_w": 1, "a": 0, "b": 0}


def _backward(shape: Shape, frame: Frame) -> Iterator[dict[str, int]]:
    """Say it for the way back, where pixels a stride apart have the same part of the window."""
    step_h, step_w = shape.stride
    rows, columns = (enumerate(reads(shape, axis)) for axis in (0, 1))
    for (a, row), (b, column) in product(rows, columns):
        sizes = {"high": row.pixels, "wide": column.pixels}
        sizes |= {"rows": row.reach, "columns": column.reach}
        first = {"first_h": frame.top + row.first, "first_w": frame.left + column.first}
        taps = {"tap": row.tap * shape.wide + column.tap}
        taps |= {"down": -step_h * shape.wide, "across": -step_w}
        steps = {"step_h": 1, "step_w": 1, "out_h": step_h, "out_w": step_w, "a": a, "b": b}
        yield sizes | first | taps | steps


def _weights(g: Tensor, frame: Frame, a: Tensor, shape: Shape) -> Tensor:
    """Sum products of parts over stretches of pixels, and these."""
    tiles, outs, channels = weights_tiles(shape), g.shape[-1], a.shape[-1]
    each = (tiles["WIDE"] + tiles["DEPTH"]) * tiles["PIXELS"] * len(g)
    tiles["num_stages"] = _stages(each, g.device)
    taps, (height, width) = shape.high * shape.wide, shape.places
    areas = triton.cdiv(outs, tiles["WIDE"]) * triton.cdiv(taps * channels, tiles["DEPTH"])
    blocks = triton.cdiv(shape.pixels, tiles["PIXELS"])
    each = min(blocks, max(4, blocks * shape.groups * areas // PROGRAMS))
    stretches = triton.cdiv(blocks, each)
    length = triton.cdiv(blocks, stretches) * tiles["PIXELS"]
    sums = torch.empty(
        (shape.groups, stretches, outs, taps, channels), dtype=torch.float32, device=g.device
    )
    split_kernels.correlate[shape.groups * stretches, areas](
        g, a, sums, stretches, length, shape.samples, frame.top * frame.across + frame.left,
        g.stride(0), a.stride(0), HIGH=a.shape[2], ACROSS=a.shape[3], GRAD_HIGH=frame.high,
        GRAD_ACROSS=frame.across, HO=height, WO=width, OUT_PADDED=outs, PADDED=channels,
        KH=shape.high, KW=shape.wide, SH=shape.stride[0], SW=shape.stride[1], PARTS=len(g), **tiles,
        RUN=_depth(channels, tiles["DEPTH"]),
    )  # fmt: skip
    out = sums.new_empty((shape.groups, shape.outs * shape.numbers))
    split_kernels.collect[shape.groups * shape.outs, triton.cdiv(shape.channels, 64)](
        sums, out, stretches, OUT=shape.outs, C=shape.channels, OUT_PADDED=outs, PADDED=channels,
        TAPS=taps, WIDE=64, ALL_TAPS=triton.next_power_of_2(taps),
    )  # fmt: skip
    return out


def _gather(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, every: Iterable[dict[str, int]]
) -> None:
    """Convolve parts, (count, G * S, high, across, C), with those of (G, taps, O, C)."""
    (groups, samples, outs), (height, width) = out.shape[:3], out.shape[3:]
    tiles = gather_tiles(len(x), x.shape[-1], outs)
    each = (tiles["PIXELS"] + tiles["WIDE"]) * tiles["DEPTH"] * len(x)
    tiles["num_stages"] = _stages(each, x.device)
    for which in every:
        strips = triton.cdiv(samples * which["high"] * which["wide"], tiles["PIXELS"])
        split_kernels.gather[groups * strips, triton.cdiv(outs, tiles["WIDE"])](
            x, weight, weight if bias is None else bias.contiguous(), out, strips, samples,
            x.stride(0), *weight.stride(), C=x.shape[-1], HIGH=x.shape[2], ACROSS=x.shape[3],
            OUT=outs, PADDED=weight.shape[3], HO=height, WO=width, **which,
            SHIFTED=bias is not None, PARTS=len(x), **tiles,
        )  # fmt: skip


def _split(x: Tensor, count: int, frame: Frame) -> Tensor:
    """Return the parts of (G, S, C, H, W) as (count, G * S, high, across, C padded)."""
    channels, (height, width), inner = x.shape[2], x.shape[3:], x.movedim(2, -1)
    padded, images = _padded(channels), len(x) * x.shape[1]
    whole = padded == channels and frame == (0, 0, height, width)
    if count == 1 and whole and inner.is_contiguous():
        return inner.reshape(1, images, height, width, channels)
    if not x.is_contiguous():
        inner = inner.contiguous()
    strides = (channels, 1) if inner.is_contiguous() else (1, height * width)
    out = x.new_empty((count, images, frame.high, frame.across, padded), dtype=torch.bfloat16)
    wide = min(64, triton.next_power_of_2(padded))
    rows, block = images * frame.pixels, 2048 // wide
    split_kernels.split[triton.cdiv(rows, block), triton.cdiv(padded, wide)](
        inner, out, out.stride(0), rows, frame.top, frame.left, channels * height * width, *strides,
        H=height, W=width, HIGH=frame.high, ACROSS=frame.across, C=channels, PADDED=padded,
        PARTS=count, ROWS=block, WIDE=wide,
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
    split_kernels.split_weights[groups * sizes[0], triton.cdiv(sizes[1], wide)](
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
    pixels = max(64 if count == 3 and wide > 64 else 128, 4096 // wide)
    tiles = {"PIXELS": pixels, "WIDE": wide, "DEPTH": depth}
    many = wide > 64 if count == 2 else wide == 64 and count == 3
    return tiles | {"num_warps": 8 if many else 4}


def weights_tiles(shape: Shape) -> dict[str, Any]:
    """Return how many outputs and numbers of a patch a program takes, and pixels at a time."""
    large = shape.groups * shape.pixels > LARGE
    exact = (64, 128 if large and shape.outs >= MANY else 64, 32)
    most = {"half": (128, 128, 64), "tf32": (64, 128, 32)}.get(shape.precision, exact)
    numbers = shape.high * shape.wide * _padded(shape.channels)
    wide, depth = _tile(shape.outs, most[0]), _tile(numbers, most[1])
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
