"""A worker: a process that does jobs for its parent, and ends with it.

They talk over the worker's standard input and output, in pickles: these come from our own parent
and go back to it, never from a file. Workers touch no run folder. PyTorch is imported after the
watch on the parent has begun, so that the worker of a parent that was killed ends at once.
"""

import _thread
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol

if TYPE_CHECKING:
    from digrad.results.folder import JobFile
    from digrad.runs.planning import Job, Plan


@dataclass(frozen=True)
class Order:
    """What all jobs have in common; sent first, as bytes, since reading it may take a while."""

    experiment: Any
    device: str
    given: Any
    threads: int
    checkpoint_seconds: float


@dataclass(frozen=True)
class Task:
    """One job, and what it left behind."""

    index: int
    made_by: Mapping[str, str]
    saved: "JobFile | None"


@dataclass(frozen=True)
class Stop:
    """Send where you are, and end."""


@dataclass(frozen=True)
class At:
    """How far a job is."""

    index: int
    t: int


@dataclass(frozen=True)
class Stored:
    """What a job has done so far; the parent keeps it."""

    index: int
    file: "JobFile"


@dataclass(frozen=True)
class Unreadable:
    """The order cannot be read in another process."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """A job that cannot go on, or none that can begin."""

    error: Exception


class Sender(Protocol):
    """The way to the process that holds the run folder."""

    def send(self, said: object) -> None:
        """Send one message."""
        ...


class Wire:
    """The way to the parent: whole messages, also where a stop comes in the middle of one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._writing, self._stopped = file, False, False

    def send(self, said: object) -> None:
        """Send one message."""
        content = pickle.dumps(said)
        self._writing = True
        try:
            self._file.write(content)
            self._file.flush()
        finally:
            self._writing = False
        if self._stopped:
            self._stopped = False
            raise KeyboardInterrupt

    def stop(self, *_: object) -> None:
        """Interrupt what this process does, but no message."""
        if self._writing:
            self._stopped = True
            return
        raise KeyboardInterrupt


class OneJob:
    """The store of a single job: what it left behind is given, what it does is sent."""

    def __init__(self, task: Task, wire: Sender) -> None:
        self._task, self._wire = task, wire

    def job(self, k: int, made_by: Mapping[str, str] | None = None) -> "JobFile | None":
        """Return what the parent has sent."""
        return self._task.saved

    def save_job(self, k: int, job: "JobFile") -> None:
        """Let the parent keep it."""
        self._wire.send(Stored(k, job))

    def write_metrics(self, jobs: object) -> None:
        """Pass over it: the parent writes."""


def main() -> NoReturn:
    """Do jobs until the parent has no more."""
    wire = Wire(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what the user's own classes print must not get between the messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    signal.signal(signal.SIGTERM, wire.stop)
    tasks: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_watch, args=(sys.stdin.buffer, tasks), daemon=True).start()
    try:
        _work(tasks, wire)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        wire.send(Failed(sendable(error)))
    os._exit(0)  # at once: nothing here needs to be put in order


def _watch(file: BinaryIO, tasks: "SimpleQueue[Any]") -> None:
    """Hear the parent; end with it."""
    while True:
        try:
            said = pickle.load(file)
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(1)
        if isinstance(said, Stop):
            _thread.interrupt_main(signal.SIGTERM)
        else:
            tasks.put(said)


def _work(tasks: "SimpleQueue[Any]", wire: Wire) -> None:
    try:
        order: Order = pickle.loads(tasks.get())
    except Exception as error:  # whatever the user's own classes raise on being loaded
        wire.send(Unreadable(f"{type(error).__name__}: {error}"))
        return

    import torch

    from digrad.runs.planning import plan

    torch.set_num_threads(order.threads)
    work = plan(order.experiment, order.device, given=order.given)
    while True:
        task: Task = tasks.get()
        do_task(work, task, wire, order.checkpoint_seconds)


def do_task(work: "Plan", task: Task, wire: Sender, seconds: float) -> None:
    """Do one job of a plan from where it stands; what comes of it is sent."""
    from dataclasses import replace

    from digrad.runs.execution import Local
    from digrad.runs.loop import carry_out

    job = work.jobs[task.index]
    _refuse_another(job, task)

    def progress(job: "Job", t: int) -> None:
        wire.send(At(job.index, t))

    carry_out(replace(work, jobs=[job]), OneJob(task, wire), Local(), progress, seconds)


def _refuse_another(job: "Job", task: Task) -> None:
    """Raise if this process has made of the experiment something else than its parent has."""
    from digrad.base.errors import message
    from digrad.results.folder import RunFolderError

    for part, text in task.made_by.items():
        if job.made_by.get(part) != text:
            what = f"the {part} of {job.algorithm} on {job.network} has changed since the run began"
            hint = "undo the change, or run it with one worker"
            raise RunFolderError(message(what, hint=hint))


def sendable(error: Exception) -> Exception:
    """Return the error itself, if it survives the way."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
