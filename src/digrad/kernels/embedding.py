"""Rows of tables picked by number, a table a node: (G, V, D) and (G, ...) to (G, ..., D).

On a GPU neither the library nor compiled code adds up gradients of a row that is picked often in
a fixed order, so that no run could be repeated to the bit: there is a kernel for that.
"""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from digrad.kernels.operators import kernels_for, operator

ROUNDING = 0.01  # relative difference that two orders of summing may come to, with room to spare


def _shape(tables: Tensor, numbers: Tensor) -> Tensor:
    return tables.new_empty((*numbers.shape, tables.shape[2]))


def _backward_shape(grad: Tensor, numbers: Tensor, rows: int) -> Tensor:
    return grad.new_empty((len(grad), rows, grad.shape[-1]))


@operator(_shape)
def look_up(tables: Tensor, numbers: Tensor) -> Tensor:
    """Return the rows of every group's table that its numbers pick."""
    return functional.embedding(_in_one(numbers, tables.shape[1]), tables.flatten(0, 1))


@operator(_backward_shape)
def look_up_backward(grad: Tensor, numbers: Tensor, rows: int) -> Tensor:
    """Return the gradients with respect to tables of so many rows."""
    if (kernels := kernels_for(grad, "layer_kernels", double=True)) is not None:
        made: Tensor = kernels.table_gradient(grad.flatten(1, -2), numbers.flatten(1), rows)
        if _right(made, grad, numbers, rows):
            return made
    return _by_library(grad, numbers, rows)


def _by_library(grad: Tensor, numbers: Tensor, rows: int) -> Tensor:
    places, every = _in_one(numbers, rows), len(grad) * rows
    found: Tensor = torch.ops.aten.embedding_dense_backward(grad, places, every, -1, False)
    return found.view(len(grad), rows, grad.shape[-1])


_TRIED: dict[tuple[torch.dtype, int, int], bool] = {}


def _right(made: Tensor, grad: Tensor, numbers: Tensor, rows: int) -> bool:
    """Whether the kernel comes to what the library does: tried once for each kind of table.

    Compilers of kernels have been seen to err.
    """
    kind = grad.dtype, grad.shape[-1], rows
    recorded = grad.is_cuda and torch.cuda.is_current_stream_capturing()
    if kind not in _TRIED and not recorded:
        wanted = _by_library(grad, numbers, rows)
        if not wanted.isfinite().all():
            return True  # and there is nothing to compare
        _TRIED[kind] = bool((made - wanted).norm() <= ROUNDING * wanted.norm())
        if not _TRIED[kind]:
            warnings.warn(
                "on this GPU gradients of tables are not what the library's are, so the library's "
                "are taken, which cannot be repeated to the bit: report it with the versions of "
                "PyTorch and Triton",
                stacklevel=2,
            )
    return _TRIED.get(kind, True)


def _in_one(numbers: Tensor, rows: int) -> Tensor:
    """Return the numbers that rows have in one table of all groups."""
    first = torch.arange(0, len(numbers) * rows, rows, device=numbers.device)
    return numbers + first.view(-1, *[1] * (numbers.dim() - 1))


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    tables, numbers = inputs
    ctx.rows = tables.shape[1]
    ctx.save_for_backward(numbers)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (numbers,) = ctx.saved_tensors
    return look_up_backward(grad, numbers, ctx.rows), None


torch.library.register_autograd("digrad::look_up", _backward, setup_context=_remember)
