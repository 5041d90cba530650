"""A worker: it does jobs for the process that holds the run folder, and sends what comes of them.

Workers touch no run folder. ``main`` is a worker on this machine, a child process that ends with
its parent; they talk in pickles over its standard input and output, never through a file. PyTorch
is imported once the parent is watched, so that the worker of a killed parent ends at once.
"""

import _thread
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from digrad.base.errors import DigradError

if TYPE_CHECKING:
    from digrad.results.folder import JobFile
    from digrad.runs.planning import Plan


class NotSentError(DigradError):
    """Objects that cannot be pickled, or not be read in another process."""


@dataclass(frozen=True)
class Order:
    """The settings of all jobs; sent first, as bytes, since reading it may take a while."""

    experiment: Any
    device: str
    given: Any
    checkpoint_seconds: float


@dataclass(frozen=True)
class Task:
    """One job, and the state in which it was stored."""

    index: int
    made_by: Mapping[str, str]
    saved: "JobFile | None"


@dataclass(frozen=True)
class At:
    """The step that a job has come to."""

    index: int
    t: int


@dataclass(frozen=True)
class Stored:
    """A checkpoint of a job; the parent stores it."""

    index: int
    file: "JobFile"


@dataclass(frozen=True)
class Failed:
    """The error that ends the run."""

    error: Exception

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """Wrap the error itself if it can be pickled."""
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return cls(error)


Send = Callable[[object], None]


@dataclass(frozen=True)
class RemoteStore:
    """The store of a single job: its state came with the task, and checkpoints are sent."""

    task: Task
    send: Send

    def job(self, k: int, made_by: Mapping[str, str] | None = None) -> "JobFile | None":
        return self.task.saved

    def save_job(self, k: int, job: "JobFile") -> None:
        """Let the parent store it."""
        self.send(Stored(k, job))

    def write_metrics(self, jobs: object) -> None:
        """Do nothing: the parent writes."""


def do_job(order: bytes, task: Task, threads: int, send: Send) -> None:
    """Do one job from where it stands, and send what comes of it.

    Args:
        order: an ``Order``, pickled.
        task: the job.
        threads: for PyTorch.
        send: takes messages to the parent.
    """
    import torch

    from digrad.results.folder import RunFolderError
    from digrad.runs.execution import Execution
    from digrad.runs.loop import carry_out

    torch.set_num_threads(threads)
    work, checkpoint_seconds = _plan(order)
    job = work.jobs[task.index]
    for part, text in task.made_by.items():
        if job.made_by.get(part) != text:
            what = f"the {part} of {job.algorithm} on {job.network} has changed since the run began"
            hint = "undo the change, or run it with one worker"
            raise RunFolderError(what, hint=hint)
    own, store = replace(work, jobs=[job]), RemoteStore(task, send)
    carry_out(own, store, Execution(), lambda job, t: send(At(job.index, t)), checkpoint_seconds)


@lru_cache(maxsize=1)
def _plan(order: bytes) -> tuple["Plan", float]:
    """Plan once for all jobs of a run that this worker does."""
    from digrad.runs.planning import plan

    try:
        given: Order = pickle.loads(order)
    except Exception as error:  # whatever the user's own classes raise
        raise NotSentError(f"{type(error).__name__}: {error}") from error
    return plan(given.experiment, given.device, given=given.given), given.checkpoint_seconds


class _Output:
    """Sends whole messages to the parent, also where an interrupt comes in the middle of one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sending, self._interrupted = file, False, False

    def send(self, said: object) -> None:
        content = pickle.dumps(said)
        self._sending = True
        try:
            self._file.write(content)
            self._file.flush()
        except OSError:  # the parent was killed
            os._exit(1)
        self._sending = False
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def interrupt(self, *_: object) -> None:
        if not self._sending:
            raise KeyboardInterrupt
        self._interrupted = True


def main(threads: int) -> NoReturn:
    """Do jobs until the parent has no more."""
    output = _Output(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # the user's own classes may print, and that is no message
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    signal.signal(signal.SIGTERM, output.interrupt)
    tasks: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    try:
        order = tasks.get()
        while True:
            do_job(order, tasks.get(), threads, output.send)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        with suppress(KeyboardInterrupt):
            output.send(Failed.of(error))
    os._exit(0)  # at once: there is nothing to clean up


def _listen(file: BinaryIO, tasks: "SimpleQueue[Any]") -> None:
    """Pass on the order and the tasks, interrupt at None, end where the parent has ended."""
    while True:
        try:
            said = pickle.load(file)
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(1)
        if said is None:
            _thread.interrupt_main(signal.SIGTERM)
        else:
            tasks.put(said)
