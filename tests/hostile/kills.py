"""Kills by the thousand: runs that are killed at random moments end in the bytes of a whole one.

    cd tests; python -m hostile.kills 1000                   # a checkpoint at every record
    cd tests; python -m hostile.kills 1000 --checkpoint 5 --steps 10000    # digrad's own interval

Several campaigns go side by side (``--workers``). Each begins a ``digrad run``, kills it by SIGKILL
after a random time, goes on with ``--resume``, and so on until one comes to the end. Then
``metrics.csv`` and all else in the folder are compared with those of a whole run, and the next
begins. A campaign has imported digrad once and forks a child for every run, which goes through the
command line as a user's does; with ``--fresh`` every run is a ``python -m digrad run`` of its own.
"""

import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from threading import Lock

import tomli_w

from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec, to_table

TESTS = Path(__file__).parents[1]
RECORDS = 20
TELL = 10.0  # seconds between lines of progress
EXPERIMENT = Experiment(
    networks=(NetworkSpec("star", n=5), NetworkSpec("exponential", n=5)),
    algorithms=(AlgorithmSpec("push-pull"), AlgorithmSpec("sgp")),
    problem=KindSpec("quadratic", {"dim": 40, "sigma": 0.5}),
    steps=RECORDS,
    lr=(0.01, 0.02),
    seeds=(0, 4),
)


def arguments(file: str, folder: str, checkpoint: str) -> list[str]:
    """What a user types to begin the run, or to go on with it."""
    again = ["--resume"] if (Path(folder) / "experiment.toml").exists() else []
    return ["run", file, "--out", folder, "--checkpoint", checkpoint, "--workers", "1", *again]


def serve(fresh: bool, *run: str) -> None:
    """For every line ``SECONDS``: go on with the run in a child, and kill it if it takes longer."""
    if not fresh:
        for needed in ("torch._dynamo", "digrad.runs.execute", "digrad.show.tables"):
            import_module(needed)  # once, before the forks
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            told = os.open(f"{run[1]}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(told, 1)
            os.dup2(told, 2)
            _become_a_run(arguments(*run), fresh)
        print(*_end_of(child, float(line), Path(run[1])), flush=True)


def _become_a_run(words: list[str], fresh: bool) -> None:
    if fresh:
        os.execv(sys.executable, [sys.executable, "-m", "digrad", *words])
    from digrad import cli

    sys.argv[1:] = words
    try:
        cli.main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 0)
    os._exit(0)


def _end_of(child: int, seconds: float, folder: Path) -> tuple[int, float]:
    """How it ended, and after how long its folder was there."""
    begin, there = time.monotonic(), 0.0
    while (now := time.monotonic() - begin) < seconds:
        there = there or (now if folder.exists() else 0.0)
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), there
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), there


class Server:
    """A process that runs, and kills its runs."""

    def __init__(self, place: Path, experiment: Experiment, checkpoint: float, fresh: bool) -> None:
        place.mkdir()
        self.file, self.out = place / "experiment.toml", place / "out"
        self.file.write_bytes(tomli_w.dumps(to_table(experiment)).encode())
        call = f"serve({fresh}, {str(self.file)!r}, {str(self.out)!r}, {str(checkpoint)!r})"
        command = [sys.executable, "-c", f"from hostile.kills import serve; {call}"]
        places = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": places}
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=os.environ | one)
        assert self._heard() == "ready"

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, seconds: float = 3600.0) -> tuple[int, float]:
        """Go on for so long at most; return how that ended, and when there was a folder."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        code, there = self._heard().split()
        return int(code), float(there)

    def said(self) -> str:
        return Path(f"{self.out}.said").read_text()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def content(folder: Path) -> dict[str, bytes]:
    """All files of a run but those that a kill may leave half written."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@dataclass
class Tally:
    """What all campaigns have seen so far."""

    asked: int
    kills: int = 0
    same: int = 0  # runs that ended in the bytes of a whole one
    bad: list[str] = field(default_factory=list)
    _told: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock)

    def wants_more(self) -> bool:
        return self.kills < self.asked and not self.bad

    def killed(self) -> None:
        with self._lock:
            self.kills += 1
            if time.monotonic() > self._told + TELL:
                self._told = time.monotonic()
                print(self, file=sys.stderr, flush=True)

    def ended(self, wrong: str) -> None:
        with self._lock:
            self.same += not wrong
            self.bad += [wrong] if wrong else []

    def __str__(self) -> str:
        ends = f"{self.same:,} runs ended byte-identical, {len(self.bad):,} otherwise"
        return f"{self.kills:,} kills: {ends}"


def campaign(server: Server, draw: Random, checkpoint: float, tally: Tally) -> None:
    """Kill runs until there are kills enough, or one ended otherwise than it should."""
    begin = time.monotonic()
    code, start = server.run()
    assert code == 0, server.said()
    long = time.monotonic() - begin - start
    whole = content(server.out)
    while tally.wants_more():
        shutil.rmtree(server.out)
        tally.ended(_wrong(server, _delays(draw, start, long, checkpoint, tally), whole, tally))


def _delays(
    draw: Random, start: float, long: float, checkpoint: float, tally: Tally
) -> Iterator[float]:
    """Seconds until each kill: mostly after the start, and sometimes enough to get on for sure."""
    attempt = 0
    while tally.wants_more():
        attempt += 1
        most = 2 * checkpoint + long / 2 if attempt % 3 == 0 else 0.7 * long
        yield draw.uniform(0.8 * start, start + most)


def _wrong(server: Server, delays: Iterator[float], whole: dict[str, bytes], tally: Tally) -> str:
    """Go on with a run until it ends, and say what is wrong with it."""
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        code, _ = server.run(next(delays, 3600.0))
        if code == -signal.SIGKILL:
            tally.killed()
    if code:
        return f"{server.out}: a run ended with status {code}: {server.said()}"
    found = content(server.out)
    names = sorted(name for name in whole | found if whole.get(name) != found.get(name))
    return f"{server.out}: other bytes in {', '.join(names)}" if names else ""


def main() -> None:
    parser = ArgumentParser(prog="python -m hostile.kills", description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int)
    parser.add_argument("--checkpoint", type=float, default=0.0, help="seconds between checkpoints")
    parser.add_argument("--steps", type=int, default=1000, help="of each run")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--fresh", action="store_true", help="a new interpreter for every run")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    every = max(1, asked.steps // RECORDS)
    experiment = replace(EXPERIMENT, steps=asked.steps, metrics_every=every)
    tally, begin = Tally(asked.kills), time.monotonic()

    def one(place: Path, seed: int) -> None:
        with closing(Server(place, experiment, asked.checkpoint, asked.fresh)) as server:
            campaign(server, Random(seed), asked.checkpoint, tally)

    with TemporaryDirectory(prefix="kills-") as place, ThreadPoolExecutor(asked.workers) as pool:
        numbers = range(asked.workers)
        for done in [pool.submit(one, Path(place) / str(k), asked.seed + k) for k in numbers]:
            done.result()
    print(*tally.bad, f"{tally}, {time.monotonic() - begin:.0f} s", sep="\n")
    sys.exit(bool(tally.bad))


if __name__ == "__main__":
    main()
