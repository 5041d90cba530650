"""Whether there are kernels for a tensor."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

KINDS = (torch.float32, torch.bfloat16)


def kernels_for(x: Tensor, module: str = "kernels") -> ModuleType | None:
    """Return a module of kernels if x lies on a GPU, in single precision or bfloat16."""
    return _triton(module) if x.is_cuda and x.dtype in KINDS else None


@cache
def _triton(module: str) -> ModuleType | None:
    try:
        return import_module(f"digrad.problems.{module}")
    except ImportError:  # a build of PyTorch that comes without Triton
        return None
