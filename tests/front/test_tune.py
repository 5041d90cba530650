"""Steps chosen from Python: the same as on the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

import digrad as dg

TOML = """
name = "small"
steps = 32
seeds = [0, 1]
problem = { kind = "quadratic", dim = 3 }
[[networks]]
topology = "exponential"
n = 4
[[algorithms]]
algorithm = "push-pull"
[[algorithms]]
algorithm = "sgp"
"""
SAID = {"dim": 3, "steps": 32, "seeds": 2, "grid": (0.01, 1, 6)}


def network() -> dict[str, dg.Network]:
    return {"exponential": dg.network("exponential", n=4)}


def test_the_same_run_as_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(TOML)
    status, out, said = command("tune", "small.toml", "--grid", "0.01:1:6")
    assert status == 0, said
    run = dg.tune("quadratic", network(), ["push-pull", "sgp"], out="here", **SAID)
    assert str(run.tuning) in out
    there = Path("runs/small-tuned/metrics.csv").read_bytes()
    assert Path("here/metrics.csv").read_bytes() == there
    assert Path("here.tuning/exponential/round-1/metrics.csv").is_file()
    in_memory = dg.tune("quadratic", network(), ["push-pull", "sgp"], **SAID)
    assert in_memory.folder is None
    assert in_memory.to_pandas().equals(run.to_pandas())
    assert in_memory.best("loss") == [b._replace(run="simulation") for b in run.best("loss")]
    in_memory.save("kept")
    assert Path("kept/metrics.csv").read_bytes() == there


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    options = {**SAID, "out": tmp_path / "run"}
    first = dg.tune("quadratic", network(), **options)
    with pytest.raises(dg.DigradError, match="already holds a run"):
        dg.tune("quadratic", network(), **options)
    again = dg.tune("quadratic", network(), **options, resume=True)
    assert first.tuning is not None
    assert again.tuning is not None
    assert again.tuning.best == first.tuning.best


def test_objects_and_other_words_of_simulate() -> None:
    problem = dg.problems.Quadratic.generate(4, 3)
    told: list[int] = []
    run = dg.tune(
        problem,
        network(),
        {"mine": dg.algorithms.SGP()},
        steps=16,
        grid="0.01:1:4",
        metric="gap",
        schedule={"kind": "step-decay", "period": 8},
        progress=lambda job, t: told.append(t),
    )
    assert run.problem is problem
    assert run.tuning is not None
    assert run.tuning.by.metric == "gap"
    assert told[-1] == 16


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"lr": 0.1}, "takes no lr"),
        ({"grid": 3}, "no grid"),
        ({"grid": (1, 0.1, 4)}, "leaves no choice"),
        ({"resume": True}, "resume goes on with a run in a folder"),
        ({"stps": 3}, "stps"),
    ],
)
def test_wrong_words_are_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(dg.DigradError, match=match):
        dg.tune("quadratic", network(), **{"dim": 3, "steps": 8, **wrong})
