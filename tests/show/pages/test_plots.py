"""The data of the plot."""

import json
from pathlib import Path

import numpy as np
import pytest
from folders import norm_at, write_run
from reading import Reader

from digrad.results.trials import Results
from digrad.show.pages import render, run_page
from digrad.show.pages.answer import divergences
from digrad.show.pages.curves import note, plot_data
from digrad.show.pages.heat import heat_maps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return render(run_page([folder]))


def test_lines_and_bands_are_those_of_the_seeds(folder: Path) -> None:
    data = plot_data(Results.read(folder))
    assert data["networks"] == ["ring"]
    assert data["methods"] == ["S-PP", "SGP"]
    assert data["sizes"] == ["γ = 0.1", "γ = 0.05"]
    curve = data["metrics"]["gradient_norm"]["curves"][2]
    assert (curve["network"], curve["method"], curve["size"]) == (0, 1, 0)
    assert curve["views"] == ["all", "size 0"]
    values = np.array([[norm_at(1, 0.1, seed, 10 * k) for k in range(11)] for seed in range(3)])
    np.testing.assert_allclose(curve["mean"], values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["low"], values.min(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["high"], values.max(axis=0), rtol=1e-4)
    assert data["x"][curve["x"]["step"]] == list(range(0, 110, 10))
    assert data["x"][curve["x"]["bytes"]] == list(range(0, 26400, 2400))
    assert "fell" not in curve
    assert "rest" not in curve


def test_the_axes_hold_the_curves_on_both_scales(folder: Path) -> None:
    metric = plot_data(Results.read(folder))["metrics"]["gradient_norm"]
    low = min(min(curve["low"]) for curve in metric["curves"])
    high = max(max(curve["high"]) for curve in metric["curves"])
    for scale, ends in (("linear", (low, high)), ("log", np.log10([low, high]))):
        axis = metric["range"]["all"][scale]
        assert axis[0] < ends[0] < ends[1] < axis[1]
        assert np.ptp(axis) < 1.2 * np.ptp(ends)
    assert metric["scale"] == "log"


def test_what_is_looked_at_has_its_own_axis(folder: Path) -> None:
    trace = Results.read(folder)
    key = next(key for key in trace.curves("gradient_norm") if key.lr == 0.1)
    data = plot_data(trace, [key])
    assert list(data["views"].values()) == [
        *("the best of each method", "every step size", "γ = 0.1", "γ = 0.05")
    ]
    metric = data["metrics"]["gradient_norm"]
    assert [c["method"] for c in metric["curves"] if "best" in c["views"]] == [0]
    assert metric["range"]["best"]["linear"][1] < metric["range"]["all"]["linear"][1]


def test_one_step_size_leaves_nothing_to_choose(tmp_path: Path) -> None:
    data = plot_data(Results.read(write_run(tmp_path / "run", sizes=(0.1,))))
    assert list(data["views"]) == ["all"]


def test_a_metric_without_positive_values_has_no_logarithm(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", loss=lambda step: -1 - step)
    metric = plot_data(Results.read(folder))["metrics"]["loss"]
    assert metric["range"]["all"]["log"] is None
    assert metric["scale"] == "linear"


def test_divergence_is_marked_and_does_not_stretch_the_axis(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", fell={("SGP", 1): 95})
    trace = Results.read(folder)
    metric = plot_data(trace)["metrics"]["gradient_norm"]
    marked = [curve for curve in metric["curves"] if "fell" in curve]
    assert [curve["fell"] for curve in marked] == [["seed 1 at step 95"]] * 2
    kept = np.mean([norm_at(1, 0.1, seed, 100) for seed in (0, 2)])
    assert marked[0]["rest"][-1] == pytest.approx(kept, rel=1e-4)
    assert metric["range"]["all"]["log"][1] < 2  # its norm comes to 10^9
    assert divergences(trace)[0] == "SGP on ring, γ = 0.1: seed 1 at step 95"
    assert "×: a trial diverged" in note(trace)
    page = Reader(render(run_page([folder])))
    assert "2 diverged" in page.text
    assert "SGP on ring, γ = 0.05: seed 1 at step 95" in page.text


def test_numbers_beyond_all_numbers_are_no_json(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", loss=lambda step: float("inf") if step > 50 else 1.0)
    data = plot_data(Results.read(folder))
    curve = data["metrics"]["loss"]["curves"][0]
    assert curve["mean"][-5:] == [None] * 5
    assert curve["fell"][0] == "seed 0 grew beyond all numbers by step 60"
    json.dumps(data, allow_nan=False)


def test_long_curves_are_thinned_but_keep_their_ends(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", sizes=(0.1,), algorithms=("S-PP",), records=2500)
    trace = Results.read(folder)
    data = plot_data(trace)
    curve = data["metrics"]["gradient_norm"]["curves"][0]
    steps = data["x"][curve["x"]["step"]]
    assert 900 < len(steps) == len(curve["mean"]) == len(curve["low"]) <= 1000
    assert (steps[0], steps[-1]) == (0, 24990)
    assert max(np.diff(steps)) <= 30
    assert "about 1,000 are drawn" in note(trace)


def test_many_curves_stay_a_small_page(tmp_path: Path) -> None:
    names = tuple(f"method {k}" for k in range(12))
    folder = write_run(tmp_path / "run", algorithms=names, sizes=(1, 2), seeds=1, records=1500)
    data = plot_data(Results.read(folder))
    points = [len(c["mean"]) for metric in data["metrics"].values() for c in metric["curves"]]
    assert sum(points) <= 60_000
    assert len(json.dumps(data)) < 3e6


def test_equal_places_are_written_once(folder: Path) -> None:
    assert len(plot_data(Results.read(folder))["x"]) == 3  # steps, messages, bytes


def test_the_metric_that_was_asked_about_comes_first(folder: Path) -> None:
    trace = Results.read(folder)
    assert list(plot_data(trace)["metrics"])[:2] == ["gradient_norm", "loss"]
    assert next(iter(plot_data(trace, first="loss")["metrics"])) == "loss"
    assert heat_maps(trace, [], "loss").partition("data-metric=")[2].startswith('"loss"')
