"""Layers that stay fast when every node has weights of its own.

One call for all nodes turns a convolution into a grouped one, which libraries run badly. Here
a convolution is an operator of our own, max-pooling a few comparisons of slices, and dropout
reads its masks from a buffer, so that they are a function of (seed, node, step).
docs/design/0004-deep-learning.md has the measurements.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from digrad.kernels.convolution import apart, convolve, merged
from digrad.kernels.embedding import look_up
from digrad.kernels.operators import kernels_for, rows_as_groups

# Dropouts of whole channels, with the axes of a batch.
CHANNELS: dict[type, int] = {nn.Dropout1d: 3, nn.Dropout2d: 4, nn.Dropout3d: 5}

Pair = tuple[int, int]


class Conv2d(nn.Conv2d):
    """Convolution by ``digrad.kernels.convolution``."""

    packed = False  # whether results lie in memory as usual: some layers ask, and vmap cannot tell

    @staticmethod
    def fits(layer: nn.Conv2d) -> bool:
        """Whether a layer can be computed so."""
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return type(layer) is nn.Conv2d and plain and not isinstance(layer.padding, str)

    def forward(self, x: Tensor) -> Tensor:
        """Return what nn.Conv2d does, but for rounding."""
        x, weight, shift = _cast(x, self.weight, self.bias)
        bias = None if shift is None else shift.unsqueeze(0)
        window = _pair(self.stride), _pair(self.padding), _pair(self.dilation)
        out: Tensor = convolve(x.unsqueeze(0), weight.unsqueeze(0), bias, *window)
        return out.squeeze(0).contiguous() if self.packed else out.squeeze(0)


class Embedding(nn.Embedding):
    """Rows of a table, by ``digrad.kernels.embedding``."""

    @staticmethod
    def fits(layer: nn.Embedding) -> bool:
        """Whether a layer can be computed so."""
        plain = layer.padding_idx is None and layer.max_norm is None
        simple = not layer.sparse and not layer.scale_grad_by_freq
        return type(layer) is nn.Embedding and plain and simple

    def forward(self, x: Tensor) -> Tensor:
        """Return what nn.Embedding does."""
        found: Tensor = look_up(self.weight.unsqueeze(0), x.unsqueeze(0))
        return found.squeeze(0)


class MaxPool2d(nn.MaxPool2d):
    """Max-pooling over windows that do not overlap."""

    packed = False

    @staticmethod
    def fits(layer: nn.MaxPool2d) -> bool:
        """Whether a layer can be computed so."""
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)
        size, simple = _pair(layer.kernel_size), not layer.return_indices and not layer.ceil_mode
        whole = plain and simple and _pair(layer.stride) == size and size[0] * size[1] <= 9
        return type(layer) is nn.MaxPool2d and whole

    def forward(self, x: Tensor) -> Tensor:
        """Return what nn.MaxPool2d does; ties give their gradient to the first pixel too."""
        if x.dim() < 4 or not (self.training or kernels_for(x, "layer_kernels")):
            return super().forward(x)  # type: ignore[no-any-return]
        size = _pair(self.kernel_size)
        if torch.compiler.is_compiling():
            return _compare_pixels(x, size)
        most: Tensor = _MaxPool.apply(x.unsqueeze(0), size)[0]  # type: ignore[no-untyped-call]
        return most.squeeze(0).contiguous() if self.packed else most.squeeze(0)


class GroupNorm(nn.GroupNorm):
    """Group norm that stays one pass over its numbers when every node has a scale of its own."""

    @staticmethod
    def fits(layer: nn.GroupNorm) -> bool:
        """Whether a layer can be computed so."""
        return type(layer) is nn.GroupNorm and layer.affine

    def forward(self, x: Tensor) -> Tensor:
        """Return what nn.GroupNorm does, but for rounding; in the type of x."""
        kernels = None if torch.compiler.is_compiling() else kernels_for(x, "layer_kernels")
        if kernels is None or not kernels.fits(x, self.num_groups):
            return super().forward(x)
        given = (t.unsqueeze(0) for t in (x, self.weight, self.bias))
        normed: Tensor = _GroupNorm.apply(*given, self.num_groups, self.eps)[0]  # type: ignore[no-untyped-call]
        return normed.squeeze(0)


class Dropout(nn.Module):
    """Dropout by random words that are handed in: one for each number, or for each channel."""

    LIMIT: ClassVar[int] = 2**32
    words: Tensor

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.p = float(layer.p)  # type: ignore[arg-type]
        self.channels = CHANNELS.get(type(layer), 0)
        self.register_buffer("words", torch.zeros(0, dtype=torch.int64), persistent=False)

    @staticmethod
    def fits(layer: nn.Module) -> bool:
        """Whether a layer is a dropout that can be computed so."""
        return type(layer) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)

    def shape(self, x: Tensor) -> tuple[int, ...]:
        """Return the shape of the mask for an input."""
        if not self.channels:
            return tuple(x.shape)
        # The library takes fewer axes for one sample without its own, but never in two dimensions.
        batched = x.dim() == self.channels or self.channels == CHANNELS[nn.Dropout2d]
        kept = 2 if batched else 1
        return (*x.shape[:kept], *(1,) * (x.dim() - kept))

    def forward(self, x: Tensor) -> Tensor:
        """Return x with a share p of its numbers or channels 0, the others divided by 1 - p."""
        if not self.training or self.p == 0:
            return x
        if not self.words.numel():  # a trial run, which only asks how many words are wanted
            return x
        kept = self.words.view(self.shape(x)) >= round(self.p * self.LIMIT)
        return x * (kept.to(x.dtype) / (1 - self.p) if self.p < 1 else kept.to(x.dtype))


class _MaxPool(torch.autograd.Function):
    """Max-pooling of (groups, samples, C, H, W) that remembers which pixel of a window won."""

    @staticmethod
    def forward(x: Tensor, size: Pair) -> tuple[Tensor, Tensor]:
        if (kernels := kernels_for(x, "layer_kernels")) is not None:
            most, winner = kernels.pool(x, *size)
            return most, winner
        most, winner = functional.max_pool2d_with_indices(merged(x), size)
        return apart(most, len(x)), apart(winner, len(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.size = inputs
        ctx.shape, (_, winner) = x.shape, output
        ctx.save_for_backward(winner)
        ctx.mark_non_differentiable(winner)
        ctx.set_materialize_grads(False)  # or zeros are made for the winner

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        (winner,) = ctx.saved_tensors
        if (kernels := kernels_for(grad, "layer_kernels")) is not None:
            return kernels.unpool(grad, winner, *ctx.size, ctx.shape), None
        groups, samples, channels, *pixels = ctx.shape
        shape = grad.new_empty((samples, *pixels, groups * channels)).permute(0, 3, 1, 2)
        dx = torch.ops.aten.max_pool2d_with_indices_backward(
            merged(grad), shape, ctx.size, ctx.size, (0, 0), (1, 1), False, merged(winner)
        )
        return apart(dx, groups), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return rows_as_groups(_MaxPool.apply)(info, in_dims, *args)


class _GroupNorm(torch.autograd.Function):
    """Group norm of (groups, samples, C, ...) by scales and shifts (groups, C)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, parts: int, eps: float) -> Any:
        kernels = kernels_for(x, "layer_kernels")
        assert kernels is not None
        return kernels.norm(x, weight, bias, parts, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, _, ctx.parts, _ = inputs
        ctx.save_for_backward(x, weight, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        x, weight, kept = ctx.saved_tensors
        kernels = kernels_for(x, "layer_kernels")
        assert kernels is not None
        return *kernels.norm_backward(grad, x, weight, kept, ctx.parts), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return rows_as_groups(_GroupNorm.apply)(info, in_dims, *args)


def _compare_pixels(x: Tensor, size: Pair) -> Tensor:
    """Compare the pixels of windows in turn: this is what the compiler fuses with the rest."""
    (high, wide), (height, width) = size, (x.shape[-2] // size[0], x.shape[-1] // size[1])
    most, *others = (
        x[..., i : height * high : high, j : width * wide : wide]
        for i in range(high)
        for j in range(wide)
    )
    for pixel in others:
        # A number that is none must not vanish: a run that diverges has to show it.
        most = torch.where((pixel > most) | pixel.isnan(), pixel, most)
    return most


def _cast(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Bring all to one type, as autocast does for the library's own layers."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
