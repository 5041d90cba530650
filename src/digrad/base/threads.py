"""How the threads of a process wait for each other: asleep after a moment, not spinning.

By default a thread of OpenMP that waits keeps its core busy for milliseconds. Where other programs
want that core too, the thread it waits for does not get it, and a step with two threads takes ten
times as long as with one. A moment is enough to bridge the gap from one operation to the next.
"""

import os
import sys

WAITING = {"GOMP_SPINCOUNT": "100"}  # turns of a loop, some microseconds
ASKED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # with which a user decides


def sleep_soon() -> None:
    """Let waiting threads sleep soon: in this process and those it starts, if it is not too late.

    OpenMP reads its settings when it is loaded, with PyTorch. A choice of the user's stands.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in ASKED):
        os.environ.update(WAITING)
