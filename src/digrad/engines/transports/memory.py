"""Memory that is used again: fresh pages cost more than the arithmetic done in them."""

import sys
from collections import defaultdict
from functools import cache
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLEST = 4096  # bytes of a buffer
RECYCLED = 1 << 18  # bytes from which results are worth recycling
IDLE = 4  # results kept though nobody holds them


def rounded(size: int) -> int:
    """Return the next power of two, so that buffers of nearly one size are interchangeable."""
    return max(SMALLEST, 1 << max(0, size - 1).bit_length())


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed, up to about 60 MB, for the next to ask for memory.

    By default glibc hands large blocks back to the system at once. How large depends on what it
    has seen freed so far, up to 32 MB; so this is all it takes.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


class Pool:
    """Buffers for messages, taken and given back."""

    def __init__(self, device: torch.device, *, pinned: bool) -> None:
        self._device, self._pinned = device, pinned
        self._free: defaultdict[int, list[Tensor]] = defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return a buffer, and its beginning as a tensor of the shape asked for."""
        count = prod(shape) * dtype.itemsize
        free = self._free[rounded(count)]
        buffer = free.pop() if free else self._new(rounded(count))
        return buffer, buffer[:count].view(dtype).view(shape)

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back."""
        self._free[len(buffer)].append(buffer)

    def _new(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device, pin_memory=self._pinned)


class Results:
    """Tensors for results; their memory is used again once nobody holds any part of it.

    PyTorch gives large tensors back to the system at once, and touching new pages takes
    longer than adding up what is written into them.
    """

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.uint8]] = []

    def take(self, like: Tensor) -> Tensor:
        """Return a contiguous tensor of the same shape, dtype and device, not filled."""
        size = like.numel() * like.element_size()
        if like.device.type != "cpu" or size < RECYCLED:
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        # A tensor made from an array holds a reference to it for as long as its storage lives:
        # an array with no reference but ours (the list's and the call's) is free.
        every = range(len(self._arrays))
        idle = [k for k in every if sys.getrefcount(self._arrays[k]) <= 2]
        fitting = [k for k in idle if len(self._arrays[k]) == size]
        if fitting:
            array = self._arrays[fitting[-1]]
        else:
            for k in reversed(idle[:-IDLE] if len(idle) > IDLE else []):
                del self._arrays[k]
            array = np.empty(size, dtype=np.uint8)
            self._arrays.append(array)
        return torch.from_numpy(array).view(like.dtype).view(like.shape)
