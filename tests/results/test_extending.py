"""More of a run: byte for byte what a run would be that was larger from the start."""

from collections.abc import Callable
from pathlib import Path

import pytest

from digrad.base.errors import DigradError
from digrad.results.experiment import apply_edits, load_experiment
from digrad.results.folder import RunFolder
from digrad.runs.execute import run
from digrad.runs.extending import extend

Command = Callable[..., tuple[int, str, str]]
SMALL = """
name = "small"
steps = 40
lr = [0.1, 0.05]
seeds = [3, 4]
{more}
[problem]
kind = "logistic"
dim = 5
samples = 12
[[networks]]
topology = "directed-ring"
n = 6
[[algorithms]]
algorithm = "push-pull"
[[algorithms]]
algorithm = "sgp"
lr = [0.2]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(more="metrics_every = 8"))
    return path


def again(folder: Path, out: Path) -> bytes:
    """What a run of a folder's experiment writes, made at once."""
    run(load_experiment(folder / "experiment.toml"), out, workers=1)
    return (out / "metrics.csv").read_bytes()


@pytest.mark.parametrize(
    ("changes", "reused"),
    [
        (["steps=64"], 2),
        (["seeds=3,4,9"], 2),
        (["lr=0.1,0.05,0.4"], 2),
        (["steps=64", "seeds=3,4,9", "lr=0.1,0.05,0.4"], 2),
        (["steps=40"], 2),
    ],
)
def test_a_larger_run_is_that_of_a_larger_experiment(
    file: Path, tmp_path: Path, changes: list[str], reused: int
) -> None:
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    old = (folder / "metrics.csv").read_bytes()
    larger, aside, count = extend(folder, changes)
    assert count == reused
    assert (aside / "metrics.csv").read_bytes() == old
    went_on = [job.t for job in RunFolder(folder).jobs()]
    assert went_on == [40] * reused  # nothing of it is done again
    run(larger, folder, resume=True, workers=1)
    assert (folder / "metrics.csv").read_bytes() == again(folder, tmp_path / "at once")


def test_a_run_grows_more_than_once(file: Path, tmp_path: Path) -> None:
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    for changes in (["seeds=3,4,5"], ["steps=48"], ["seeds=3,4,5,6"]):
        larger, _, reused = extend(folder, changes)
        run(larger, folder, resume=True, workers=1)
        assert reused > 0
    assert len(RunFolder(folder).jobs()) == 6
    assert (folder / "metrics.csv").read_bytes() == again(folder, tmp_path / "at once")


def test_more_steps_are_those_of_the_plain_file(file: Path, tmp_path: Path) -> None:
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    larger, _, _ = extend(folder, ["steps=64"])
    run(larger, folder, resume=True, workers=1)
    plain = run(load_experiment(file, ["steps=64"]), tmp_path / "plain", workers=1)
    assert (folder / "metrics.csv").read_bytes() == (plain / "metrics.csv").read_bytes()


def test_what_would_not_be_the_same_is_done_again(file: Path, tmp_path: Path) -> None:
    file.write_text(SMALL.format(more="metrics_every = 7"))  # 40 is between two records
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    larger, _, reused = extend(folder, ["steps=60"])
    assert reused == 0
    run(larger, folder, resume=True, workers=1)
    assert (folder / "metrics.csv").read_bytes() == again(folder, tmp_path / "at once")


def test_the_theorems_step_depends_on_the_number_of_steps(file: Path, tmp_path: Path) -> None:
    file.write_text(SMALL.format(more="metrics_every = 8\nschedule.kind = 'theorem'"))
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    larger, _, _ = extend(folder, ["steps=64"])
    run(larger, folder, resume=True, workers=1)
    assert (folder / "metrics.csv").read_bytes() == again(folder, tmp_path / "at once")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("steps=30", "the run has 40 steps, and cannot be extended to 30"),
        ("steps=many", "steps must be a whole number, got 'many'"),
        ("seeds=4,3", "begin with those that are there: seeds=3,4,..."),
        ("problem.batch=4", "problem.batch of a run cannot be extended"),
        ("steps", "write KEY=VALUE"),
    ],
)
def test_what_is_not_larger_is_refused(file: Path, tmp_path: Path, change: str, said: str) -> None:
    folder = run(load_experiment(file), tmp_path / "run", workers=1)
    with pytest.raises(DigradError, match=said):
        extend(folder, [change])
    assert [path.name for path in tmp_path.iterdir() if "old" in path.name] == []


def test_edits_reach_everything() -> None:
    table = {"algorithms": [{"algorithm": "sgp"}, {"algorithm": "sgp", "name": "b"}]}
    edits = ["problem.kind=quadratic", "algorithms.b.params.x=true", "algorithms.0.name=a b"]
    apply_edits(table, edits)
    assert table["problem"] == {"kind": "quadratic"}
    assert table["algorithms"][1]["params"] == {"x": True}
    assert table["algorithms"][0]["name"] == "a b"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("step=10", "did you mean 'steps'"),
        ("steps=ten", "steps must be a whole number, got 'ten'"),
        ("steps", "write KEY=VALUE"),
        ("steps.x=1", "no table to set 'x' in"),
        ("algorithms.c.name=d", "unknown part of algorithms.c.name 'c'"),
        ("problem..batch=1", "write KEY=VALUE"),
    ],
)
def test_wrong_edits_are_refused(file: Path, edit: str, said: str) -> None:
    with pytest.raises(DigradError, match=said):
        load_experiment(file, [edit])


def test_on_the_command_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, _ = command("run", file, "--set", "steps=8", "--set", "problem.batch=2")
    assert status == 0
    assert load_experiment("runs/small/experiment.toml").problem.params["batch"] == 2
    assert command("run", file)[0] == 2
    assert "put aside: runs/small.old-1" in command("run", file, "--force")[1]
    status, out, _ = command("run", file, "--extend", "steps=48")
    assert "put aside: runs/small.old-2; 2 jobs of it go on" in out
    assert status == 0
    assert load_experiment("runs/small/experiment.toml").steps == 48
    status, _, said = command("run", file, "--force", "--resume")
    assert status == 2
    assert "--resume and --force do not go together" in said
    assert "2 jobs of it go on" in command("run", file, "--extend", "steps=56")[1]
    status, _, said = command("run", file, "--set", "problem.batch=4", "--extend", "steps=99")
    assert status == 2
    assert "problem.params.batch was 1 and is 4" in said
    status, _, said = command("run", file, "--out", "nothing", "--extend", "steps=99")
    assert (status, "nothing holds no run" in said) == (2, True)
