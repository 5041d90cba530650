"""Convolutions of many small networks at once, on a GPU: which kernel, in tiles of which size.

Sums have a fixed order, so that runs can be repeated to the bit. Products run on tensor cores:
exact ones as three products of halves, which are as good as single precision and twice as fast.
Tiles were measured on one H200: docs/design/0004-deep-learning.md.
"""

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from digrad.kernels import split_convolution
from digrad.kernels.convolution_kernels import convolve, correlate, fold, spread
from digrad.kernels.shapes import Pair, Shape

PROGRAMS = 2048  # that keep a large GPU busy
MANY = 100_000  # pixels, above which larger tiles are faster


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Convolve (G, S, C, H, W) with (G, O, C, h, w), and add (G, O)."""
    shape = Shape.of(x, weight, stride, padding, dilation)
    if split_convolution.suit(shape):
        return split_convolution.forward(x, weight, bias, shape)
    out = x.new_empty((*x.shape[:2], shape.outs, *shape.places))
    _convolve(x.contiguous(), weight.contiguous(), bias, out, shape)
    return out


def outputs(
    x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Tensor, Tensor]:
    """Return tensors that lie as outputs and gradients of images do; their numbers mean nothing."""
    shape = Shape.of(x, weight, stride, padding, dilation)
    if split_convolution.suit(shape):
        return split_convolution.empty(x, shape.outs, shape.places), split_convolution.empty(
            x, shape.channels, shape.size
        )
    return x.new_empty((*x.shape[:2], shape.outs, *shape.places)), x.new_empty(x.shape)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, shape: Shape) -> None:
    tiles = forward_tiles(shape)
    shift = weight if bias is None else bias.contiguous()  # which is not read if there is none
    strips = triton.cdiv(shape.pixels, tiles["PIXELS"])
    window = shape.high * shape.wide
    inner = (window, shape.outs * window) if shape.flipped else (shape.channels * window, window)
    convolve[shape.groups * strips, triton.cdiv(shape.outs, tiles["WIDE"])](
        x, weight, shift, out, strips, 0, weight[0].numel(), *inner, **shape.constants, **tiles,
        SHIFTED=bias is not None, FLIPPED=shape.flipped, TAPS=shape.channels >= 16,
    )  # fmt: skip


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, *window: Pair, to_x: bool, to_bias: bool
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients with respect to x, if wanted, and to weight and bias.

    These two lie one after the other, (G, O * C * h * w + O).
    """
    shape = Shape.of(x, weight, *window)
    if not split_convolution.suit(shape):
        dx = inputs(grad, weight, x, *window) if to_x else None
        return dx, weights(grad, x, weight, *window, biased=to_bias)
    dx, both = split_convolution.backward(grad, x, weight, shape, to_x=to_x)
    if to_bias:
        both = torch.cat([both, grad.sum((1, 3, 4), dtype=torch.float32)], dim=1)
    return dx, both.to(weight.dtype)


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
        grad, weight, patches, strips, 0, **shape.constants, **tiles, num_warps=2, num_stages=1
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
    sums = x.new_empty((shape.groups, stretches, found), dtype=torch.float32)
    correlate[shape.groups * stretches, areas](
        grad.contiguous(), x.contiguous(), sums, stretches, length, found, 0,
        **shape.constants, **tiles, BIASED=biased,
    )  # fmt: skip
    return (sums.sum(1) if stretches > 1 else sums.squeeze(1)).to(weight.dtype)


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
