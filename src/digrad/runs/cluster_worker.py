"""What runs on the machines of a cluster: one job at a time, and a box for what it has to say.

Dask starts ``do_job`` in a thread of its worker; the process that holds the run folder asks for
the letters in the box, again and again. A job that nobody has asked about for a while stops: its
run was killed, or lost the cluster.
"""

import pickle
from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from time import monotonic
from typing import Any

from digrad.runs.worker import (
    At,
    Failed,
    Order,
    Stored,
    Task,
    Unreadable,
    do_task,
    sendable,
)

FORGOTTEN = 60.0  # seconds without a question after which a job stops


class Box:
    """The last word of a job on how far it is and on what to store, and its errors."""

    def __init__(self) -> None:
        self._lock, self._letters = Lock(), dict[str, object]()
        self._asked, self._stop, self.ended = monotonic(), False, False

    def send(self, said: object) -> None:
        """Put a letter in; interrupts a job that is to stop, but never while it is stored."""
        from digrad.runs.loop import HandedOverError

        with self._lock:
            self._letters[type(said).__name__] = said
            stop = self._stop or self.forgotten
            self._stop = False
        if stop and isinstance(said, At):
            self._asked = monotonic()  # what is stored on the way out must not stop it again
            raise HandedOverError

    @property
    def forgotten(self) -> bool:
        """Whether nobody has asked for a while."""
        return monotonic() - self._asked > FORGOTTEN

    def taken(self, *, stop: bool) -> list[object]:
        """Take the letters out, what is to be stored first; let the job stop if it is to."""
        with self._lock:
            self._asked, self._stop = monotonic(), self._stop or stop
            letters, self._letters = self._letters, {}
        order = (At, Stored, Unreadable, Failed)
        return [letters[kind.__name__] for kind in order if kind.__name__ in letters]


_BOXES: dict[str, Box] = {}  # by the job's ticket
_ALONE = Lock()  # threads and settings of PyTorch are the process's


def do_job(ticket: str, order: bytes, task: bytes, threads: int) -> None:
    """Do a job; what comes of it lies in the box of this ticket.

    Args:
        ticket: names this try at the job.
        order: what all jobs have in common, pickled.
        task: the job, pickled.
        threads: how many this worker has.
    """
    for old in [key for key, box in _BOXES.items() if box.ended and box.forgotten]:
        _BOXES.pop(old, None)
    box = _BOXES.setdefault(ticket, Box())
    from digrad.runs.loop import HandedOverError

    with _ALONE:
        try:
            _work(order, pickle.loads(task), box, threads)
        except HandedOverError:
            pass
        except Exception as error:
            box.send(Failed(sendable(error)))
        finally:
            box.ended = True


def _work(order: bytes, task: Task, box: Box, threads: int) -> None:
    import torch

    try:
        common: Order = pickle.loads(order)
    except Exception as error:  # whatever the user's own classes raise on being loaded
        box.send(Unreadable(f"{type(error).__name__}: {error}"))
        return
    torch.set_num_threads(threads)
    do_task(_planned(order), task, box, common.checkpoint_seconds)


@lru_cache(maxsize=1)
def _planned(order: bytes) -> Any:
    """Plan once for all jobs of a run that this worker does."""
    from digrad.runs.planning import plan

    common: Order = pickle.loads(order)
    return plan(common.experiment, common.device, given=common.given)


def letters(tickets: Mapping[str, bool]) -> bytes:
    """Return what jobs have said, pickled: by ticket, whether it has ended and the letters.

    Args:
        tickets: the jobs that this worker may have, and whether they are to stop.
    """
    found: dict[str, tuple[bool, list[object]]] = {}
    for ticket, stop in tickets.items():
        box = _BOXES.get(ticket)
        if box is not None:
            ended = box.ended  # before its last letter is taken, not after
            found[ticket] = ended, box.taken(stop=stop)
            if ended:
                del _BOXES[ticket]
    return pickle.dumps(found)
