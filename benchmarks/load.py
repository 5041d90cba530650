"""A step on a busy machine and on an idle one, for several ways to wait for threads.

Every way runs in a process of its own, since OpenMP reads its settings when it is loaded; they
take turns, so that whatever else the machine does meets all of them. The load is made here:
as many busy processes as are asked for, which end by themselves. Run as

    python benchmarks/load.py [SECONDS]
"""

import os
import statistics
import subprocess
import sys
import time

from digrad.base.machine import SETTINGS, SLEEPING, usable_cores

ROUNDS = 9
WAYS = {  # threads, and what OpenMP is told
    "one thread": ("1", {}),
    "all, spinning (OpenMP's default)": ("all", {}),
    "all, asleep at once (passive)": ("all", {"OMP_WAIT_POLICY": "passive"}),
    "digrad": ("digrad", SLEEPING),
}
STEPS = """
import sys, time
import torch
from digrad.algorithms import PushPull
from digrad.engines.simulator import Simulator
from digrad.networks import random_regular, weigh
from digrad.problems import Quadratic
from digrad.runs.loop import few_threads
from digrad.runs.recursion import Recursion, Trials

threads, nodes, dim = sys.argv[1], 1000, 1000
if threads == "1":
    torch.set_num_threads(1)
problem = Quadratic.generate(nodes, dim, rotate=False, sigma=0.0)
engine = Simulator(weigh(random_regular(nodes, 5)))
work = Recursion(PushPull(), engine, problem, Trials([0], [0.01]), lambda t: 1.0)
moment = work.advance(work.start(), 3)
print("ready", flush=True)
for line in sys.stdin:
    begin, first = time.perf_counter(), moment.t
    while time.perf_counter() - begin < float(line):
        if threads == "digrad":
            with few_threads(nodes * dim):
                moment = work.advance(moment, moment.t + 5)
        else:
            moment = work.advance(moment, moment.t + 5)
    print((time.perf_counter() - begin) / (moment.t - first) * 1e3, flush=True)
"""
BUSY = "import sys, time; end = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"


def ask(process: "subprocess.Popen[str]", said: str) -> str:
    """Send a line, and return the answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{said}\n")
    process.stdin.flush()
    return process.stdout.readline()


def start(threads: str, settings: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a process that takes steps when it is asked to."""
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    process = subprocess.Popen(
        [sys.executable, "-c", STEPS, threads],
        env=clean | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def measure(busy: int, seconds: float) -> dict[str, float]:
    """Return the median milliseconds of a step, for every way."""
    ways = {name: start(*how) for name, how in WAYS.items()}
    bound = str((ROUNDS + 1) * len(WAYS) * (seconds + 2.0))
    load = [subprocess.Popen([sys.executable, "-c", BUSY, bound]) for _ in range(busy)]
    found: dict[str, list[float]] = {name: [] for name in ways}
    try:
        time.sleep(0.5)
        for _ in range(ROUNDS):
            for name, process in ways.items():
                found[name].append(float(ask(process, str(seconds))))
    finally:
        for process in (*load, *ways.values()):
            process.kill()
            process.wait()
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Print a table for no load, and for two busy processes on each core."""
    seconds, cores = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, usable_cores()
    print(f"n = 1000, p = 1000, S-PP, {cores} cores; median ms a step, and times the best way")
    for busy in (0, 2 * cores):
        found = measure(busy, seconds)
        best = min(found.values())
        for name, each in found.items():
            print(f"{busy:2d} busy  {name:34s} {each:8.2f} ms  x {each / best:.2f}")


if __name__ == "__main__":
    main()
