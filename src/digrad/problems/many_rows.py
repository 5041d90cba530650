"""One function of a row for many rows at once."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel


def all_rows(function: Callable[..., Any], rows: Tensor, *columns: Tensor) -> Any:
    """Return what a function gives for every row with what belongs to it.

    On a CPU, attention is plain products: PyTorch's fused form would be called row by row.
    """
    if rows.is_cuda:
        return vmap(function)(rows, *columns)
    with sdpa_kernel(SDPBackend.MATH):
        return vmap(function)(rows, *columns)
