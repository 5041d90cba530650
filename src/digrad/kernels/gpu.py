"""Whether there are kernels for a tensor."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

KINDS = (torch.float32, torch.bfloat16)
IN_DOUBLE = ("embedding_kernels",)  # those that know double precision, too


def kernels_for(x: Tensor, module: str = "convolution_tiles") -> ModuleType | None:
    """Return a module of kernels if x lies on a GPU, in a type that they know."""
    known = x.dtype in KINDS or (x.dtype == torch.float64 and module in IN_DOUBLE)
    return _triton(module) if x.is_cuda and known else None


@cache
def _triton(module: str) -> ModuleType | None:
    try:
        return import_module(f"digrad.kernels.{module}")
    except ImportError:  # a build of PyTorch that comes without Triton
        return None
