"""Kills by the thousand: runs that are killed at random moments end in the bytes of a whole one.

    cd tests; python -m hostile.kills 1000                   # a checkpoint at every record
    cd tests; python -m hostile.kills 1000 --checkpoint 5 --steps 20000    # digrad's own interval

Each worker has imported digrad once and forks a child for every run, which goes through the command
line as a user's does; the child is killed by SIGKILL after a random time, another goes on with
``--resume``, and so on until one comes to the end. Then ``metrics.csv`` and all else in the folder
are compared, and the next run begins.
"""

import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import tomli_w

from digrad.runs.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec, to_table

TESTS = Path(__file__).parents[1]
RECORDS = 20
EXPERIMENT = Experiment(
    networks=(NetworkSpec("star", n=5), NetworkSpec("exponential", n=5)),
    algorithms=(AlgorithmSpec("push-pull"), AlgorithmSpec("sgp")),
    problem=KindSpec("quadratic", {"dim": 40, "sigma": 0.5}),
    steps=RECORDS,
    step_sizes=(0.01, 0.02),
    seeds=(0, 4),
)


def serve(file: str, folder: str, checkpoint: str) -> None:
    """For every line ``SECONDS``: go on with the run in a child, and kill it if it takes longer."""
    from digrad import cli

    for needed in ("torch._dynamo", "digrad.runs.execute", "digrad.show.tables"):
        import_module(needed)  # once, before the forks
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            told = os.open(f"{folder}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(told, 1)
            os.dup2(told, 2)
            again = ["--resume"] if (Path(folder) / "experiment.toml").exists() else []
            sys.argv[1:] = ["run", file, "--out", folder, "--checkpoint", checkpoint, *again]
            sys.argv += ["--workers", "1"]
            try:
                cli.main()
            except SystemExit as end:
                os._exit(end.code if isinstance(end.code, int) else 0)
            os._exit(0)
        print(_end_of(child, float(line)), flush=True)


def _end_of(child: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Server:
    """A process that runs, and kills its runs."""

    def __init__(self, place: Path, experiment: Experiment, checkpoint: float) -> None:
        self.file, self.out = place / "experiment.toml", place / "out"
        self.file.write_bytes(tomli_w.dumps(to_table(experiment)).encode())
        call = f"serve({str(self.file)!r}, {str(self.out)!r}, {str(checkpoint)!r})"
        command = [sys.executable, "-c", f"from hostile.kills import serve; {call}"]
        places = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": places}
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=os.environ | one)
        assert self._heard() == "ready"

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, seconds: float) -> int:
        """Go on for so long at most, and return how that ended."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return int(self._heard())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def content(folder: Path) -> dict[str, bytes]:
    """All files of a run but those that a kill may leave half written."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def campaign(kills: int, place: Path, seed: int, checkpoint: float, steps: int) -> tuple[int, int]:
    """Kill so many times; return how many kills and runs there were, or raise."""
    place.mkdir()
    experiment = replace(EXPERIMENT, steps=steps, metrics_every=max(1, steps // RECORDS))
    server, draw = Server(place, experiment, checkpoint), Random(seed)
    begin = time.monotonic()
    assert server.run(3600.0) == 0
    long = time.monotonic() - begin
    whole, killed, runs = content(server.out), 0, 0
    try:
        while killed < kills:
            shutil.rmtree(server.out)
            for attempt in range(1000):
                # Sometimes long enough to get on for sure, whatever the interval.
                most = 2 * checkpoint + long / 2 if attempt % 3 == 2 else 0.7 * long
                ended = server.run(draw.uniform(0.0, most) if killed < kills else 3600.0)
                if ended == 0:
                    break
                if ended != -signal.SIGKILL:
                    said = Path(f"{server.out}.said").read_text()
                    raise AssertionError(f"seed {seed}: the run ended with status {ended}: {said}")
                killed += 1
            if content(server.out) != whole:
                raise AssertionError(f"seed {seed}: other bytes after {killed} kills, {server.out}")
            runs += 1
    finally:
        server.close()
    return killed, runs


def main() -> None:
    parser = ArgumentParser(prog="python -m hostile.kills", description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int)
    parser.add_argument("--checkpoint", type=float, default=0.0, help="seconds between checkpoints")
    parser.add_argument("--steps", type=int, default=1000, help="of each run")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    each = -(-asked.kills // asked.workers)
    with TemporaryDirectory(prefix="kills-") as place, ThreadPoolExecutor(asked.workers) as pool:
        under_way = [
            pool.submit(
                *(campaign, each, Path(place) / str(k), asked.seed + k),
                *(asked.checkpoint, asked.steps),
            )
            for k in range(asked.workers)
        ]
        done = [one.result() for one in under_way]
    kills, runs = (sum(numbers) for numbers in zip(*done, strict=True))
    print(f"{kills:,} kills in {runs:,} runs, every one ended in the bytes of a whole run")


if __name__ == "__main__":
    main()
