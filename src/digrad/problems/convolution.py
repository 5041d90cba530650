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

from digrad.problems.gpu import kernels_for

Pair = Sequence[int]


@torch.library.custom_op("digrad::convolve", mutates_args=())
def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, dilation: Pair
) -> Tensor:
    """Convolve every group's images with its weights, and add its bias (G, O)."""
    if (kernels := kernels_for(x)) is not None:
        out: Tensor = kernels.forward(x, weight, bias, stride, dilation)
        return out
    rows, shift = weight.flatten(0, 1), None if bias is None else bias.flatten()
    return apart(functional.conv2d(merged(x), rows, shift, stride, 0, dilation, len(x)), len(x))


@torch.library.custom_op("digrad::convolve_inputs", mutates_args=())
def convolve_inputs(
    grad: Tensor, weight: Tensor, x: Tensor, stride: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient with respect to the images."""
    if (kernels := kernels_for(x)) is not None:
        dx: Tensor = kernels.inputs(grad, weight, x, stride, dilation)
        return dx
    return apart(_backward_of(grad, x, weight, stride, dilation, (True, False))[0], len(x))


@torch.library.custom_op("digrad::convolve_weights", mutates_args=())
def convolve_weights(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient with respect to the weights."""
    if (kernels := kernels_for(x)) is not None:
        dw: Tensor = kernels.weights(grad, x, weight, stride, dilation)
        return dw
    dw = _backward_of(grad, x, weight, stride, dilation, (False, True))[1]
    return dw.contiguous().view(weight.shape)


@convolve.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, dilation: Pair) -> Tensor:
    places = _places(x, weight, stride, dilation)
    return _like(x, (*x.shape[:2], weight.shape[1], *places))


@convolve_inputs.register_fake
def _(grad: Tensor, weight: Tensor, x: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    return _like(x, x.shape)


@convolve_weights.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    return weight.new_empty(weight.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.stride, ctx.dilation = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    to_x, to_weight, to_bias, *_ = ctx.needs_input_grad
    window = ctx.stride, ctx.dilation
    dx = convolve_inputs(grad, weight, x, *window) if to_x else None
    dw = convolve_weights(grad, x, weight, *window) if to_weight else None
    return dx, dw, grad.sum((1, 3, 4)) if to_bias else None, None, None


convolve.register_autograd(_backward, setup_context=_remember)


def _many(operator: Any) -> Any:
    """Return what an operator does for many rows at once: they are groups like any others."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Tensor, int]:
        def flat(arg: Any, dim: int | None) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            rows = arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            return rows.flatten(0, 1)

        out = operator(*map(flat, args, in_dims))
        return out.unflatten(0, (info.batch_size, -1)), 0

    return rule


for _operator in (convolve, convolve_inputs, convolve_weights):
    _operator.register_vmap(_many(_operator))


def _places(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[int, int]:
    """Return how many places a patch has, up and down and from side to side."""
    height, width = (
        (length - gap * (k - 1) - 1) // step + 1
        for length, k, step, gap in zip(
            x.shape[-2:], weight.shape[-2:], stride, dilation, strict=True
        )
    )
    return height, width


def merged(x: Tensor) -> Tensor:
    """Return (G, S, C, H, W) as (S, G * C, H, W), these channels innermost in memory."""
    flat = x.transpose(0, 1).flatten(1, 2)
    return flat.contiguous(memory_format=torch.channels_last)


def apart(x: Tensor, groups: int) -> Tensor:
    """Return (S, G * C, H, W) as (G, S, C, H, W); it goes on lying as it does."""
    inner = x.contiguous(memory_format=torch.channels_last)
    return torch.unflatten(inner, 1, (groups, -1)).transpose(0, 1)


def _like(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor of that shape that lies as an operator would leave it."""
    groups, samples, channels, height, width = shape
    if kernels_for(x) is not None:
        return x.new_empty(shape)
    return x.new_empty((samples, height, width, groups, channels)).permute(3, 0, 4, 1, 2)


def _backward_of(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Pair,
    dilation: Pair,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor]:
    rows, none = weight.flatten(0, 1), [0, 0]
    dx, dw, _ = torch.ops.aten.convolution_backward(
        *(merged(grad), merged(x), rows, None, stride, none, dilation, False, none, len(x)),
        (*wanted, False),
    )
    return dx, dw
