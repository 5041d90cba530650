"""Seconds of a real run: measuring is not counted, and a resumed run goes on counting."""

import csv
from pathlib import Path

import pytest

from digrad.runs import wall
from digrad.runs.wall import WallClock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [100.0]
    monkeypatch.setattr(wall, "perf_counter", lambda: times[0])
    return times


def seconds(folder: Path) -> list[tuple[str, str]]:
    with (folder / "seconds.csv").open(encoding="utf-8") as file:
        return [(row["step"], row["seconds"]) for row in csv.DictReader(file)]


def test_only_steps_are_counted(tmp_path: Path, now: list[float]) -> None:
    clock, job = WallClock(tmp_path), ("ring", "sgp")
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
    job = "ring", "sgp"
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
    clock.note(("ring", "dsgd"), 20)
    assert seconds(tmp_path)[:2] == [("10", "4.000000"), ("20", "5.000000")]
