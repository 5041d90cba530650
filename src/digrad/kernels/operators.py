"""Operators of our own, which autograd, ``vmap`` and compiled code know like any others.

The first axis of their tensors is that of groups, a group a node.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def operator(rule: Callable[..., Any]) -> Any:
    """Make a function an operator of PyTorch's.

    ``torch.library.custom_op`` does the same and imports the compiler at the first call, which
    takes a new machine six seconds.
    """
    name = f"digrad::{rule.__name__}"
    torch.library.define(name, torch.library.infer_schema(rule, mutates_args=()))
    torch.library.impl(name, ("cpu", "cuda"), rule)
    return getattr(torch.ops.digrad, rule.__name__).default


def rows_as_groups(operator: Any) -> Any:
    """Return what an operator does for many rows at once: they are groups like any others."""

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
