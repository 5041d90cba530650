"""Convolution of groups: images (G, S, C, H, W) with weights (G, O, C, h, w), a group a node.

Libraries run such grouped convolutions badly. Here they are products of weights and patches:
on a GPU in kernels that gather the patches as they go, elsewhere laid out as columns. The
operators know their gradients and what to do for many rows at once, so that they work within
``vmap``, autograd and compiled code alike.
"""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Pair = Sequence[int]


@torch.library.custom_op("digrad::convolve", mutates_args=())
def convolve(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    """Convolve every group's images with its weights."""
    if (kernels := _kernels(x)) is not None:
        out: Tensor = kernels.forward(x, weight, stride, dilation)
        return out
    out = torch.bmm(_spread(weight, x), _columns(x, weight, stride, dilation))
    return out.view(*x.shape[:2], weight.shape[1], *_places(x, weight, stride, dilation))


@torch.library.custom_op("digrad::convolve_inputs", mutates_args=())
def convolve_inputs(
    grad: Tensor, weight: Tensor, x: Tensor, stride: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient with respect to the images."""
    if (kernels := _kernels(x)) is not None:
        dx: Tensor = kernels.inputs(grad, weight, x, stride, dilation)
        return dx
    columns = torch.bmm(
        _spread(weight, x).mT, grad.reshape(len(x) * x.shape[1], len(weight[0]), -1)
    )
    shape, size = x.shape[-2:], weight.shape[-2:]
    dilation, stride = tuple(dilation), tuple(stride)
    return functional.fold(columns, shape, size, dilation, stride=stride).view(x.shape)


@torch.library.custom_op("digrad::convolve_weights", mutates_args=())
def convolve_weights(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient with respect to the weights."""
    if (kernels := _kernels(x)) is not None:
        dw: Tensor = kernels.weights(grad, x, weight, stride, dilation)
        return dw
    flat = grad.reshape(len(x) * x.shape[1], len(weight[0]), -1)
    each = torch.bmm(flat, _columns(x, weight, stride, dilation).mT)
    return each.view(*x.shape[:2], -1).sum(1).view(weight.shape)


@convolve.register_fake
def _(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    places = _places(x, weight, stride, dilation)
    return x.new_empty((*x.shape[:2], weight.shape[1], *places))


@convolve_inputs.register_fake
def _(grad: Tensor, weight: Tensor, x: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    return x.new_empty(x.shape)


@convolve_weights.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    return weight.new_empty(weight.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.stride, ctx.dilation = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    to_x, to_weight, *_ = ctx.needs_input_grad
    window = ctx.stride, ctx.dilation
    dx = convolve_inputs(grad, weight, x, *window) if to_x else None
    dw = convolve_weights(grad, x, weight, *window) if to_weight else None
    return dx, dw, None, None


convolve.register_autograd(_backward, setup_context=_remember)


def _many(operator: Any) -> Any:
    """Return what an operator does for many rows at once: they are groups like any others."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Tensor, int]:
        tensors = [
            arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            for arg, dim in zip(args, in_dims, strict=True)
            if isinstance(arg, Tensor)
        ]
        window = args[len(tensors) :]
        out = operator(*(t.flatten(0, 1) for t in tensors), *window)
        return out.unflatten(0, (info.batch_size, -1)), 0

    return rule


for _operator in (convolve, convolve_inputs, convolve_weights):
    _operator.register_vmap(_many(_operator))


@cache
def _triton() -> ModuleType | None:
    try:
        from digrad.problems import kernels
    except ImportError:  # a build of PyTorch that comes without
        return None
    return kernels


def _kernels(x: Tensor) -> ModuleType | None:
    return _triton() if x.is_cuda and x.dtype == torch.float32 else None


def _places(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> tuple[int, int]:
    """Return how many places a patch has, up and down and from side to side."""
    height, width = (
        (length - gap * (k - 1) - 1) // step + 1
        for length, k, step, gap in zip(
            x.shape[-2:], weight.shape[-2:], stride, dilation, strict=True
        )
    )
    return height, width


def _spread(weight: Tensor, x: Tensor) -> Tensor:
    """Repeat each group's weights for each of its samples: (G * S, O, numbers)."""
    rows = weight.flatten(2).unsqueeze(1)
    return rows.expand(-1, x.shape[1], -1, -1).reshape(-1, *rows.shape[2:])


def _columns(x: Tensor, weight: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    """Return patches as columns: (G * S, numbers, places), in one copy."""
    height, width = _places(x, weight, stride, dilation)
    flat = x.flatten(0, 1).contiguous()
    a, b, c, d = flat.stride()
    patches = flat.as_strided(
        (*flat.shape[:2], *weight.shape[-2:], height, width),
        (a, b, c * dilation[0], d * dilation[1], c * stride[0], d * stride[1]),
    )
    return patches.reshape(len(flat), -1, height * width)
