"""Operators of our own, for autograd, ``vmap`` and compiled code, and the kernels behind them.

The first axis of their tensors is that of groups, a group a node.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def kernels_for(x: Tensor, module: str, *, double: bool = False) -> ModuleType | None:
    """Import a module of kernels for x: on a GPU, in single precision or bfloat16.

    Args:
        x: a tensor to compute with.
        module: of this room.
        double: whether its kernel knows double precision, too.
    """
    known = x.dtype in (torch.float32, torch.bfloat16) or (double and x.dtype == torch.float64)
    return _triton(module) if x.is_cuda and known else None


@cache
def _triton(module: str) -> ModuleType | None:
    try:
        return import_module(f"digrad.kernels.{module}")
    except ImportError:  # a build of PyTorch that comes without Triton
        return None


def operator(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make a function an operator of PyTorch, for many rows as well as for one.

    ``torch.library.custom_op`` imports the compiler at the first call, which takes a new machine
    six seconds.

    Args:
        fake: returns empty tensors of the shapes, types and strides of the results.
    """

    def define(rule: Callable[..., Any]) -> Any:
        name = f"digrad::{rule.__name__}"
        torch.library.define(name, torch.library.infer_schema(rule, mutates_args=()))
        torch.library.impl(name, ("cpu", "cuda"), rule)
        made = getattr(torch.ops.digrad, rule.__name__).default
        torch.library.register_fake(made, fake)
        torch.library.register_vmap(made, rows_as_groups(made))
        return made

    return define


def rows_as_groups(operator: Any) -> Any:
    """Return the rule of ``vmap`` for an operator: rows are groups like any others."""

    def rule(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        def flat(arg: Any, dim: int | None) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            rows = arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            return rows.flatten(0, 1)

        def rows(out: Tensor) -> Tensor:
            return torch.unflatten(out, 0, (info.batch_size, -1)) if out.dim() > 1 else out

        found = operator(*map(flat, args, in_dims))
        if isinstance(found, Tensor):
            return rows(found), 0
        return tuple(map(rows, found)), tuple(0 if out.dim() > 1 else None for out in found)

    return rule
