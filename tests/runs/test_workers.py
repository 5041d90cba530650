"""Jobs on several processes: the bytes of one, whoever dies on the way."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

import digrad as dg
from digrad.base.errors import ParameterError
from digrad.results.experiment import Experiment, KindSpec, to_table
from digrad.runs import dispatch, execute, local_workers
from digrad.runs.dispatch import WorkerError
from runs_of_workers import LONG, OFTEN, SMALL, content, steps_of, wait_until


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Experiment], dict[str, bytes]]:
    """What one process makes of an experiment."""
    made: dict[int, dict[str, bytes]] = {}

    def run(experiment: Experiment) -> dict[str, bytes]:
        if experiment.steps not in made:
            out = tmp_path_factory.mktemp("whole") / "run"
            made[experiment.steps] = content(execute.run(experiment, out, workers=1))
        return made[experiment.steps]

    return run


def children(parent: int) -> list[int]:
    """The workers of a process that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, above = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            said = (path / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(above) == parent and state != "Z" and b"digrad.runs.worker" in said:
            found.append(int(path.name))
    return sorted(found)


def test_bytes_do_not_depend_on_workers(tmp_path: Path, whole: Any) -> None:
    for workers in (2, 3):
        seen: dict[int, list[int]] = {}
        note = {"progress": lambda job, t, seen=seen: seen.setdefault(job.index, []).append(t)}
        out = execute.run(SMALL, tmp_path / str(workers), workers=workers, **note)
        assert content(out) == whole(SMALL)
        assert seen == {k: [6, 12, 18, 24, 30, 36, 40] for k in range(4)}
        assert children(os.getpid()) == []


@pytest.mark.slow
def test_as_many_as_pay(
    tmp_path: Path, whole: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One process begins; where much is left, workers go on from where it was."""
    shared: list[tuple[int, list[int]]] = []

    def run_on_workers(settings: Any, store: Any, pool_for: Any) -> None:
        kept = [store.job(k) for k in range(4)]
        shared.append((pool_for.args[-1], [file.t for file in kept if file]))
        dispatch.run_on_workers(settings, store, pool_for)

    monkeypatch.setattr(execute, "run_on_workers", run_on_workers)
    monkeypatch.setattr(local_workers, "usable_cores", lambda: 2)
    assert content(execute.run(SMALL, tmp_path / "short")) == whole(SMALL)
    assert shared == []
    monkeypatch.setattr(execute, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(execute, "WORTH_SECONDS", 0.0)
    assert content(execute.run(SMALL, tmp_path / "long")) == whole(SMALL)
    assert shared == [(2, [12])]
    monkeypatch.setattr(local_workers, "usable_cores", lambda: 1)
    assert content(execute.run(SMALL, tmp_path / "one")) == whole(SMALL)
    assert len(shared) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed(
    tmp_path: Path, whole: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and another goes on from what was stored."""
    killed: list[int] = []
    seen: dict[int, list[int]] = {k: [] for k in range(4)}
    out = tmp_path / "run"

    def kill(job: Any, t: int) -> None:
        seen[job.index].append(t)
        if not killed and sum(map(bool, seen.values())) == 2:  # both are at work
            killed.append(children(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    with caplog.at_level(logging.WARNING, logger="digrad"):
        execute.run(LONG, out, workers=2, progress=kill, **OFTEN)
    assert content(out) == whole(LONG)
    (said,) = caplog.messages
    assert said.startswith(f"worker 1 (process {killed[0]}) was killed by SIGKILL at ")
    again = [len(steps) - len(set(steps)) for steps in seen.values()]
    assert max(again) <= 1  # what was not stored yet, and no more


OWN = """
import os
import signal
from digrad.base.errors import ParameterError
from digrad.problems import Quadratic

class Deadly(Quadratic):
    def gradient(self, x, sample, rows=slice(None)):
        print("a word that must not get between the messages")
        os.kill(os.getpid(), signal.SIGKILL)

class Wrong(Quadratic):
    def gradient(self, x, sample, rows=slice(None)):
        raise ParameterError("no gradient here")

def deadly(nodes, device, dtype):
    return Deadly.generate(nodes, 3, dtype=dtype)

def wrong(nodes, device, dtype):
    return Wrong.generate(nodes, 3, dtype=dtype)
"""


@pytest.mark.slow
def test_a_job_that_kills_and_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = replace(SMALL, folders=(tmp_path,), networks=SMALL.networks[:1])
    deadly = replace(own, problem=KindSpec("own.py:deadly"), algorithms=own.algorithms[:1])
    with pytest.raises(WorkerError, match=r"(?s)killed by SIGKILL at push-pull on star, as did 2"):
        execute.run(deadly, tmp_path / "deadly", workers=2)
    wrong = replace(own, problem=KindSpec("own.py:wrong"))
    with pytest.raises(ParameterError, match="no gradient here"):
        execute.run(wrong, tmp_path / "wrong", workers=2)
    with pytest.raises(ParameterError, match="at least 1, got 0"):
        execute.run(SMALL, tmp_path / "none", workers=0)
    assert children(os.getpid()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_parent_is_stopped(how: signal.Signals, tmp_path: Path, whole: Any) -> None:
    """Its workers end by themselves; what is stored is gone on from, to the same bytes."""
    out, file = tmp_path / "run", tmp_path / "long.toml"
    file.write_bytes(tomli_w.dumps(to_table(LONG)).encode())
    command = [sys.executable, "-m", "digrad", "run", str(file), "--out", str(out)]
    options = ["--workers", "2", "--checkpoint", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as parent:
        wait_until(lambda: len(steps_of(out)) > 0)
        mine = children(parent.pid)
        parent.send_signal(how)
        status = parent.wait(timeout=60)
    assert status == (130 if how == signal.SIGINT else -how)
    assert 1 <= len(mine) <= 2
    wait_until(lambda: not any(alive(pid) for pid in mine), 5.0)
    assert 0 < sum(steps_of(out).values()) < 4 * LONG.steps
    assert content(execute.run(LONG, out, resume=True, workers=2)) == whole(LONG)


def test_a_worker_of_a_killed_parent_is_silent() -> None:
    """Also where it notices because its message cannot be sent."""
    code = "import os; from digrad.runs.worker import _Output; out = _Output(os.fdopen(1, 'wb'))"
    code += "; input(); out.send(1)"
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.close()
        process.stdin.write(b"go on\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_objects_from_python(caplog: pytest.LogCaptureFixture) -> None:
    """They are sent where that can be, and the run is kept in memory."""
    problem = dg.problems.Quadratic.generate(5, 3, sigma=0.5)
    nets = {"a": dg.network("star", n=5), "b": dg.network("exponential", n=5)}
    options: dict[str, Any] = {"steps": 40, "seeds": 2, "progress": False}
    one = dg.simulate(problem, nets, **options, workers=1)
    two = dg.simulate(problem, nets, **options, workers=2)
    assert caplog.messages == []
    assert same(one, two)
    odd = dg.simulate(problem, nets, **options, workers=2, schedule=lambda t: 1.0)
    (said,) = caplog.messages
    assert said.startswith("one process does all jobs, as others cannot be given: ")
    assert same(one, odd)


def same(one: dg.Run, other: dg.Run) -> bool:
    a, b = one.results.columns, other.results.columns
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
