"""Whether there are kernels for a tensor."""

from functools import cache
from types import ModuleType

import torch
from torch import Tensor


def kernels_for(x: Tensor) -> ModuleType | None:
    """Return the module of kernels if x lies on a GPU, in single precision."""
    return _triton() if x.is_cuda and x.dtype == torch.float32 else None


@cache
def _triton() -> ModuleType | None:
    try:
        from digrad.problems import kernels
    except ImportError:  # a build of PyTorch that comes without
        return None
    return kernels
