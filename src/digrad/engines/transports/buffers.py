"""Memory that is used again: fresh pages cost more than the arithmetic done in them."""

from collections import defaultdict
from functools import cache
from math import prod

import torch
from torch import Tensor

SMALLEST = 4096  # bytes of a buffer


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
    """Buffers for messages; who takes one owns it until it is given back."""

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
