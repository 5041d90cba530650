"""Workers on this machine: child processes, each with a pipe of its own.

The pools of ``concurrent.futures`` and loky break as a whole when one worker is killed; here the
others go on.
"""

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from digrad.base.machine import free_memory, let_threads_sleep, usable_cores
from digrad.runs.dispatch import Settings
from digrad.runs.planning import Job, Plan
from digrad.runs.worker import Task

MEMORY_EACH = 2**30  # bytes that a worker takes, half of them for PyTorch


def most_workers(work: Plan) -> int:
    """Return how many workers cores and memory allow; one where the nodes live on a GPU."""
    if work.problem.start().is_cuda or not sys.executable:
        return 1
    return int(max(1, min(usable_cores(), len(work.jobs), free_memory() / MEMORY_EACH)))


class LocalPool:
    """As many child processes as were asked for, and no more than there are jobs."""

    def __init__(self, settings: Settings, workers: int, jobs: int) -> None:
        self._most = min(workers, jobs)
        self._threads = max(1, usable_cores() // self._most)
        self._order = settings.pickled()
        self._received: SimpleQueue[tuple[LocalWorker, Any]] = SimpleQueue()
        self._workers: list[LocalWorker] = []

    def hire(self) -> "LocalWorker | None":
        """Start another process, unless there are enough."""
        if sum(worker.alive for worker in self._workers) >= self._most:
            return None
        made = LocalWorker(len(self._workers) + 1, self._threads, self._received)
        self._workers.append(made)
        made.send(self._order)
        return made

    def receive(self, seconds: float) -> "tuple[LocalWorker, Any] | None":
        try:
            return self._received.get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        """Do nothing: the processes have been ended one by one."""


class LocalWorker:
    """A child process, as its parent sees it."""

    def __init__(
        self, number: int, threads: int, received: "SimpleQueue[tuple[LocalWorker, Any]]"
    ) -> None:
        self.job: Job | None = None
        self.alive = True
        code = f"from digrad.runs.worker import main; main({threads})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(threads),
            start_new_session=True,  # Ctrl-C is handled by this process
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._name = f"worker {number} (process {self._process.pid})"
        Thread(target=self._listen, args=(self._output, received), daemon=True).start()

    def __str__(self) -> str:
        return self._name

    def assign(self, task: Task) -> None:
        self.send(task)

    def stop(self) -> None:
        self.send(None)

    def send(self, said: object) -> None:
        """Send a message; that the worker has died is noticed where its messages are read."""
        with suppress(OSError):
            pickle.dump(said, self._input)
            self._input.flush()

    def _listen(self, output: IO[bytes], received: "SimpleQueue[tuple[LocalWorker, Any]]") -> None:
        said: Any = ""
        while said is not None:
            try:
                said = pickle.load(output)
            except Exception:  # it has ended, perhaps in the middle of a message
                said = None
            received.put((self, said))

    def end(self) -> str:
        """End it at once, as a worker has nothing to clean up, and say how it has ended."""
        self.alive = False
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._input, self._output):
            with suppress(OSError):  # what was not sent
                pipe.close()
        if status >= 0:
            return f"ended with status {status}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker: the parent's modules, its share of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    environment = os.environ | {name: str(threads) for name in names} | {"PYTHONPATH": path}
    let_threads_sleep(environment)
    return environment
