"""Seconds of a real run: measuring is not counted, and a resumed run goes on counting."""

import csv
from pathlib import Path

import numpy as np
import pytest

from digrad.base.errors import FileFormatError, ParameterError
from digrad.results import launches as wall
from digrad.results.experiment import parse_experiment
from digrad.results.launches import WallClock, read_seconds
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.show.figures.curves import draw_curves


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [100.0]
    monkeypatch.setattr(wall, "perf_counter", lambda: times[0])
    return times


def seconds(folder: Path) -> list[tuple[str, str]]:
    with (folder / "seconds.csv").open(encoding="utf-8") as file:
        return [(row["step"], row["seconds"]) for row in csv.DictReader(file)]


def test_only_steps_are_counted(tmp_path: Path, now: list[float]) -> None:
    clock, job = WallClock(tmp_path), [("ring", "sgp", 0.1, 0)]
    clock.begin()
    clock.arrived()
    clock.note(job, 0)
    now[0] += 3.0  # ten steps
    clock.arrived()
    now[0] += 50.0  # measuring
    clock.note(job, 10)
    now[0] += 2.0
    clock.arrived()
    clock.note(job, 20)
    assert seconds(tmp_path) == [("0", "0.000000"), ("10", "3.000000"), ("20", "5.000000")]


def test_a_resumed_run_goes_on_from_its_last_record(tmp_path: Path, now: list[float]) -> None:
    job = [("ring", "sgp", 0.1, 0)]
    for _ in range(2):  # the second time from step 10 on, which is done again
        clock = WallClock(tmp_path)
        clock.begin()
        now[0] += 4.0
        clock.arrived()
        clock.note(job, 10)
    clock = WallClock(tmp_path)
    clock.begin()
    now[0] += 1.0
    clock.arrived()
    clock.note(job, 20)
    clock.note([("ring", "dsgd", 0.1, 0)], 20)
    assert seconds(tmp_path)[:2] == [("10", "4.000000"), ("20", "5.000000")]


def test_jobs_of_one_algorithm_keep_their_own(tmp_path: Path, now: list[float]) -> None:
    clock = WallClock(tmp_path)
    for seeds, each in (((0, 1), 3.0), ((2,), 5.0)):  # a sweep that was cut into two jobs
        clock.begin()
        for t in (0, 10):
            now[0] += each * (t > 0)
            clock.arrived()
            clock.note([("ring", "sgp", 0.1, seed) for seed in seeds], t)
    found = read_seconds(tmp_path)
    assert [found["ring", "sgp", 0.1, seed][10] for seed in range(3)] == [3.0, 3.0, 5.0]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seconds.csv").write_text("network,algorithm\nring,sgp\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="only the seconds of the run"):
        read_seconds(tmp_path)


def test_results_have_them_as_a_column(tmp_path: Path) -> None:
    table = {
        "networks": [{"topology": "undirected-ring", "n": 4}],
        "algorithms": [{"algorithm": "sgp"}],
        "problem": {"kind": "quadratic", "dim": 2},
        "steps": 4,
        "lr": [0.1],
        "metrics_every": 2,
    }
    run(parse_experiment(table), tmp_path)
    assert "seconds" not in Results.read(tmp_path).columns
    with pytest.raises(ParameterError, match="no seconds recorded"):
        draw_curves(Results.read(tmp_path), "loss", x="seconds")
    (label,) = Results.read(tmp_path).trials
    clock = WallClock(tmp_path)
    for t in (0, 2, 4):
        clock.begin()
        clock.arrived()
        clock.note([("undirected-ring", "sgp", label.key.lr, 0)], t)
    found = Results.read(tmp_path)
    assert np.isfinite(found.columns["seconds"]).all()
    assert draw_curves(found, "loss", x="seconds").axes[0].get_xlabel() == "seconds"
