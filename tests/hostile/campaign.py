"""Hostile inputs by the hundred: handed to workers that are reused, watched by the clock."""

import json
import os
import select
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic

from hostile.worker import KINDS, MEMORY, SECONDS

PATIENCE = 120.0  # seconds that an input may take where it waits, or the machine is busy
FINE = ("taken", "refused")
TESTS = Path(__file__).parents[1]


@dataclass
class Report:
    """How inputs ended."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and end
    bad: list[dict[str, object]] = field(default_factory=list)
    slowest: float = 0.0
    most_bytes: int = 0
    left: int = 0  # inputs that nobody had the time for

    def add(self, ending: dict[str, object]) -> None:
        self.ends[str(ending["kind"]), str(ending["end"])] += 1
        self.slowest = max(self.slowest, float(str(ending["seconds"])))
        self.most_bytes = max(self.most_bytes, int(str(ending["bytes"])))
        if ending["end"] not in FINE:
            self.bad.append(ending)

    def __str__(self) -> str:
        lines = [f"{kind}: {count} {end}" for (kind, end), count in sorted(self.ends.items())]
        lines += [f"{sum(self.ends.values()):,} inputs, {len(self.bad)} bad, {self.left:,} left"]
        lines += [f"slowest {self.slowest:.1f} s, largest {self.most_bytes / 2**20:,.0f} MiB"]
        lines += [f"{b['kind']} {b['seed']} {b['end']}:\n{b['said']}" for b in self.bad[:40]]
        return "\n".join(lines)


class Worker:
    """One process; killed and replaced where an input does not end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def take(self, kind: str, seed: int) -> dict[str, object]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{kind} {seed}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, object] = json.loads(line)
            return answer
        self.stop()
        end = "hang" if not ready or process.returncode == -signal.SIGPROF else "died"
        return {"kind": kind, "seed": seed, "end": end, "said": "", "seconds": SECONDS, "bytes": 0}

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> "subprocess.Popen[str]":
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        places = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-m", "hostile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **single, "PYTHONPATH": os.pathsep.join(places)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"  # it has imported what it needs
        return process


def campaign(inputs: Iterable[tuple[str, int]], worker: Worker) -> Report:
    """Hand inputs to a worker, one by one."""
    report = Report()
    for kind, seed in inputs:
        report.add(worker.take(kind, seed))
    return report


def inputs_of(seeds: range) -> Iterator[tuple[str, int]]:
    """Every kind of input with every seed."""
    return ((kind, seed) for seed in seeds for kind in KINDS)


def shared(inputs: Iterable[tuple[str, int]], workers: int, seconds: float) -> Report:
    """Hand inputs to several workers; none after so many seconds, which the report tells."""
    report, left, lock = Report(), iter(inputs), Lock()
    end = monotonic() + seconds

    def work() -> None:
        own = Worker()
        try:
            while monotonic() < end:
                with lock:
                    chosen = next(left, None)
                if chosen is None:
                    return
                ending = own.take(*chosen)
                with lock:
                    report.add(ending)
        finally:
            own.stop()

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    report.left = sum(1 for _ in left)
    return report


def main() -> None:
    parser = ArgumentParser(prog="python -m hostile.campaign", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed to stop before")
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)} [default: all]")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, default=inf, help="hand out none after these")
    asked = parser.parse_args()
    chosen = asked.kinds or list(KINDS)
    if unknown := set(chosen) - set(KINDS):
        parser.error(f"there are no inputs of the kind {', '.join(unknown)}")
    inputs = ((kind, seed) for seed in range(asked.first, asked.last) for kind in chosen)
    report = shared(inputs, asked.workers, 60 * asked.minutes)
    print(report)
    sys.exit(bool(report.bad or report.left or report.most_bytes >= MEMORY))


if __name__ == "__main__":  # cd tests; python -m hostile.campaign 0 2000
    main()
