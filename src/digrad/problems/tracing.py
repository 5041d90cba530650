"""Functions of tensors as the plain list of operations that they come down to."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]


def traced(function: Function) -> Function:
    """Return what does the same operations, without the Python that picks them.

    Parameters by name, vmap and autograd take longer than some of the operations themselves. What
    was seen in the first call with tensors of such shapes is done again in later ones, so the
    function has to be pure, and its branches may depend on shapes alone.
    """
    known: dict[Any, Function] = {}

    def call(*tensors: Tensor) -> Any:
        kind = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
        if kind not in known:
            known[kind] = _operations(function, tensors)
        return known[kind](*tensors)

    return call


def _operations(function: Function, tensors: tuple[Tensor, ...]) -> Function:
    from torch.fx.experimental.proxy_tensor import make_fx  # a second, that few need

    graph = make_fx(function)(*tensors)
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.detach.default:  # nothing is differentiated any more
            node.replace_all_uses_with(node.args[0])
    graph.graph.eliminate_dead_code()
    graph.recompile()
    run: Function = graph
    return run
