"""Into a process group, and out of it in the right order."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from torch import distributed

from digrad.runs.joining import joined


class Joined(NamedTuple):
    """One of several processes."""

    rank: int
    world: int
    device: str


@contextmanager
def join(device: str = "cpu", timeout: float = 300.0) -> Iterator[Joined]:
    """Join the processes that torchrun has started; leave when all are done.

    A process group that is there already is used and left alone.

    Args:
        device: ``cpu``, or ``cuda`` for one GPU per process of a machine, in turn.
        timeout: seconds to wait for the others.
    """
    found = distributed.is_initialized()
    with joined(device, timeout) as here:
        yield Joined(distributed.get_rank(), distributed.get_world_size(), here)
        # Not after an error: others may be gone. Without it a process could end while a thread
        # of gloo still holds the last tensors, and abort.
        if not found:
            with suppress(RuntimeError):
                distributed.barrier()
