"""What runs on the machines of a cluster: one job at a time, and a mailbox for its messages.

Dask starts ``do_job`` in a thread of its worker; the process that holds the run folder collects
the messages again and again. A job whose messages nobody has collected for a while stops: its run
was killed, or lost the cluster.
"""

import pickle
from collections.abc import Mapping
from threading import Lock
from time import monotonic

from digrad.runs import worker
from digrad.runs.worker import At, Failed, Stored

FORGOTTEN = 60.0  # seconds without a visit after which a job stops


class Mailbox:
    """The last message of each kind that a job has sent."""

    def __init__(self) -> None:
        self._lock, self._messages = Lock(), dict[type, object]()
        self._visited, self._stop, self.ended = monotonic(), False, False

    def send(self, said: object) -> None:
        """Put a message in; interrupts a job that is to stop, but never while it is stored."""
        from digrad.runs.loop import HandedOverError

        with self._lock:
            self._messages[type(said)] = said
            stop = self._stop or self.forgotten
            self._stop = False
        if stop and isinstance(said, At):
            self._visited = monotonic()  # or the checkpoint on the way out would stop it again
            raise HandedOverError

    @property
    def forgotten(self) -> bool:
        """Whether nobody has collected messages for a while."""
        return monotonic() - self._visited > FORGOTTEN

    def collect(self, *, stop: bool) -> list[object]:
        """Take the messages out, checkpoints before errors; let the job stop if it is to."""
        with self._lock:
            self._visited, self._stop = monotonic(), self._stop or stop
            messages, self._messages = self._messages, {}
        return [messages[kind] for kind in (At, Stored, Failed) if kind in messages]


_MAILBOXES: dict[str, Mailbox] = {}  # by the job's ticket
_ALONE = Lock()  # as the threads and settings of PyTorch are those of the process


def do_job(ticket: str, order: bytes, task: bytes, threads: int) -> None:
    """Do a job; its messages lie in the mailbox of this ticket.

    Args:
        ticket: names this try at the job.
        order: the settings of all jobs, pickled.
        task: the job, pickled.
        threads: how many this worker has.
    """
    from digrad.runs.loop import HandedOverError

    for old in [key for key, box in _MAILBOXES.items() if box.ended and box.forgotten]:
        _MAILBOXES.pop(old, None)
    box = _MAILBOXES.setdefault(ticket, Mailbox())
    with _ALONE:
        try:
            worker.do_job(order, pickle.loads(task), threads, box.send)
        except HandedOverError:
            pass
        except Exception as error:
            box.send(Failed.of(error))
        finally:
            box.ended = True


def collect(tickets: Mapping[str, bool]) -> bytes:
    """Return by ticket whether the job has ended and its messages, pickled.

    Args:
        tickets: the jobs that this worker may have, and whether they are to stop.
    """
    found: dict[str, tuple[bool, list[object]]] = {}
    for ticket, stop in tickets.items():
        box = _MAILBOXES.get(ticket)
        if box is not None:
            ended = box.ended  # before its last message is taken, not after
            found[ticket] = ended, box.collect(stop=stop)
            if ended:
                del _MAILBOXES[ticket]
    return pickle.dumps(found)
