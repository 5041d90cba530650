"""Experiments on real processes: the simulator's numbers, in the simulator's folder."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from digrad.algorithms import ALGORITHMS, Needs
from digrad.algorithms.estimators import EstimatedMethod
from digrad.base.errors import ParameterError
from digrad.base.metrics import VALUES, columns_of
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec, to_table
from digrad.results.folder import RunFolderError
from digrad.results.launches import Launch, launcher
from digrad.results.trials import Results
from digrad.runs import execute
from digrad.runs.joining import INTERFACES, joined, stay_on_this_machine
from engines.ranks import pool
from runs.test_execute import content, rows

QUADRATIC = KindSpec("quadratic", {"dim": 3, "sigma": 0.5})
LOGISTIC = KindSpec("logistic", {"dim": 4, "samples": 9, "batch": 2})
RING = NetworkSpec("undirected-ring", n=5, weights="lazy")
SMALL = Experiment(
    networks=(NetworkSpec("multi-sub-ring", n=5), NetworkSpec("exponential", n=5)),
    algorithms=(AlgorithmSpec("push-pull", "S-PP"), AlgorithmSpec("sgp", lr=(0.2,))),
    problem=QUADRATIC,
    steps=20,
    lr=(0.1, 0.05),
    seeds=(0, 4),
    metrics_every=6,
    dtype="float64",
)
ONE = replace(SMALL, networks=SMALL.networks[:1], algorithms=SMALL.algorithms[:1])
# Each step adds a few roundings, 1e-16 of numbers of order 1, and averages them away again.
CLOSE = {"rel": 1e-11, "abs": 1e-13}


def ran(task: str, experiment: Experiment, out: Path, world: int = 2, **options: Any) -> list[Any]:
    table = to_table(experiment)
    return pool().run(f"train.tasks:{task}", world, table=table, out=str(out), **options)


def same(a: Path, b: Path) -> None:
    """The same trials, steps, messages and bytes; all else to rounding."""
    for one, other in zip(rows(a), rows(b), strict=True):
        exact = (*columns_of()[:5], "messages", "bytes", "diverged_at")
        assert [one[k] for k in exact] == [other[k] for k in exact]
        for metric in VALUES:
            assert (one[metric] == "") == (other[metric] == ""), metric
            assert float(one[metric] or 0) == pytest.approx(float(other[metric] or 0), **CLOSE)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(QUADRATIC, id="quadratic"),
        pytest.param(LOGISTIC, id="logistic", marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_is_the_simulators(tmp_path: Path, problem: KindSpec, world: int) -> None:
    """Blocks of three and two nodes; bytes and all; plotted beside the simulator's."""
    fits = [a for a in ALGORITHMS if Needs.TREES not in ALGORITHMS[a].needs]
    if problem == QUADRATIC:  # has no samples to remember
        fits = [a for a in fits if not issubclass(ALGORITHMS[a], EstimatedMethod)]
    algorithms = tuple(AlgorithmSpec(name) for name in fits)
    experiment = replace(SMALL, networks=(RING,), algorithms=algorithms, problem=problem)
    sim, real = execute.run(experiment, tmp_path / "sim"), tmp_path / "real"
    assert ran("train", experiment, real, world) == [""] * world
    same(sim, real)
    files, kept = content(real), content(sim)
    assert files.keys() - kept.keys() == {"processes.json"}
    assert files["experiment.toml"] == kept["experiment.toml"]
    assert Results.read(sim, real).finished(20) == 2 * Results.read(sim).finished(20)


@pytest.mark.parametrize(
    "problem",
    [
        KindSpec("images", {"data": "digits", "model": "mlp", "batch": 4}),
        KindSpec("quadratic", {"dim": 1, "sigma": 0.0}),
    ],
    ids=["images", "one number"],
)
def test_other_problems(tmp_path: Path, problem: KindSpec) -> None:
    """A module's gradients take the rank's own samples; a row may be a single number."""
    experiment = replace(SMALL, problem=problem, steps=4, metrics_every=2, seeds=(1,))
    sim, real = execute.run(experiment, tmp_path / "sim"), tmp_path / "real"
    assert ran("train", experiment, real) == ["", ""]
    same(sim, real)


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["sgd", "adamw"])
def test_running_means_and_an_inner_optimizer(tmp_path: Path, inner: str) -> None:
    """Buffers stay with their rank and are judged together, as in one process."""
    network = {"data": "digits", "model": "resnet-20", "norm": "batch", "batch": 4}
    problem = KindSpec("images", {**network, "samples": 60, "test_samples": 20})
    algorithm = AlgorithmSpec("push-pull", "S-PP", params={"inner": inner})
    experiment = replace(ONE, problem=problem, algorithms=(algorithm,), lr=(0.01,))
    experiment = replace(experiment, steps=4, metrics_every=2, seeds=(1,))
    sim, real = execute.run(experiment, tmp_path / "sim"), tmp_path / "real"
    assert ran("train", experiment, real) == ["", ""]
    same(sim, real)


@pytest.mark.parametrize(
    ("dtype", "dim", "size"), [("", 3, 24), ("bfloat16", 3, 6), ("bfloat16", 1, 8)]
)
def test_bytes_are_those_really_sent(tmp_path: Path, dtype: str, dim: int, size: int) -> None:
    """DSGD sends the same in every step, so the column must end at what the engines counted."""
    dsgd = AlgorithmSpec("dsgd", lr=(0.1,))
    problem = KindSpec("quadratic", {"dim": dim})
    experiment = replace(ONE, networks=(RING,), algorithms=(dsgd,), problem=problem, seeds=(3,))
    sent = ran("counted", experiment, tmp_path / "run", message_dtype=dtype)
    assert sum(each[0] for each in sent) == int(rows(tmp_path / "run", step=20)[0]["bytes"])
    assert sum(each[0] for each in sent) == 20 * 10 * size  # steps, links, bytes of a row


def test_the_same_bytes_without_shared_memory(tmp_path: Path) -> None:
    for name, memory in (("memory", "auto"), ("wire", False)):
        assert ran("train", ONE, tmp_path / name, shared_memory=memory) == ["", ""]
    assert rows(tmp_path / "wire") == rows(tmp_path / "memory")


def test_push_sum_weights_are_not_rounded(tmp_path: Path) -> None:
    experiment = replace(ONE, algorithms=SMALL.algorithms[1:], seeds=(3,))
    assert ran("train", experiment, tmp_path / "run", message_dtype="bfloat16") == ["", ""]
    row = rows(tmp_path / "run", step=20)[0]
    links = int(row["messages"]) // 20
    assert int(row["bytes"]) == 20 * links * (3 * 2 + 8)


def interrupted(experiment: Experiment, tmp_path: Path, **stops: Any) -> None:
    """Stop rank 0 in the middle of every job; what comes out in the end is the same bytes."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert ran("train", experiment, whole, **stops) == ["", ""]
    jobs = len(list((whole / "jobs").iterdir()))
    for job in range(jobs):
        said = ran("train", experiment, broken, stop=[job, 12], resume=True, **stops)
        assert said[0] == "KeyboardInterrupt: "
        assert said[1].startswith("PeerError: rank 0 stopped: KeyboardInterrupt")
    assert ran("train", experiment, broken, resume=True, **stops) == ["", ""]
    assert content(whole) == content(broken)


def test_interrupted_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    interrupted(SMALL, tmp_path)


@pytest.mark.slow
def test_interrupted_with_running_means(tmp_path: Path) -> None:
    """Each node's buffers are part of what is stored."""
    network = {"data": "digits", "model": "resnet-20", "norm": "batch", "batch": 4}
    problem = KindSpec("images", {**network, "samples": 60, "test_samples": 20})
    experiment = replace(ONE, problem=problem, lr=(0.01,), seeds=(1,))
    interrupted(replace(experiment, steps=14, metrics_every=12), tmp_path)


def test_interrupted_in_short_messages_and_single_precision(tmp_path: Path) -> None:
    algorithms = tuple(map(AlgorithmSpec, ("push-diging", "extra", "diffusion", "sonata")))
    experiment = replace(ONE, networks=(RING,), algorithms=algorithms, dtype="float32")
    interrupted(experiment, tmp_path, message_dtype="bfloat16")


@pytest.mark.parametrize("ways", [(2, 0), (0, 2), (1, 2), (2, 1), (2, 3)], ids=str)
def test_one_begins_and_another_ends(tmp_path: Path, ways: tuple[int, int]) -> None:
    """Ranks in any number, or the simulator (0)."""
    out = tmp_path / "moved"
    stop = [1, 12]

    def halfway(job: Any, t: int) -> None:
        if [job.index, t] == stop:
            raise KeyboardInterrupt

    if ways[0]:
        assert ran("train", SMALL, out, ways[0], stop=stop)[0] == "KeyboardInterrupt: "
    else:
        with pytest.raises(KeyboardInterrupt):
            execute.run(SMALL, out, progress=halfway, checkpoint_seconds=-1.0)
    assert [row["step"] for row in rows(out)][-1] == "12"
    if ways[1]:
        assert ran("train", SMALL, out, ways[1], resume=True) == [""] * ways[1]
    else:
        execute.run(SMALL, out, resume=True)
    same(execute.run(SMALL, tmp_path / "sim"), out)


def test_trials_that_diverge(tmp_path: Path) -> None:
    """At the same step as in the simulator; also when the run is resumed after it."""
    star = NetworkSpec("star", n=9)
    wild = replace(ONE, networks=(star,), lr=(0.1, 3.0), dtype="float32")
    experiment = replace(wild, steps=70, metrics_every=1, scale_by_n_pi=False)
    sim, real, broken = execute.run(experiment, tmp_path / "sim"), tmp_path / "1", tmp_path / "2"
    assert ran("train", experiment, real) == ["", ""]
    ends = [row["diverged_at"] for row in rows(real)]
    assert ends == [row["diverged_at"] for row in rows(sim)]
    assert {*ends} > {""}
    ran("train", experiment, broken, stop=[0, 68])
    assert ran("train", experiment, broken, resume=True) == ["", ""]
    assert content(broken) == content(real)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_trial_that_diverges_on_one_rank(tmp_path: Path, culprit: int) -> None:
    """Has diverged for all, at the very step, between two records."""
    said = ran("overflowing", ONE, tmp_path, culprit=culprit, since=10)
    assert said == ["", ""]
    found = [(row["step"], row["diverged_at"]) for row in rows(tmp_path, lr=0.1, seed=0)]
    assert found == [("0", "10"), ("6", "10")]
    assert {row["diverged_at"] for row in rows(tmp_path, seed=4)} == {""}


def test_folders_that_are_refused(tmp_path: Path) -> None:
    """By all ranks, with one text; rank 0 has it first-hand."""
    out = tmp_path / "run"
    assert ran("train", ONE, out, stop=[0, 12])[0] == "KeyboardInterrupt: "
    before = content(out)
    said = ran("train", ONE, out)
    text = f"{out} already holds a run\n  hint: resume=True goes on"
    assert said[0].startswith(f"RunFolderError: {text}")
    assert said[1].startswith(f"SharedError: {text}")
    said = ran("train", replace(ONE, steps=21), out, resume=True)
    assert "steps was 20 and is 21" in said[0]
    said = ran("train", ONE, out, resume=True, message_dtype="bfloat16")
    assert "were exact and would now be bfloat16" in said[0]
    assert content(out) == before
    file = out / "jobs" / "000.npz"
    file.write_bytes(file.read_bytes()[:-100])
    said = ran("train", ONE, out, resume=True)
    assert said[0].startswith(f"RunFolderError: {file} is damaged")
    assert said[1].startswith(f"SharedError: {file} is damaged")


def test_the_simulator_does_not_go_on_where_messages_were_rounded(tmp_path: Path) -> None:
    options = {"message_dtype": "bfloat16", "stop": [0, 12]}
    assert ran("train", ONE, tmp_path, **options)[0] == "KeyboardInterrupt: "
    with pytest.raises(RunFolderError, match="bfloat16 and would now be exact") as error:
        execute.run(ONE, tmp_path, resume=True)
    assert "`digrad train --message-dtype bfloat16`" in str(error.value)
    (tmp_path / "processes.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"processes.json is damaged[\s\S]*hint: delete"):
        execute.run(ONE, tmp_path, resume=True)


def test_workers_that_are_started_again_go_on(tmp_path: Path) -> None:
    """Those of the same launcher, without being told to; another one's are refused."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    ran("train", ONE, whole)
    ran("train", ONE, out, stop=[0, 12], launcher="7f3a")
    assert ran("train", ONE, out, launcher="9b1c")[0].startswith("RunFolderError")
    assert ran("train", ONE, out, launcher="7f3a") == ["", ""]
    assert (out / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    assert Launch.read(out) == Launch("7f3a")
    assert launcher({"TORCHELASTIC_RUN_ID": "none"}, 7).endswith(" 7")


def test_a_rank_that_cannot_begin_is_named_by_all(tmp_path: Path) -> None:
    said = ran("unlucky", ONE, tmp_path / "run", culprit=1)
    assert said[0] == "SharedError: rank 1: there is no data here"
    assert said[1] == "DigradError: there is no data here"
    said = ran("unlucky", ONE, tmp_path / "run", culprit=0)
    assert said[1] == "SharedError: there is no data here"
    assert not (tmp_path / "run").exists()
    said = ran("train", replace(ONE, networks=(NetworkSpec("complete", n=1),)), tmp_path / "run")
    assert said[1].startswith("SharedError: 2 ranks cannot share 1 nodes")
    assert not (tmp_path / "run").exists()


def test_a_rank_that_stops_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    ran("train", ONE, whole)
    said = ran("stumbling", ONE, out, culprit=1, at=3, timeout=2.0)
    assert said[0].startswith("PeerError: rank 1 stopped: DigradError: the disk is full")
    assert ran("train", ONE, out, resume=True) == ["", ""]
    assert content(whole) == content(out)


def test_only_rank_0_speaks(tmp_path: Path) -> None:
    file, out = tmp_path / "one.toml", tmp_path / "out"
    file.write_text(tomli_w.dumps(to_table(ONE)))

    def called(**options: Any) -> list[Any]:
        options = {"file": str(file), "out": str(out), **options}
        return pool().run("train.tasks:command", 2, **options)

    first, other = called(message_dtype="bfloat16", tensorboard=True)
    assert first[0] == 0
    assert first[1].startswith(f"run: {out}\n")
    assert "S-PP" in first[1]
    assert other == [0, "", ""]
    assert Launch.read(out).message_dtype == "bfloat16"
    first, other = called()
    assert first[0] == 2
    assert "already holds a run" in first[1]
    assert other == [2, "", ""]
    first, other = called(file=str(tmp_path / "no.toml"))
    assert "no.toml: no such file" in first[1]
    assert other == [2, "", ""]


def test_scalars_for_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert ran("train", ONE, tmp_path, tensorboard=True) == ["", ""]
    folders = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert folders[0] == "multi-sub-ring-S-PP-step-0.05-seed-0"
    assert len(folders) == 4
    events = EventAccumulator(str(tmp_path / "tensorboard" / folders[0])).Reload()
    for metric in ("loss", "consensus", "tracking", "bytes"):
        found = {scalar.step: scalar.value for scalar in events.Scalars(metric)}
        known = [r for r in rows(tmp_path, lr=0.05, seed=0) if r[metric]]
        assert found == pytest.approx({int(r["step"]): float(r[metric]) for r in known}, rel=1e-6)
    step, exchanging, computing = (
        np.array([s.value for s in events.Scalars(f"seconds/{name}")])
        for name in ("step", "communication", "compute")
    )
    assert len(step) == 4
    np.testing.assert_allclose(step, exchanging + computing, rtol=1e-5)
    assert (exchanging > 0).all()
    assert (computing > 0).all()


def test_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ParameterError, match=r"RANK.*not set\n  hint: start it with `torchrun"):
        joined("cpu", 1.0).__enter__()


@pytest.mark.parametrize(
    ("local", "chosen", "expected"), [("4", None, "lo"), ("2", None, None), ("4", "eth7", "eth7")]
)
def test_messages_stay_on_the_machine(
    monkeypatch: pytest.MonkeyPatch, local: str, chosen: str | None, expected: str | None
) -> None:
    """Where all ranks are on it, unless the user says otherwise."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    for name in INTERFACES:
        monkeypatch.setenv(name, chosen or "")
        if chosen is None:
            monkeypatch.delenv(name)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    stay_on_this_machine()
    assert [os.environ.get(name) for name in INTERFACES] == [expected] * 2


def test_steps_are_never_fused(tmp_path: Path) -> None:
    """Whatever the experiment says, which is stored as it is."""
    for way in ("never", "always"):
        experiment = replace(ONE, compile=way, metrics_every=20)
        assert ran("train", experiment, tmp_path / way) == ["", ""]
    assert rows(tmp_path / "never") == rows(tmp_path / "always")
    assert 'compile = "always"' in (tmp_path / "always" / "experiment.toml").read_text()
