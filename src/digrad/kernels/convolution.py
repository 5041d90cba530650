"""Convolution of groups, a group a node: images (G, S, C, H, W), weights (G, O, C, h, w).

Libraries run such grouped convolutions badly, with one exception that this module makes use of:
on a CPU they are fast where the channels of all groups lie innermost in memory. On a GPU they
are kernels of our own. The operators know their gradients and what to do for many rows at once,
so that they work within ``vmap``, autograd and compiled code alike.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from digrad.kernels.operators import kernels_for, operator
from digrad.kernels.shapes import Shape

Pair = Sequence[int]


def _outputs(x: Tensor, weight: Tensor, *window: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors laid out as outputs and gradients of images are."""
    if (kernels := kernels_for(x, "convolution_tiles")) is not None:
        found: tuple[Tensor, Tensor] = kernels.outputs(x, weight, *window)
        return found
    groups, samples, channels, *size = x.shape
    shapes = (weight.shape[1], *Shape.of(x, weight, *window).places), (channels, *size)
    out, dx = (
        x.new_empty((samples, height, width, groups, inner)).permute(3, 0, 4, 1, 2)
        for inner, height, width in shapes
    )
    return out, dx


def _shape(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    return _outputs(x, weight, stride, padding, dilation)[0]


def _backward_shapes(
    grad: Tensor, x: Tensor, weight: Tensor, *window: Pair | bool
) -> tuple[Tensor, Tensor]:
    *sizes, to_x, to_bias = window
    groups, outs = weight.shape[:2]
    numbers = weight[0].numel() + outs * bool(to_bias)
    dx = _outputs(x, weight, *sizes)[1] if to_x else x.new_empty(0)
    return dx, weight.new_empty((groups, numbers))


@operator(_shape)
def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Convolve every group's images with its weights, and add its bias (G, O)."""
    if (kernels := kernels_for(x, "convolution_tiles")) is not None:
        out: Tensor = kernels.forward(x, weight, bias, stride, padding, dilation)
        return out
    rows, shift = weight.flatten(0, 1), None if bias is None else bias.flatten()
    out = functional.conv2d(merged(x), rows, shift, stride, padding, dilation, len(x))
    return apart(out, len(x))


@operator(_backward_shapes)
def convolve_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    to_x: bool,
    to_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to images, empty if not wanted, and to weights and bias.

    These two lie one after the other, (G, O * C * h * w) or (G, O * C * h * w + O).
    """
    window, none = (stride, padding, dilation), x.new_empty(0)
    if (kernels := kernels_for(x, "convolution_tiles")) is not None:
        dx, both = kernels.backward(grad, x, weight, *window, to_x=to_x, to_bias=to_bias)
        return none if dx is None else dx, both
    groups, outs = weight.shape[:2]
    dx, dw, db = torch.ops.aten.convolution_backward(
        *(merged(grad), merged(x), weight.flatten(0, 1), [groups * outs], *window),
        *(False, [0, 0], groups, (to_x, True, to_bias)),
    )
    dx, dw = apart(dx, groups) if to_x else none, dw.contiguous().view(groups, -1)
    return dx, torch.cat([dw, db.view(groups, outs)], dim=1) if to_bias else dw


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, *ctx.window = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    to_x, _, to_bias, *_ = ctx.needs_input_grad
    dx, both = convolve_backward(grad, x, weight, *ctx.window, to_x, to_bias)
    own = weight[0].numel()
    dw, db = both[:, :own].view(weight.shape), both[:, own:] if to_bias else None
    return dx if to_x else None, dw, db, None, None, None


torch.library.register_autograd("digrad::convolve", _backward, setup_context=_remember)


def merged(x: Tensor) -> Tensor:
    """Return (G, S, C, H, W) as (S, G * C, H, W), these channels innermost in memory."""
    flat = x.transpose(0, 1).flatten(1, 2)
    return flat.contiguous(memory_format=torch.channels_last)


def apart(x: Tensor, groups: int) -> Tensor:
    """Return (S, G * C, H, W) as (G, S, C, H, W); it goes on lying as it does."""
    inner = x.contiguous(memory_format=torch.channels_last)
    return torch.unflatten(inner, 1, (groups, -1)).transpose(0, 1)
