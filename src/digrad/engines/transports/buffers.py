"""Memory that is used again: fresh pages cost more than the arithmetic done in them."""

from collections import defaultdict
from functools import cache
from math import prod
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLEST = 4096  # bytes of a buffer
RECYCLED = 1 << 22  # bytes from which results are recycled here; the C library keeps smaller ones
IDLE = 4  # results whose memory is kept though nobody holds it


def buffer_size(size: int) -> int:
    """Return the next power of two, so that buffers of nearly one size are interchangeable."""
    return max(SMALLEST, 1 << max(0, size - 1).bit_length())


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed, up to about 60 MB, for the next to ask for memory.

    By default glibc hands large blocks back to the system at once. How large depends on what it
    has seen freed so far, up to 32 MB; so this is all it takes.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


class BufferPool:
    """Buffers for messages; who takes one owns it until it is given back."""

    def __init__(self, device: torch.device, *, pinned: bool) -> None:
        self._device, self._pinned = device, pinned
        self._free: defaultdict[int, list[Tensor]] = defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return a buffer, and its beginning as a tensor of the shape asked for."""
        count = prod(shape) * dtype.itemsize
        free = self._free[buffer_size(count)]
        buffer = free.pop() if free else self._new(buffer_size(count))
        return buffer, buffer[:count].view(dtype).view(shape)

    def give(self, buffer: Tensor) -> None:
        """Take a buffer back."""
        self._free[len(buffer)].append(buffer)

    def _new(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device, pin_memory=self._pinned)


class TensorPool:
    """Tensors for results; their memory comes back when the last tensor that lies in it is gone.

    PyTorch gives large tensors back to the system at once, and touching new pages takes
    longer than adding up what is written into them.
    """

    def __init__(self) -> None:
        self._idle: list[NDArray[np.uint8]] = []

    def take(self, like: Tensor) -> Tensor:
        """Return a contiguous tensor of the same shape, dtype and device, not filled."""
        size = like.numel() * like.element_size()
        if like.device.type != "cpu" or size < RECYCLED:
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        fitting = [k for k, memory in enumerate(self._idle) if len(memory) == size]
        memory = self._idle.pop(fitting[-1]) if fitting else np.empty(size, dtype=np.uint8)
        # PyTorch owns this array and lets go of it together with the tensor's storage.
        lease = memory[:]
        finalize(lease, self._give, memory).atexit = False
        return torch.from_numpy(lease).view(like.dtype).view(like.shape)

    def _give(self, memory: NDArray[np.uint8]) -> None:
        self._idle.append(memory)
        del self._idle[:-IDLE]
