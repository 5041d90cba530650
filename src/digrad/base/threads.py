"""How the threads of a process wait for each other: asleep after a moment, not spinning.

By default a thread of OpenMP that waits keeps its core busy for milliseconds. Where other programs
want that core too, the thread it waits for does not get it, and a step with two threads takes ten
times as long as with one. A moment is enough to bridge the gap from one operation to the next.
"""

from collections.abc import MutableMapping

SLEEPING = {"GOMP_SPINCOUNT": "100"}  # turns of a loop, some microseconds
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # with which a user decides


def let_threads_sleep(environment: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep soon, in processes that get this environment.

    OpenMP reads it when PyTorch is loaded: digrad sets it for the processes that are its own, the
    command line's and workers', never for a program that imports digrad. The user's choice stands.
    """
    if not any(name in environment for name in SETTINGS):
        environment.update(SLEEPING)
