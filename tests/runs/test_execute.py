"""Run folders: what is recorded is what the recursion does, and no interruption changes a byte."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

from digrad.algorithms import ALGORITHMS, Needs
from digrad.algorithms.estimators import EstimatedMethod
from digrad.base.errors import DigradError
from digrad.base.files import WriteError
from digrad.base.metrics import VALUES, columns_of
from digrad.engines.simulator import Simulator
from digrad.networks import build
from digrad.problems import Quadratic
from digrad.results.experiment import (
    AlgorithmSpec,
    Experiment,
    ExperimentError,
    KindSpec,
    NetworkSpec,
    load_experiment,
    to_table,
)
from digrad.results.folder import RunFolder, RunFolderError
from digrad.results.lock import LockedError, locked
from digrad.runs import execute, planning
from digrad.runs.execution import Execution
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import Recursion, Trials
from digrad.runs.schedules import StepDecay
from digrad.theory import Setting, constants, gamma_theorem, perron

QUADRATIC = KindSpec("quadratic", {"dim": 3, "sigma": 0.5})
STAR = NetworkSpec("star", n=5)  # nπ is not 1
SMALL = Experiment(
    networks=(STAR, NetworkSpec("exponential", name="Exp, 5", n=5)),
    algorithms=(AlgorithmSpec("push-pull", "S-PP"), AlgorithmSpec("sgp", lr=(0.2,))),
    problem=QUADRATIC,
    schedule=KindSpec("step-decay", {"factor": 0.5, "period": 7}),
    steps=20,
    lr=(0.1, 0.05),
    seeds=(0, 4),
    metrics_every=6,
)
ONE = replace(SMALL, networks=(STAR,), algorithms=(AlgorithmSpec("push-pull"),))
Row = dict[str, str]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


OFTEN = {"checkpoint_seconds": -1.0}  # a checkpoint at every record


def rows(folder: Path, **wanted: object) -> list[Row]:
    with (folder / "metrics.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    return [row for row in found if all(row[k] == str(v) for k, v in wanted.items())]


def content(folder: Path) -> dict[str, bytes]:
    """What must not depend on interruptions: all but what a kill left half written, and times."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    files = [path for path in files if path.name != "seconds.csv"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def direct(experiment: Experiment, topology: str, name: str, sizes: list[float]) -> Any:
    """The same run without execute: (recursion, evaluator), trials as (size, seed) pairs."""
    net, dtype = build(topology, 5), getattr(torch, experiment.dtype)
    problem = Quadratic.generate(5, 3, sigma=0.5, dtype=dtype)
    trials = Trials(list(experiment.seeds) * len(sizes), np.repeat(sizes, len(experiment.seeds)))
    algorithm, schedule = ALGORITHMS[name](), StepDecay(0.5, 7)
    recursion = Recursion(algorithm, Simulator(net, dtype=dtype), problem, trials, schedule)
    return recursion, Evaluator.make(algorithm, problem, net)


def test_what_lies_in_the_folder(tmp_path: Path) -> None:
    out = execute.run(SMALL, tmp_path / "new" / "run")
    jobs = [f"jobs/{k:03d}.npz" for k in range(4)]
    networks = [f"networks/{k:03d}.npz" for k in range(2)]
    files = ["environment.json", "experiment.toml", *jobs, "metrics.csv", *networks]
    assert sorted(content(out)) == files
    stored = load_experiment(out / "experiment.toml")
    assert stored == planning.resolve_defaults(SMALL)
    assert stored.problem.params.items() > SMALL.problem.params.items()  # defaults written out
    versions = json.loads((out / "environment.json").read_text())
    assert torch.__version__.startswith(versions["torch"])  # a wheel may add "+cu130"
    with (out / "metrics.csv").open(newline="") as file:
        assert tuple(next(csv.reader(file))) == columns_of()
    order = [tuple(row[k] for k in columns_of()[:5]) for row in rows(out)]
    sizes = {"S-PP": ("0.1", "0.05"), "sgp": ("0.2",)}
    assert order == [
        (net, algorithm, size, seed, step)
        for net in ("star", "Exp, 5")
        for algorithm in ("S-PP", "sgp")
        for size in sizes[algorithm]
        for seed in ("0", "4")
        for step in ("0", "6", "12", "18", "20")
    ]
    assert {row["diverged_at"] for row in rows(out)} == {""}
    assert all(row["accuracy"] == "" and row["loss"] != "" for row in rows(out))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_records_are_those_of_the_recursion(tmp_path: Path, dtype: str) -> None:
    """Number by number: the shapes are the same, so the bits are."""
    experiment = replace(SMALL, dtype=dtype)
    out = execute.run(experiment, tmp_path / dtype)
    for topology, label in (("star", "star"), ("exponential", "Exp, 5")):
        n_pi = perron(build(topology, 5)).n_pi
        for name, called, given, used in (
            ("push-pull", "S-PP", [0.1, 0.05], [0.1 * (1 / n_pi), 0.05 * (1 / n_pi)]),
            ("sgp", "sgp", [0.2], [0.2]),
        ):
            recursion, evaluator = direct(experiment, topology, name, used)
            moment = recursion.start()
            for t in (0, 6, 12, 18, 20):
                moment = recursion.advance(moment, t)
                read = evaluator.read(moment)
                for k, (size, seed) in enumerate((s, i) for s in given for i in (0, 4)):
                    wanted = {"network": label, "algorithm": called, "lr": size}
                    (row,) = rows(out, **wanted, seed=seed, step=t)
                    got = [float(row[m] or "nan") for m in VALUES]
                    np.testing.assert_array_equal(got, [float(read[m][k]) for m in VALUES])


@pytest.mark.parametrize(("steps", "every"), [(5, 1), (350, 3)])
def test_a_hundredth_of_the_run(tmp_path: Path, steps: int, every: int) -> None:
    out = execute.run(replace(ONE, steps=steps, metrics_every=0, seeds=(1,)), tmp_path / "run")
    seen = [int(row["step"]) for row in rows(out, lr=0.1)]
    assert seen == [*range(0, steps, every), steps]


@pytest.mark.parametrize("every", [1, 7, 500])
def test_a_trial_that_diverges(tmp_path: Path, every: int) -> None:
    """It ends at the very step at which a number became infinite; the others do not notice."""
    base = replace(ONE, steps=150, metrics_every=every, schedule=KindSpec("constant"))
    wild = execute.run(replace(base, lr=(0.1, 9.0)), tmp_path / "wild")
    tame = execute.run(replace(base, lr=(0.1, 0.3)), tmp_path / "tame")
    n_pi = perron(build("star", 5)).n_pi
    recursion, _ = direct(base, "star", "push-pull", [0.1 * (1 / n_pi), 9.0 * (1 / n_pi)])
    recursion = replace(recursion, schedule=lambda t: 1.0)
    moment, ends = recursion.start(), dict[int, int]()
    while moment.t < 150:
        moment = recursion.advance(moment, moment.t + 1)
        for seed, x in zip((0, 4), moment.state.x[2:], strict=True):
            if not x.isfinite().all():
                ends.setdefault(seed, moment.t)
    assert set(ends) == {0, 4}
    assert all(10 < end < 150 for end in ends.values())
    for seed, end in ends.items():
        found = rows(wild, lr=9.0, seed=seed)
        assert [int(row["step"]) for row in found] == list(range(0, end, every))
        assert {row["diverged_at"] for row in found} == {str(end)}
        losses = np.array([float(row["loss"] or "inf") for row in found])
        finite = np.isfinite(losses).sum()  # squares overflow before the numbers themselves
        assert np.isfinite(losses[:finite]).all()
        assert finite > 0.4 * len(found)
        assert every > 1 or "inf" in {row["loss"] for row in found}
    assert rows(wild, lr=0.1) == rows(tame, lr=0.1)
    assert len(rows(tame, lr=0.3)) == len(rows(tame, lr=0.1))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_sweep_in_parts(tmp_path: Path, at_once: int) -> None:
    """To rounding, 1e-12 after 20 steps with numbers of order 1: other shapes, other sums."""
    whole = execute.run(replace(SMALL, dtype="float64"), tmp_path / "whole")
    parts = execute.run(replace(SMALL, dtype="float64", trials_at_once=at_once), tmp_path / "parts")
    assert len(list((parts / "jobs").iterdir())) == 2 * (-(-4 // at_once) + -(-2 // at_once))
    for a, b in zip(rows(whole), rows(parts), strict=True):
        assert [a[k] for k in columns_of()[:5]] == [b[k] for k in columns_of()[:5]]
        for metric in VALUES:
            one, other = float(a[metric] or 0), float(b[metric] or 0)
            assert one == pytest.approx(other, rel=1e-12, abs=1e-12)


def test_a_large_sweep_is_cut() -> None:
    """Whatever the number of cores, into parts that keep several busy; all trials, in order."""
    problem = KindSpec("quadratic", {"dim": 6000, "rotate": False})
    large = replace(ONE, problem=problem, lr=(0.1, 0.05, 0.02), seeds=tuple(range(6)))
    jobs = planning.plan(planning.resolve_defaults(large)).jobs  # 18 trials of 30,000 numbers
    assert [len(job.trials) for job in jobs] == [9, 9]
    pairs = [(size, seed) for size in large.lr for seed in large.seeds]
    assert [label[2:] for job in jobs for label in job.labels] == pairs
    small = planning.plan(planning.resolve_defaults(replace(large, seeds=(0, 1)))).jobs
    assert [len(job.trials) for job in small] == [6]


def test_step_sizes_are_scaled_as_documented() -> None:
    def used(**changes: Any) -> list[list[float]]:
        return [list(job.scaled.lr) for job in planning.plan(changed(changes)).jobs]

    def changed(changes: dict[str, Any]) -> Experiment:
        algorithms = AlgorithmSpec("push-pull"), AlgorithmSpec("sgp")
        return replace(ONE, algorithms=algorithms, lr=(0.5, 1.0), seeds=(0,), **changes)

    net = build("star", 5)
    n_pi = perron(net).n_pi
    assert abs(n_pi - 1) > 0.1
    assert used() == [pytest.approx([0.5 / n_pi, 1 / n_pi]), [0.5, 1.0]]
    assert used(scale_by_n_pi=False) == [[0.5, 1.0], [0.5, 1.0]]
    given = {"L": 2.0, "sigma": 1e6, "delta_f": 3.0}  # so much noise that T counts
    gamma = gamma_theorem(constants(net), Setting(**given, T=20))
    for scaled in (True, False):
        got = used(schedule=KindSpec("theorem", given), scale_by_n_pi=scaled)
        assert got == [
            pytest.approx([gamma / 2, gamma]),
            pytest.approx([gamma * n_pi / 2, gamma * n_pi]),
        ]


class _Stop:
    """Progress that interrupts every job once at each of these steps."""

    def __init__(self, *at: int) -> None:
        self.at, self.seen = at, set[tuple[int, int]]()

    def __call__(self, job: planning.Job, t: int) -> None:
        if t in self.at and (job.index, t) not in self.seen:
            self.seen.add((job.index, t))
            raise KeyboardInterrupt


def seen(folder: Path) -> set[str]:
    """What is recorded so far; the last column is there once a method has taken steps at home."""
    return {str([row[name] for name in columns_of()]) for row in rows(folder)}


def interrupted(
    experiment: Experiment, tmp_path: Path, *at: int, **options: Any
) -> tuple[Path, int]:
    """Stop every job at these steps and compare the bytes; return the folder and how often."""
    whole, broken, stop = tmp_path / "whole", tmp_path / "broken", _Stop(*at)
    known = seen(execute.run(experiment, whole, **OFTEN, **options))
    for attempt in range(1000):
        try:
            execute.run(experiment, broken, resume=attempt > 0, progress=stop, **OFTEN, **options)
        except KeyboardInterrupt:
            assert seen(broken) <= known
        else:
            assert content(whole) == content(broken)
            return broken, len(stop.seen)
    raise AssertionError("it never ends")


def test_interrupted_everywhere(tmp_path: Path) -> None:
    _, stops = interrupted(SMALL, tmp_path, 6, 12, 18, 20)
    assert stops == 4 * 4


def test_interrupted_side_by_side(tmp_path: Path) -> None:
    """As on a GPU, which takes several jobs at a time; whatever was recorded of any is kept."""
    alone = content(execute.run(SMALL, tmp_path / "alone"))
    seen: list[tuple[int, int]] = []
    four = {**OFTEN, "execution": Execution(side_by_side=4)}
    note = {"progress": lambda job, t: seen.append((job.index, t))}
    execute.run(SMALL, tmp_path / "seen", **note, **four)
    first, later = [(k, 6) for k in range(4)], [(k, t) for t in (12, 18, 20) for k in range(4)]
    assert seen == first + later
    out, stops = interrupted(SMALL, tmp_path, 6, 12, 18, 20, execution=Execution(side_by_side=4))
    assert stops == 4 * 4
    assert content(out) == alone
    with pytest.raises(KeyboardInterrupt):
        execute.run(SMALL, tmp_path / "stopped", progress=_Stop(12), **four)
    files = [RunFolder(tmp_path / "stopped").job(k) for k in range(4)]
    assert [file.t for file in files if file] == [12, 6, 6, 6]


@pytest.mark.slow
def test_interrupted_every_algorithm(tmp_path: Path) -> None:
    of_samples = {a for a, make in ALGORITHMS.items() if issubclass(make, EstimatedMethod)}
    fits = [a for a in ALGORITHMS if Needs.TREES not in ALGORITHMS[a].needs if a not in of_samples]
    ring = NetworkSpec("undirected-ring", n=5, weights="lazy")
    algorithms = tuple(AlgorithmSpec(name) for name in fits)
    experiment = replace(SMALL, networks=(ring,), algorithms=algorithms, lr=(0.1, 5e8))
    out, stops = interrupted(experiment, tmp_path, 12)
    assert stops == len(fits)
    ended = {row["algorithm"] for row in rows(out) if row["diverged_at"]}
    assert len(ended) > len(fits) / 2  # a resumed job remembers who diverged


def test_gradients_are_counted_where_a_step_is_a_round(tmp_path: Path) -> None:
    """And nowhere else: other tables have the columns they always had."""
    ring = NetworkSpec("undirected-ring", n=5, weights="lazy")
    both = AlgorithmSpec("sgp"), AlgorithmSpec("local-sgp", params={"every": 3})
    experiment = replace(SMALL, networks=(ring,), algorithms=both)
    for row in rows(execute.run(experiment, tmp_path / "both")):
        each = 3 if row["algorithm"] == "local-sgp" else 1
        assert int(row["gradients"]) == each * int(row["step"])
    plain = replace(experiment, algorithms=both[:1])
    assert "gradients" not in rows(execute.run(plain, tmp_path / "plain"))[0]


def test_interrupted_with_an_estimator(tmp_path: Path) -> None:
    """What it remembers is stored and gone on from, to the same bits."""
    problem = KindSpec("logistic", {"dim": 4, "samples": 6, "batch": 1})
    ring = NetworkSpec("undirected-ring", n=5, weights="lazy")
    named = tuple(AlgorithmSpec(a) for a in ("push-saga", "ab-saga", "ab-svrg", "push-svrg"))
    saga = AlgorithmSpec("sgp", "sgp-saga", params={"momentum": 0.5}, estimator={"kind": "saga"})
    experiment = replace(SMALL, networks=(ring,), algorithms=(*named, saga), problem=problem)
    out, stops = interrupted(experiment, tmp_path, 12)
    assert stops == 5
    assert 'kind = "saga"' in (out / "experiment.toml").read_text()


def test_interrupted_on_a_sparse_network(tmp_path: Path) -> None:
    """There a state lies in memory as no file gives it back, and sums depend on that."""
    problem = KindSpec("logistic", {"dim": 33, "samples": 7, "batch": 0})
    ring = NetworkSpec("directed-ring", n=130)
    experiment = replace(ONE, networks=(ring,), problem=problem, trials_at_once=3)
    _, stops = interrupted(experiment, tmp_path, 6, 18)
    assert stops == 2 * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda(tmp_path: Path) -> None:
    """The same samples, so the same run to rounding; and resumed to the same bytes."""
    experiment = replace(SMALL, dtype="float64")
    there, stops = interrupted(experiment, tmp_path, 6, 20, device="cuda")
    assert stops == 2 * 4
    for a, b in zip(rows(execute.run(experiment, tmp_path / "cpu")), rows(there), strict=True):
        assert [float(a[m] or 0) for m in VALUES] == pytest.approx(
            [float(b[m] or 0) for m in VALUES], rel=1e-10, abs=1e-12
        )


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    out = execute.run(SMALL, tmp_path)
    before, seen = content(out), []
    execute.run(SMALL, out, resume=True, progress=lambda job, t: seen.append((job.index, t)))
    assert content(out) == before
    assert seen == [(k, 20) for k in range(4)]
    (out / "metrics.csv").unlink()  # it is derived from jobs/
    execute.run(SMALL, out, resume=True)
    assert content(out) == before


def test_folders_that_are_refused(tmp_path: Path) -> None:
    new, used, file = tmp_path / "new", tmp_path / "used", tmp_path / "file"
    with pytest.raises(
        RunFolderError, match=r"holds no run to resume\n  hint: .*without resume=True"
    ):
        execute.run(ONE, new, resume=True)
    impossible = replace(ONE, networks=(NetworkSpec("star", n=4), NetworkSpec("path", n=5)))
    with pytest.raises(DigradError, match="same number of nodes"):
        execute.run(impossible, new)
    assert not new.exists()  # so that the mended experiment can be run into it
    execute.run(ONE, used)
    before = content(used)
    with pytest.raises(RunFolderError, match=r"already holds a run\n  hint: resume=True goes on"):
        execute.run(ONE, used)
    for key, value in (
        ("steps", 21),
        ("seeds", (0, 5)),
        ("dtype", "float64"),
        ("problem.params.dim", KindSpec("quadratic", {"dim": 4})),
        ("networks", (replace(STAR, weights="lazy"),)),
    ):
        with pytest.raises(
            RunFolderError, match=rf"changed since .*: {key} was .* and is .*\n.*new"
        ):
            execute.run(replace(ONE, **{key.partition(".")[0]: value}), used, resume=True)
    assert content(used) == before
    file.write_text("in the way")
    for out in (file, tmp_path / ("x" * 300)):
        with pytest.raises(WriteError, match=r"cannot write [\s\S]*hint: choose a folder"):
            execute.run(ONE, out)
    (used / "experiment.toml").write_text("steps = ")
    with pytest.raises(DigradError, match=r"experiment.toml: not a TOML file"):
        execute.run(ONE, used, resume=True)


def test_damaged_job_files(tmp_path: Path) -> None:
    """Cut short, with any one bit turned, or something else: the same job or one clear error."""
    before = content(execute.run(ONE, tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        execute.run(ONE, tmp_path / "bad", progress=_Stop(6), **OFTEN)
    folder, file = RunFolder(tmp_path / "bad"), tmp_path / "bad" / "jobs" / "000.npz"
    good, refused = file.read_bytes(), 0
    whole = folder.job(0)
    assert whole is not None
    turned = [good[:k] + bytes([good[k] ^ 16]) + good[k + 1 :] for k in range(0, len(good), 13)]
    cut = [good[:k] for k in range(0, len(good), 307)]
    for bad in (*turned, *cut, b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\0" * 99):
        file.write_bytes(bad)
        try:
            job = folder.job(0)
        except RunFolderError as error:
            refused += f"{file} is damaged" in str(error) and "\n  hint: delete" in str(error)
            continue
        assert job is not None
        assert (job.t, job.done) == (whole.t, whole.done)
        np.testing.assert_equal(job.state, whole.state)
        np.testing.assert_array_equal(job.records, whole.records)
    assert refused > 0.5 * len(turned) + len(cut)
    with pytest.raises(RunFolderError, match="is damaged"):
        execute.run(ONE, tmp_path / "bad", resume=True)
    file.unlink()  # as the hint says
    execute.run(ONE, tmp_path / "bad", resume=True)
    assert content(tmp_path / "bad") == before


# Imports once, then for every line "DELAY": run in a child that ends, as if it were killed, DELAY
# seconds after its first checkpoint (negative: after its start); "0" lets it finish. They are
# seconds of a processor, so that a busy machine is as good as an idle one.
KILLER = """
import os, signal, sys
from pathlib import Path
from digrad.runs import execute, planning
from digrad.results.experiment import load_experiment
out, experiment = Path(sys.argv[1]), load_experiment(sys.argv[2])
for line in sys.stdin:
    delay, child = float(line), os.fork()
    if child == 0:
        ticks = []
        def tick(job, t):
            ticks.append(t)
            if delay > 0 and len(ticks) == 1:
                signal.setitimer(signal.ITIMER_PROF, delay)
        if delay < 0:
            signal.setitimer(signal.ITIMER_PROF, -delay)
        resume = (out / "experiment.toml").exists()
        execute.run(experiment, out, resume=resume, progress=tick, checkpoint_seconds=-1.0)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    steps = {"steps": 160, "metrics_every": 2, "problem": KindSpec("quadratic", {"dim": 40})}
    experiment, out, file = replace(SMALL, **steps), tmp_path / "out", tmp_path / "experiment.toml"
    file.write_text(tomli_w.dumps(to_table(experiment)))
    command = [sys.executable, "-c", KILLER, str(out), str(file)]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    lengths, killed = set(), 0
    with subprocess.Popen(command, env=os.environ | one, **pipes) as killer:
        for delay in (-0.02, 0.02, 0.05, -0.2, 0.004, 0.08, 0.1, 0.015, 0):
            print(delay, file=killer.stdin, flush=True)
            code = int(killer.stdout.readline())
            assert code in ((0, -signal.SIGPROF) if delay else (0,))
            killed += code != 0
            if (out / "metrics.csv").exists():
                found = rows(out)
                assert all(None not in row and None not in row.values() for row in found)
                assert tuple(found[0]) == columns_of()
                lengths.add(len(found))
        killer.stdin.close()
    assert killed >= 4
    assert len(lengths) >= 3  # at different places
    assert content(out) == content(execute.run(experiment, tmp_path / "whole"))


def test_results_of_another_experiment_are_never_shown(tmp_path: Path) -> None:
    """The experiment of a folder is gone: its jobs belong to nobody, and are not taken over."""
    out = execute.run(ONE, tmp_path / "out")
    (out / "experiment.toml").unlink()
    other = replace(ONE, problem=KindSpec("quadratic", {"dim": 4}))
    with pytest.raises(RunFolderError, match="not the experiment they belong to"):
        execute.run(other, out)
    elsewhere = execute.run(replace(other, steps=19), tmp_path / "elsewhere")
    (out / "experiment.toml").write_bytes((elsewhere / "experiment.toml").read_bytes())
    with pytest.raises(RunFolderError, match="does not belong to this run: its experiment"):
        execute.run(replace(other, steps=19), out, resume=True)


def test_a_folder_that_is_taken_away(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def remove(job: planning.Job, t: int) -> None:
        if t == 12:
            shutil.rmtree(out)

    with pytest.raises(RunFolderError, match="was removed or emptied while its run was going on"):
        execute.run(ONE, out, progress=remove)
    assert not (out / "metrics.csv").exists()


def test_jobs_in_each_others_places(tmp_path: Path) -> None:
    out = execute.run(SMALL, tmp_path / "out")
    files = [out / "jobs" / f"{k:03d}.npz" for k in range(4)]
    first, second = files[0].read_bytes(), files[1].read_bytes()
    files[0].write_bytes(second), files[1].write_bytes(first)
    with pytest.raises(RunFolderError, match=r"000\.npz does not belong to this run: its job"):
        execute.run(SMALL, out, resume=True)


def test_inputs_that_have_changed(tmp_path: Path) -> None:
    """A network file that was edited between two parts of a run."""
    file = tmp_path / "ring.edges"
    file.write_text("0 1\n1 2\n2 3\n3 4\n4 0\n")
    experiment = replace(ONE, networks=(NetworkSpec(file=str(file)),))
    with pytest.raises(KeyboardInterrupt):
        execute.run(experiment, tmp_path / "out", progress=_Stop(6), **OFTEN)
    file.write_text("0 1\n1 2\n2 3\n3 4\n4 0\n0 2\n")
    with pytest.raises(RunFolderError, match=r"network ring has changed since the run in"):
        execute.run(experiment, tmp_path / "out", resume=True)
    file.write_text("0 1\n1 2\n2 3\n3 4\n4 0\n")
    execute.run(experiment, tmp_path / "out", resume=True)
    whole = execute.run(experiment, tmp_path / "whole")
    assert content(whole) == content(tmp_path / "out")


HOLDER = """
import sys
from pathlib import Path
from digrad.results.lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """The second is told who the first is; a killed one leaves no lock behind."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", HOLDER, str(out)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(LockedError, match=rf"is being written by process {holder.pid} on "):
            execute.run(ONE, out)
        holder.kill()
    assert len(rows(execute.run(ONE, out))) == 5 * 4
    with locked(out), pytest.raises(LockedError, match=f"by process {os.getpid()} on "):
        execute.run(ONE, out)  # not only that there is a run already


def test_a_trial_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the first step, with the number; not by the system that ends the process."""
    given = planning.Overrides(problem=Quadratic.generate(5, 200_000, rotate=False))
    assert planning.plan(ONE, given=given).jobs
    monkeypatch.setattr("digrad.base.machine._free", lambda: iter([40e6]))
    with pytest.raises(ExperimentError, match=r"1 trial of push-pull at a time, with 5 nodes of"):
        planning.plan(replace(ONE, lr=(0.1,), seeds=(0,)), given=given)
