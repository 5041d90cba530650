"""Convolutions of many small networks at once, on a GPU: which kernel, in tiles of which size.

Sums have a fixed order, so that runs can be repeated to the bit. Products run on tensor cores:
exact ones as three products of halves, which are as good as single precision and twice as fast.
Tiles were measured on one H200: docs/design/0004-deep-learning.md.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from digrad.problems.convolution_kernels import convolve, correlate, fold, spread

Pair = list[int]

PROGRAMS = 2048  # that keep a large GPU busy
MOST = 2**31  # numbers of a group that 32 bits count
MANY = 100_000  # pixels, above which larger tiles are faster


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w), and add (G, O)."""
    shape = Shape.of(x, weight, stride, padding, dilation)
    out = x.new_empty((*x.shape[:2], shape.outs, *shape.places))
    _convolve(x.contiguous(), weight.contiguous(), bias, out, shape)
    return out


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, shape: "Shape") -> None:
    tiles = forward_tiles(shape)
    shift = weight if bias is None else bias.contiguous()  # which is not read if there is none
    strips = triton.cdiv(shape.pixels, tiles["PIXELS"])
    window = shape.high * shape.wide
    inner = (window, shape.outs * window) if shape.flipped else (shape.channels * window, window)
    convolve[shape.groups * strips, triton.cdiv(shape.outs, tiles["WIDE"])](
        x, weight, shift, out, strips, weight[0].numel(), *inner, **shape.constants, **tiles,
        SHIFTED=bias is not None, FLIPPED=shape.flipped, TAPS=shape.channels >= 16,
    )  # fmt: skip


def inputs(
    grad: Tensor, weight: Tensor, x: Tensor, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient with respect to x, of which only the shape is looked at.

    With stride 1 and a small window it is a convolution with the weights turned round. Otherwise
    first that of every patch, then their sums.
    """
    shape, out = Shape.of(x, weight, stride, padding, dilation), x.new_empty(x.shape)
    grad, weight = grad.contiguous(), weight.contiguous()
    if shape.high * shape.wide <= 9 and shape.stride == (1, 1):
        _convolve(grad, weight, None, out, shape.turned())
        return out
    patches = x.new_empty((shape.groups * shape.samples, shape.numbers, *shape.places))
    tiles = {"WIDE": _block(shape.numbers), "PIXELS": 64, "DEPTH": min(32, _block(shape.outs))}
    strips = triton.cdiv(shape.pixels, tiles["PIXELS"])
    spread[shape.groups * strips, triton.cdiv(shape.numbers, tiles["WIDE"])](
        grad, weight, patches, strips, **shape.constants, **tiles, num_warps=2, num_stages=1
    )
    planes, pixels = len(patches) * shape.channels, x[0, 0, 0].numel()
    block = min(1024, triton.next_power_of_2(pixels))
    fold[planes, triton.cdiv(pixels, block)](patches, out, **shape.constants, PIXELS=block)
    return out


def weights(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    *,
    biased: bool = False,
) -> Tensor:
    """Return the gradients with respect to weight, of which only the shape is looked at, and bias.

    They lie one after the other, (G, O * C * h * w + O). Both are sums over pixels: each program
    adds up a stretch of them, and what they find is summed.
    """
    shape = Shape.of(x, weight, stride, padding, dilation)
    tiles = weights_tiles(shape)
    windows, of = (shape.high * shape.wide, shape.channels) if tiles["TAPS"] else (1, shape.numbers)
    areas = triton.cdiv(shape.outs, tiles["WIDE"]) * windows * triton.cdiv(of, tiles["DEPTH"])
    blocks = triton.cdiv(shape.pixels, tiles["PIXELS"])
    wanted = max(2, blocks * shape.groups * areas // PROGRAMS)  # blocks of a program
    stretches = triton.cdiv(blocks, min(wanted, blocks))
    length = triton.cdiv(blocks, stretches) * tiles["PIXELS"]
    found = shape.outs * (shape.numbers + biased)
    parts = x.new_empty((shape.groups, stretches, found), dtype=torch.float32)
    correlate[shape.groups * stretches, areas](
        grad.contiguous(), x.contiguous(), parts, stretches, length, found,
        **shape.constants, **tiles, BIASED=biased,
    )  # fmt: skip
    return (parts.sum(1) if stretches > 1 else parts.squeeze(1)).to(weight.dtype)


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution, up and down first."""

    groups: int
    samples: int
    channels: int
    outs: int
    size: tuple[int, int]  # of an image
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    precision: str
    flipped: bool = False

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> "Shape":
        """Read them off tensors."""
        groups, samples, channels, *size = x.shape
        exact = torch.get_float32_matmul_precision() == "highest" and x.dtype == torch.float32
        half = "half" if x.dtype == torch.bfloat16 else "tf32"
        pairs = (size, weight.shape[3:], stride, padding, dilation)
        image, window, step, room, gap = ((int(up), int(across)) for up, across in pairs)
        precision = _exact(x.device) if exact else half
        sizes = groups, samples, channels, weight.shape[1]
        return cls(*sizes, image, window, step, room, gap, precision)

    @property
    def high(self) -> int:
        return self.window[0]

    @property
    def wide(self) -> int:
        return self.window[1]

    @property
    def places(self) -> tuple[int, int]:
        """How many places a patch has, up and down and from side to side."""
        height, width = (
            (length + 2 * room - gap * (k - 1) - 1) // step + 1
            for length, k, step, room, gap in zip(
                self.size, self.window, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return height, width

    @property
    def pixels(self) -> int:
        """How many pixels of all outputs a group has."""
        return self.samples * self.places[0] * self.places[1]

    @property
    def numbers(self) -> int:
        """How many numbers a patch has."""
        return self.channels * self.high * self.wide

    @property
    def constants(self) -> dict[str, Any]:
        """What all kernels are told."""
        (height, width), (high, wide) = self.places, self.size
        pairs = {"S": self.stride, "P": self.padding, "D": self.dilation, "K": self.window}
        window = {
            name + axis: pair[k] for name, pair in pairs.items() for k, axis in ((0, "H"), (1, "W"))
        }
        images = {"S": self.samples, "C": self.channels, "H": high, "W": wide}
        outputs = {"OUT": self.outs, "HO": height, "WO": width}
        each = max(self.channels * high * wide, max(self.numbers, self.outs) * height * width)
        large = self.samples * each >= MOST
        run = 4 if height * width % 4 == 0 else 1
        precision = "tf32" if self.precision == "half" else self.precision
        return window | images | outputs | {"RUN": run, "LARGE": large, "PRECISION": precision}

    def turned(self) -> "Shape":
        """Return the convolution that takes gradients of outputs to those of inputs, stride 1."""
        edges = zip(self.window, self.padding, self.dilation, strict=True)
        up, left = (gap * (k - 1) - room for k, room, gap in edges)
        return replace(
            self, channels=self.outs, outs=self.channels, size=self.places, padding=(up, left),
            flipped=True,
        )  # fmt: skip


def _block(rows: int, most: int = 64) -> int:
    """Return how many rows a product has: a power of two, as the hardware wants it."""
    return int(min(most, max(16, triton.next_power_of_2(rows))))


def forward_tiles(shape: Shape) -> dict[str, int]:
    """Return how many outputs and pixels a program takes, and how many numbers at a time."""
    few, exact = shape.channels < 16, shape.precision not in ("tf32", "half")
    many = shape.groups * shape.pixels > MANY
    if shape.outs <= 16:
        tiles = (16, 64, 32, 2, 1) if few else (16, 256, 16, 4, 2)
    elif shape.outs <= 32:
        tiles = (
            (32, 256, 16, 4, 2) if not few else (32, 128, 32, 4, 2) if many else (32, 64, 32, 4, 1)
        )
    elif exact:
        tiles = (64, 64, 32, 4, 1) if shape.outs <= 64 else (128, 128, 32, 8, 1)
    elif shape.precision == "half" and shape.outs > 64:
        tiles = (128, 128, 64, 8, 3)
    else:
        tiles = (64, 128, 32, 4, 2)
    return dict(zip(("WIDE", "PIXELS", "DEPTH", "num_warps", "num_stages"), tiles, strict=True))


def weights_tiles(shape: Shape) -> dict[str, int]:
    """Return how many outputs and numbers of a patch a program takes, and pixels at a time."""
    if shape.outs > 64 and shape.channels >= 64:
        tiles = (128, 64, 32, 4, True)
    elif shape.numbers <= 32:
        tiles = (_block(shape.outs), 32, 64, 2, False)
    else:
        wide = shape.channels < 16 and shape.groups * shape.pixels > MANY
        tiles = (_block(shape.outs), 128 if wide else 64, 32, 4, False)
    found = dict(zip(("WIDE", "DEPTH", "PIXELS", "num_warps", "TAPS"), tiles, strict=True))
    return found | {"num_stages": 1}


@cache
def _exact(device: torch.device) -> str:
    """Return how exact products are computed: halves need tensor cores that know TF32."""
    if torch.version.hip is not None or device.type != "cuda":  # which is Triton's interpreter
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(device) >= (8, 0) else "ieee"
