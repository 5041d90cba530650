"""Killed at any moment, one rank or all, started again: the run ends in the same bits."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from digrad.results.experiment import Experiment, KindSpec, to_table
from engines.ranks import SETTINGS
from runs.test_execute import content, rows
from train.test_train import SMALL, ran

pytestmark = pytest.mark.slow
LONG: Experiment = replace(
    SMALL,
    problem=KindSpec("quadratic", {"dim": 40, "sigma": 0.5}),
    steps=1000,
    metrics_every=10,
    lr=(0.01,),
    seeds=(0,),
    dtype="float32",
)
WORLD = 3
# Imports once. For every line "TIMEOUT DELAY WHOM": forks ranks that go on with the run, kills some
# of them DELAY seconds after they have recorded something new (-DELAY: after they were started),
# and prints how each ended.
KILLER = """
import os, signal, socket, sys, time
from pathlib import Path
import torch._dynamo
from digrad import cli
from digrad.runs import execute, joining, ranks, train
file, out, log, world, *options = *sys.argv[1:4], int(sys.argv[4]), *sys.argv[5:]

def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])

def recorded():
    try:
        return os.stat(Path(out) / "metrics.csv").st_mtime_ns
    except OSError:
        return 0

def rank(number, at, timeout):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": at}
    told = os.open(f"{log}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(told, 1), os.dup2(told, 2)
    often = ["--timeout", timeout, "--checkpoint", "0"]
    sys.argv[1:] = ["train", file, "--out", out, "--resume", *often, *options]
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(end.code or 0)
    os._exit(0)

for line in sys.stdin:
    timeout, delay, *whom = line.split()
    at, children, before = port(), [], recorded()
    for number in range(world):
        child = os.fork()
        if child == 0:
            rank(number, at, timeout)
        children.append(child)
    while whom and float(delay) > 0 and recorded() == before:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break  # one has ended: it was done, or could not begin
        time.sleep(0.005)
    time.sleep(abs(float(delay)))
    for k in map(int, whom):
        os.kill(children[k], signal.SIGKILL)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*ends, flush=True)
"""


def write(folder: Path) -> Path:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(to_table(LONG)))
    return file


@pytest.mark.parametrize("options", [[], ["--no-shared-memory"]], ids=["memory", "wire"])
def test_killed_at_random_moments(tmp_path: Path, options: list[str]) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    arguments = [str(write(tmp_path)), str(out), str(log), str(WORLD), *options]
    command, env = [sys.executable, "-c", KILLER, *arguments], {**os.environ, **SETTINGS}
    chance, lengths, killed = random.Random(len(options)), set(), 0
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as killer:
        assert killer.stdin is not None
        assert killer.stdout is not None
        for attempt in range(40):
            if killed >= 8 and len(lengths) >= 3:
                break
            every = attempt % 3 == 0
            whom = list(range(WORLD)) if every else [chance.randrange(WORLD)]
            print(15, chance.uniform(-1.0, 0.5), *whom, file=killer.stdin, flush=True)
            ends = list(map(int, killer.stdout.readline().split()))
            if ends == [0] * WORLD:
                break
            killed += -signal.SIGKILL in ends
            for rank, end in enumerate(ends):
                said = Path(f"{log}.{rank}").read_text()
                # Nobody hangs, and whoever was left says why it ended.
                allowed = (-signal.SIGKILL, 0, 2) if rank in whom else (0, 2)  # 2: before it was
                assert end in allowed, said
                if end == 2:
                    assert re.search("rank|store|processes did not find", said), said
                assert "Traceback" not in said
            if (out / "metrics.csv").exists():
                lengths.add(len(rows(out)))
        print(120, 0, file=killer.stdin, flush=True)  # nobody is killed: however busy the machine
        assert killer.stdout.readline().split() == ["0"] * WORLD
        killer.stdin.close()
    assert killed >= 5
    assert len(lengths) >= 3  # at different places
    ran("train", LONG, tmp_path / "whole", WORLD)
    assert content(out) == content(tmp_path / "whole")


def test_torchrun_starts_killed_workers_again(tmp_path: Path) -> None:
    """They go on by themselves, without --resume."""
    out = tmp_path / "out"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc-per-node", str(WORLD), "--max-restarts", "3", "-m", "digrad", "train"]
    command = [*launcher, *options, str(write(tmp_path)), "--out", str(out)]
    with (tmp_path / "log").open("w") as log:
        torchrun = subprocess.Popen(
            command, env={**os.environ, **SETTINGS}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        for victim, at in ((2, 30), (0, 90)):
            wait_for_rows(out, at, torchrun)
            os.kill(workers(torchrun.pid)[victim], signal.SIGKILL)
        assert torchrun.wait(timeout=300) == 0, (tmp_path / "log").read_text()
    finally:
        torchrun.kill()
    ran("train", LONG, tmp_path / "whole", WORLD)
    for name in ("metrics.csv", "experiment.toml"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_workers_end_with_torchrun(tmp_path: Path) -> None:
    """The agent is killed, and cannot tell them: they notice."""
    out = tmp_path / "out"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc-per-node", "2", "-m", "digrad", "train"]
    command = [*launcher, *options, str(write(tmp_path)), "--out", str(out)]
    with (tmp_path / "log").open("w") as file:
        torchrun = subprocess.Popen(
            command, env={**os.environ, **SETTINGS}, stdout=file, stderr=subprocess.STDOUT
        )
    wait_for_rows(out, 5, torchrun)
    ranks = workers(torchrun.pid)
    assert len(ranks) == 2
    torchrun.kill()
    torchrun.wait()
    end = time.monotonic() + 5
    while any(map(running, ranks)):
        assert time.monotonic() < end, "they live on"
        time.sleep(0.02)
    # A rank that is just asking the store, which lived in torchrun, hears of it there first.
    said = f"torchrun (process {torchrun.pid}) was killed", "rank 0 or in the launcher"
    log = (tmp_path / "log").read_text()
    assert any(words in log for words in said)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_rows(out: Path, count: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 120
    while not (out / "metrics.csv").exists() or len(rows(out)) < count:
        assert process.poll() is None
        assert time.monotonic() < end, "it does not get on"
        time.sleep(0.02)


def workers(launcher: int) -> list[int]:
    """The processes that torchrun has started, by rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            rank = re.search(rb"(?:^|\0)RANK=(\d+)", (path / "environ").read_bytes())
        except OSError:  # it has ended
            continue
        if parent == launcher and rank:
            found[int(rank[1])] = int(path.name)
    return [found[rank] for rank in sorted(found)]
