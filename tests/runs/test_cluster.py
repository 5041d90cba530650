"""Jobs on a Dask cluster: the bytes of one process, whoever dies on the way."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import digrad as dg
from digrad.base.errors import ParameterError
from digrad.results.experiment import to_table
from digrad.runs import cluster_worker, execute
from digrad.runs.cluster import ClusterError
from digrad.runs.loop import HandedOverError
from digrad.runs.worker import At, Failed, Stored
from runs_of_workers import LONG, OFTEN, SMALL, content, steps_of, wait_until

distributed = pytest.importorskip("distributed")


class Cluster:
    """A scheduler and workers, each a process as `dask scheduler` and `dask worker` start it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._all = folder, dict[str, subprocess.Popen[bytes]]()
        file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        wait_until(lambda: file.exists() and bool(file.read_text()))
        self.client = distributed.Client(scheduler_file=str(file), set_as_default=False)
        self.address = self.client.scheduler.address

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
        started = subprocess.Popen(command, cwd=self._folder, stderr=subprocess.DEVNULL)
        self._all[f"{words[0]} {len(self._all)}"] = started
        return started

    def hire(self, count: int) -> list["subprocess.Popen[bytes]"]:
        there = len(self.workers())
        options = ("--no-nanny", "--nthreads", "1", "--no-dashboard")
        made = [self._start("worker", self.address, *options) for _ in range(count)]
        wait_until(lambda: len(self.workers()) == there + count)
        return made

    def workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def close(self) -> None:
        self.client.close(timeout=2)
        for process in self._all.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.hire(2)
    yield made
    made.close()


@pytest.mark.slow
def test_bytes_are_those_of_one_process(tmp_path: Path, cluster: Cluster) -> None:
    one = content(execute.run(SMALL, tmp_path / "one", workers=1))
    assert content(execute.run(SMALL, tmp_path / "far", cluster=cluster.address)) == one
    assert content(execute.run(SMALL, tmp_path / "own", cluster=cluster.client, workers=1)) == one


@pytest.mark.slow
def test_objects_from_python(cluster: Cluster) -> None:
    problem = dg.problems.Quadratic.generate(5, 3, sigma=0.5)
    options: dict[str, Any] = {"steps": 40, "seeds": 2, "progress": False}
    one = dg.simulate(problem, ["star", "exponential"], **options, workers=1)
    far = dg.simulate(problem, ["star", "exponential"], **options, cluster=cluster.client)
    assert one.results.columns["loss"].tolist() == far.results.columns["loss"].tolist()


@pytest.mark.slow
def test_a_worker_is_killed(
    tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, another takes up its job, and the bytes are the same."""
    one = content(execute.run(LONG, tmp_path / "one", workers=1))
    (doomed,) = cluster.hire(1)
    address = {about["pid"]: name for name, about in pids(cluster).items()}[doomed.pid]
    seen: set[int] = set()

    def kill(job: Any, t: int) -> None:
        seen.add(job.index)
        if len(seen) == 3 and doomed.poll() is None:  # all are at work
            doomed.send_signal(signal.SIGKILL)
            doomed.wait()

    with caplog.at_level(logging.WARNING, logger="digrad"):
        out = execute.run(LONG, tmp_path / "far", cluster=cluster.address, progress=kill, **OFTEN)
    assert content(out) == one
    assert any(said.startswith(f"worker {address} was lost at ") for said in caplog.messages)


def pids(cluster: Cluster) -> dict[str, dict[str, int]]:
    found = cluster.client.run(os.getpid)
    return {address: {"pid": pid} for address, pid in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_run_is_stopped(how: signal.Signals, tmp_path: Path, cluster: Cluster) -> None:
    """What is stored is gone on from, on the cluster or without it, to the same bytes."""
    out, file = tmp_path / "run", tmp_path / "long.toml"
    file.write_bytes(tomli_w.dumps(to_table(LONG)).encode())
    command = [sys.executable, "-m", "digrad", "run", str(file), "--out", str(out)]
    options = ["--cluster", cluster.address, "--checkpoint", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as parent:
        wait_until(lambda: len(steps_of(out)) > 0)
        parent.send_signal(how)
        status = parent.wait(timeout=60)
    assert status == (130 if how == signal.SIGINT else -how)
    assert 0 < sum(steps_of(out).values()) < 4 * LONG.steps
    one = content(execute.run(LONG, tmp_path / "one", workers=1))
    again = {"cluster": cluster.address} if how == signal.SIGINT else {"workers": 1}
    assert content(execute.run(LONG, out, resume=True, **again)) == one


@pytest.mark.slow
def test_the_scheduler_is_gone(tmp_path: Path) -> None:
    """The run ends with one clear error, and what is done is kept."""
    lost = Cluster(tmp_path)
    lost.hire(1)

    def kill(job: Any, t: int) -> None:
        lost.close()

    with pytest.raises(ClusterError, match=r"(?s)no longer answers.*resume=True"):
        execute.run(LONG, tmp_path / "run", cluster=lost.address, progress=kill, **OFTEN)
    one = content(execute.run(LONG, tmp_path / "one", workers=1))
    assert content(execute.run(LONG, tmp_path / "run", resume=True, workers=1)) == one


def test_what_is_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("digrad.runs.cluster.CONNECT", 0.2)
    with pytest.raises(ClusterError, match=r"(?s)no scheduler answers at .*dask scheduler"):
        execute.run(SMALL, tmp_path / "a", cluster="tcp://127.0.0.1:9")
    with pytest.raises(ParameterError, match=r"(?s)cluster cannot be 5.*tcp://host:8786"):
        execute.run(SMALL, tmp_path / "b", cluster=5)
    odd: dict[str, Any] = {"schedule": lambda t: 1.0, "progress": False, "steps": 2}
    with pytest.raises(ParameterError, match=r"(?s)cannot be given all.*lambda.*without a cluster"):
        dg.simulate("quadratic", "star", **odd, cluster="tcp://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ParameterError, match=r"(?s)need Dask.*digrad\[cluster\]"):
        execute.run(SMALL, tmp_path / "c", cluster="tcp://127.0.0.1:9")


def test_a_mailbox_keeps_the_last_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    box = cluster_worker.Mailbox()
    for t in range(3):
        box.send(At(0, t))
    assert box.collect(stop=False) == [At(0, 2)]
    assert box.collect(stop=True) == []
    with pytest.raises(HandedOverError):
        box.send(At(0, 3))
    box.send(At(0, 4))  # once: what follows is on the way out
    monkeypatch.setattr(cluster_worker, "FORGOTTEN", -1.0)  # nobody has asked for long
    box.send(Failed(ValueError()))
    with pytest.raises(HandedOverError):
        box.send(At(0, 5))
    assert [type(said) for said in box.collect(stop=False)] == [At, Failed]
    assert Stored not in box.collect(stop=False)
