"""Workers on this machine: processes that this one starts, hears and ends."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from digrad.base.cores import usable_cores
from digrad.base.threads import let_threads_sleep
from digrad.results.folder import JobFile
from digrad.runs.planning import Job, Plan
from digrad.runs.team import Common, packed
from digrad.runs.worker import Stop, Task

MEMORY_EACH = 2**30  # bytes that a worker takes, half of them PyTorch's

Heard = SimpleQueue[tuple["_Worker", Any]]


def most_workers(work: Plan) -> int:
    """Return how many workers cores and memory allow; one where the nodes live on a GPU."""
    if work.problem.start().is_cuda or not sys.executable:
        return 1
    return max(1, min(usable_cores(), len(work.jobs), _available_memory() // MEMORY_EACH))


class LocalCrew:
    """As many processes as were asked for, and no more than there are jobs."""

    def __init__(self, common: Common, workers: int, jobs: int) -> None:
        self._size = min(workers, jobs)
        self._threads = max(1, usable_cores() // self._size)
        self._order = packed(common, self._threads)
        self._heard: Heard = SimpleQueue()
        self._hired = 0

    def hire(self, team: Sequence[object]) -> "_Worker | None":
        """Start another process, unless there are enough."""
        if len(team) >= self._size:
            return None
        self._hired += 1
        return _Worker(self._hired, self._order, self._threads, self._heard)

    def hear(self, seconds: float) -> tuple["_Worker", Any] | None:
        """Wait for a word of any of them."""
        try:
            return self._heard.get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        """Do nothing: the processes have been ended one by one."""


class _Worker:
    """A worker, as its parent sees it."""

    def __init__(self, number: int, order: bytes, threads: int, heard: Heard) -> None:
        self._number = number
        self.job: Job | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from digrad.runs.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(threads),
            start_new_session=True,  # Ctrl-C is this process's to hear
        )
        Thread(target=self._listen, args=(heard,), daemon=True).start()
        self._send(order)

    def __str__(self) -> str:
        """Name it."""
        return f"worker {self._number} (process {self._process.pid})"

    def give(self, job: Job, saved: JobFile | None) -> None:
        """Let it do a job from where that stands."""
        self.job = job
        self._send(Task(job.index, job.made_by, saved))

    def stop(self) -> None:
        """Let it send where it is, and end."""
        self._send(Stop())

    def _send(self, said: object) -> None:
        """Tell it something; that it has died is heard elsewhere."""
        assert self._process.stdin is not None
        with suppress(OSError):
            pickle.dump(said, self._process.stdin)
            self._process.stdin.flush()

    def _listen(self, heard: Heard) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                said = pickle.load(self._process.stdout)
            except Exception:  # it has ended, perhaps in the middle of a word
                heard.put((self, None))
                return
            heard.put((self, said))

    def end(self) -> str:
        """End it, as a worker has nothing to put in order, and say how it has ended."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what it was not told any more
                assert pipe is not None
                pipe.close()
        return f"was killed by {_signal(-status)}" if status < 0 else f"ended with status {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment(threads: int) -> dict[str, str]:
    """Return what a worker finds in its environment: the parent's modules, its share of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    environment = os.environ | {name: str(threads) for name in names} | {"PYTHONPATH": path}
    let_threads_sleep(environment)
    return environment


def _available_memory() -> int:
    """Return the bytes that can be taken without swapping; a lot where nobody says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines: Sequence[str] = file.readlines()
        found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 2**62
