"""Real processes for tests: a pool of ranks that is started once and kept.

Starting a process costs seconds (it imports torch), a task in a running one milliseconds.
Tasks are functions of a module below ``tests``, named ``module:function``; they are called
as ``function(rank, world, **arguments)`` inside a process group of their own and return
anything ``torch.save`` can write without pickling code: tensors, numbers, text, lists, dicts.
"""

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 300.0  # seconds for a task, where many others use the machine
PAUSE = 0.002
SETTINGS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


class RankError(AssertionError):
    """A task raised on some rank; the text is that rank's traceback."""


class Pool:
    """Processes that run one task after the other."""

    def __init__(self, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="digrad-ranks-")
        self._tasks = 0
        self._ranks: list[subprocess.Popen[str]] = []
        self._grow(size)
        atexit.register(self.close)

    def _grow(self, size: int) -> None:
        for _ in range(len(self._ranks), size):
            self._ranks.append(start())

    def run(self, task: str, world: int, **arguments: Any) -> list[Any]:
        """Run a task on the first ranks and return what each returned; raise what one raised."""
        outcomes = self.outcomes(task, world, **arguments)
        for rank, outcome in enumerate(outcomes):
            if outcome.error:
                raise RankError(f"rank {rank}:\n{outcome.error}")
        return [outcome.value for outcome in outcomes]

    def outcomes(self, task: str, world: int, **arguments: Any) -> "list[Outcome]":
        """The same, with errors as text."""
        self._grow(world)
        self._tasks += 1
        folder = Path(self._folder.name) / str(self._tasks)
        folder.mkdir()
        for rank in range(world):
            order(self._ranks[rank], task, rank, world, folder, arguments)
        end = time.monotonic() + PATIENCE
        return [collect(self._ranks[rank], folder, rank, end) for rank in range(world)]

    def close(self) -> None:
        """End all ranks."""
        for process in self._ranks:
            end(process)
        self._ranks.clear()
        self._folder.cleanup()


@dataclass(frozen=True)
class Outcome:
    """What became of a task on one rank."""

    value: Any = None
    error: str = ""


@cache
def pool() -> Pool:
    """The pool of this test process, started when first asked for."""
    return Pool(2)


def start() -> "subprocess.Popen[str]":
    """Start a rank that waits for orders on its standard input."""
    return subprocess.Popen(
        [sys.executable, "-m", "engines.ranks"],
        stdin=subprocess.PIPE,
        text=True,
        cwd=TESTS,
        env={**os.environ, **SETTINGS},
    )


def spawn(script: str, world: int, *arguments: str) -> "list[subprocess.Popen[str]]":
    """Start a script as ranks of their own: it gets rank, world size, a free port, the rest."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(world), str(port), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **SETTINGS},
        )
        for rank in range(world)
    ]


def wait_for(files: list[Path], processes: "list[subprocess.Popen[str]]") -> None:
    """Wait until all files are there; fail if a process ends before."""
    end = time.monotonic() + PATIENCE
    while not all(file.exists() for file in files):
        assert time.monotonic() < end, "no sign of life"
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, ended[0].communicate()[0]
        time.sleep(PAUSE)


def end(process: "subprocess.Popen[str]") -> None:
    """End a rank, whatever state it is in."""
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(BrokenPipeError):  # an order nobody took
                pipe.close()


def order(
    process: "subprocess.Popen[str]",
    task: str,
    rank: int,
    world: int,
    folder: Path,
    arguments: dict[str, Any],
) -> None:
    """Tell a rank what to do."""
    assert process.stdin is not None
    said = {"task": task, "rank": rank, "world": world, "folder": str(folder), "with": arguments}
    process.stdin.write(json.dumps(said) + "\n")
    process.stdin.flush()


def collect(process: "subprocess.Popen[str]", folder: Path, rank: int, end: float) -> Outcome:
    """Wait for a rank's answer."""
    import torch

    answer = folder / f"{rank}.pt"
    while not answer.exists():
        if process.poll() is not None:
            return Outcome(error=f"the process ended with {process.returncode}")
        if time.monotonic() > end:
            return Outcome(error=f"no answer within {PATIENCE} s")
        time.sleep(PAUSE)
    said = torch.load(answer, weights_only=True)
    return Outcome(said["value"], said["error"])


def serve() -> None:
    """Do what is ordered until standard input ends."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        said = json.loads(line)
        rank, folder = said["rank"], Path(said["folder"])
        value, error = None, ""
        try:
            value = perform(said["task"], rank, said["world"], folder, said["with"])
        except BaseException:
            error = traceback.format_exc()
        part = folder / f".{rank}.part"
        torch.save({"value": value, "error": error}, part)
        part.rename(folder / f"{rank}.pt")


def perform(task: str, rank: int, world: int, folder: Path, arguments: dict[str, Any]) -> Any:
    """Run one task inside a process group that is made for it."""
    import torch.distributed as dist

    module, name = task.split(":")
    function = getattr(importlib.import_module(module), name)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    try:
        dist.barrier()  # a task that fails at once must not hang up on ranks still connecting
        return function(rank, world, **arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    serve()
