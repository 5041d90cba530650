"""Processes that begin where the imports have ended.

A parent imports digrad and PyTorch once, which takes some seconds, and forks a child for every
command line it is told. The child has its own session, signals, log and empty input, so that a
signal hits it alone; it goes through the command line as a user's process does.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from engines.ranks import SETTINGS, TESTS

PAUSE = 0.01  # seconds between two looks at whether a child has ended
NEEDED = ("torch._dynamo", "digrad.cli", "digrad_peers.hub", "digrad_peers.training")


class Nursery:
    """The parent, seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
            env={**os.environ, **SETTINGS},
            start_new_session=True,  # an interrupt is the test's: it ends its children itself
        )
        atexit.register(self.close)

    def start(self, words: list[str], log: Path) -> "Child":
        """Start ``digrad WORDS``; what it says is added to a log."""
        return Child(self, int(self.ask(start=words, log=str(log))))

    def ask(self, **order: Any) -> Any:
        """Have the parent do something; return what it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the parent, and with it whoever is left."""
        with suppress(BrokenPipeError):
            self._process.communicate()


@cache
def nursery() -> Nursery:
    """The one of this test process, started when first asked for."""
    return Nursery()


class Child:
    """A process of the nursery, to be used as one that ``subprocess`` has started.

    The parent buries it only when it is asked how it ended: until then its number is its own.
    """

    def __init__(self, parent: Nursery, pid: int) -> None:
        self.pid, self._parent = pid, parent
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(PAUSE)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def main() -> None:
    """Be the parent: obey a line each, until there are none; then end all."""
    for module in NEEDED:
        import_module(module)
    children = set[int]()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if "start" in order:
                children.add(pid := _fork(order["start"], order["log"]))
                print(pid, flush=True)
            else:
                print(json.dumps(_buried(order["poll"], children)), flush=True)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _buried(pid: int, children: set[int]) -> int | None:
    """How a child has ended, if it has."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    children.remove(pid)
    return os.waitstatus_to_exitcode(status)


def _fork(words: list[str], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        nothing, told = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND)
        for end, place in ((nothing, 0), (told, 1), (told, 2)):
            os.dup2(end, place)
        code = _digrad(words)
    finally:  # whatever happens: only the parent goes on after this
        sys.stderr.flush()
        os._exit(code)


def _digrad(words: list[str]) -> int:
    from digrad.cli import main

    sys.argv[:] = ["digrad", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
