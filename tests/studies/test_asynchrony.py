"""The study of asynchrony: its experiments can be run, and what comes of them is put together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from digrad.base.errors import DigradError
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.runs.planning import plan
from digrad.show.figures import draw_curves
from digrad_studies.asynchrony import CLOCKS, best, common_target, parts, times_to, together
from digrad_studies.measured import asynchrony
from digrad_studies.reproduce import Request


def test_every_part_can_be_run_and_no_two_share_a_folder() -> None:
    found = parts(quick=True)
    assert {part.clock for part in found} == {*CLOCKS}
    names = [part.experiment.name for part in found]
    assert len({*names}) == len(names) == 16
    for part in found[:4]:
        plan(part.experiment)
    methods = {a.label for part in found for a in part.experiment.algorithms}
    assert methods == {"S-PP", "SGP", "R-FAST", "RASGP", "AD-PSGD"}


def test_runs_are_put_together_with_each_method_at_its_best_step(tmp_path: Path) -> None:
    some = [part.experiment for part in parts(quick=True) if part.clock == "straggler"]
    folders = []
    for experiment in some[2:]:  # the one-way network: two methods that wait, two that do not
        short = replace(experiment, steps=12, metrics_every=4)
        folders.append(run(short, tmp_path / experiment.name))
    results, target = together("straggler", folders)
    curves = results.curves("loss")
    assert sorted(key.algorithm for key in curves) == ["R-FAST", "RASGP", "S-PP", "SGP"]
    rows = times_to(results, target)
    assert {row["clock"] for row in rows} == {"straggler"}
    assert any(row["time"] is not None for row in rows)
    assert times_to(results, -1.0)[0]["time"] is None
    assert draw_curves(results, "loss", x="time").axes
    one = best(results, target)
    assert np.array_equal(one.step, results.step)
    whole = [Results.read(folder) for folder in folders]
    assert common_target(whole) == target
    when = {row["algorithm"]: row["time"] for row in rows}
    for key, curve in whole[1].curves("loss").items():  # no other step of a method is sooner
        there = np.flatnonzero(curve.mean <= target)
        if len(there):
            sooner = whole[1].curves("time")[key].values[0, there[0]]
            assert when[key.algorithm] <= sooner


def test_missing_images_are_said_before_anything_is_run(tmp_path: Path) -> None:
    order = Request("asynchrony", True, tmp_path / "out", "cpu", False, str(tmp_path))
    with pytest.raises(DigradError, match="mnist: not all of its files are in"):
        asynchrony(order)
    assert not (tmp_path / "out").exists()
