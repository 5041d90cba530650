"""What a run answers, in memory and from its folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import digrad as dg
from digrad.problems import Quadratic

HEADS = ["network", "algorithm", "lr", "seed", "step"]


@pytest.fixture(scope="module")
def run() -> dg.Run:
    return dg.simulate(
        "quadratic",
        {"ring": dg.network("multi-sub-ring", n=8), "all": dg.network("complete", n=8)},
        ["push-pull", "sgp"],
        lr=[0.2, 0.1],
        steps=60,
        seeds=2,
        dim=4,
        progress=False,
    )


@pytest.fixture(params=["memory", "folder"])
def either(run: dg.Run, request: pytest.FixtureRequest, tmp_path: Path) -> dg.Run:
    if request.param == "memory":
        return run
    run.save(tmp_path / "kept")
    return dg.Run.open(tmp_path / "kept")


def test_the_table(either: dg.Run) -> None:
    table = either.to_pandas()
    assert list(table)[:5] == HEADS
    assert list(table)[5:] == [name for name in table if name not in HEADS]
    assert set(either.metrics) <= set(table)
    assert not {"lr", "loss"} - set(table)
    assert len(table) == 2 * 2 * 2 * 2 * 61
    assert len(table.drop_duplicates(HEADS)) == len(table)
    loss = either["loss"]
    assert loss.shape == (61, 16)
    assert loss.index.name == "step"
    key = ("ring", "sgp", 0.1, 1)
    rows = table[(table[HEADS[:4]] == list(key)).all(axis=1)]
    assert (loss[key].to_numpy() == rows.loss.to_numpy()).all()


def test_the_answer_is_where_the_losses_were_taken(either: dg.Run) -> None:
    """Of S-PP the mean by π_R, of SGP the plain one: whatever the method's own is."""
    problem = Quadratic.generate(8, dim=4)
    for algorithm in ("push-pull", "sgp"):
        which: dict[str, Any] = {"network": "ring", "algorithm": algorithm, "lr": 0.1, "seed": 1}
        x = either.answer(**which)
        assert x.shape == (4,)
        assert x.dtype == torch.float32
        recorded = either["loss"][tuple(which.values())].iloc[-1]
        assert float(problem.loss(x)) == pytest.approx(recorded, rel=1e-5)


def test_the_best_steps(either: dg.Run) -> None:
    table = either.to_pandas()
    last = table[table.step == 60].groupby(HEADS[:3]).loss.mean()
    found = either.best("loss")
    assert [best[:2] for best in found] == [
        *(("ring", "push-pull"), ("ring", "sgp"), ("all", "push-pull"), ("all", "sgp"))
    ]
    for best in found:
        means = last[best.network, best.algorithm]
        assert best.lr == means.idxmin()
        assert best.value == pytest.approx(means.min())
        assert best.edge in ("largest", "smallest")  # there are only two
        assert best.diverged == 0


def test_a_metric_that_grows_is_best_where_it_is_largest() -> None:
    run = dg.simulate(
        "logistic", "complete", steps=60, lr=[0.5, 50.0], samples=40, dim=5, progress=False
    )
    last = run["accuracy"].iloc[-1]
    assert last.max() > last.min()
    (best,) = run.best("accuracy")
    assert (best.lr, best.value) == (last.idxmax()[2], last.max())


def test_what_diverges_is_not_best() -> None:
    run = dg.simulate("quadratic", "complete", steps=200, lr=[0.1, 1000.0], progress=False)
    (best,) = run.best("loss")
    assert (best.lr, best.diverged) == (0.1, 1)
    (none,) = dg.simulate("quadratic", "star", steps=200, lr=1000.0, progress=False).best("loss")
    assert np.isnan(none.lr)
    assert none.diverged == 1


def test_pictures_and_pages(either: dg.Run, tmp_path: Path) -> None:
    assert isinstance(either.plot("loss"), Figure)
    assert isinstance(either.plot(x="messages", log=False, title="a"), Figure)
    text = either.report(tmp_path / "own.html").read_text(encoding="utf-8")
    if either.folder is None or not either.folder.exists():
        either.save(tmp_path / "saved")
    assert either.folder is not None
    page = either.report()
    assert page == either.folder / "report.html"
    assert "multi-sub-ring" in text or "ring" in text
    assert "<script" in text


def test_its_words(either: dg.Run) -> None:
    assert repr(either).startswith("Run('simulation': 16 trials, 60 steps, gradient_norm, loss")
    assert str(either).count("\n") == 8
    page = either._repr_html_()
    assert page.startswith('<iframe title="simulation" sandbox="allow-scripts allow-downloads"')
    assert page.count("<") == 2  # what is inside is the frame's, not the notebook's


WRONG: dict[str, tuple[Any, str]] = {
    "too many": (lambda run: run.answer(), "hint: say which, as in answer(network="),
    "still two": (
        lambda run: run.answer(network="ring", algorithm="sgp", lr=0.1),
        "2 trials fit (network='ring', algorithm='sgp', lr=0.1)",
    ),
    "none": (lambda run: run.answer(lr=7), "there are network: ring, all; algorithm: push-pull"),
    "no such key": (lambda run: run.answer(size=0.1), "take some of: network, algorithm"),
    "no module": (
        lambda run: run.module(network="ring", algorithm="sgp", lr=0.1, seed=0),
        "is not that of a module",
    ),
    "no metric": (lambda run: run["los"], "did you mean 'loss'"),
    "not recorded": (lambda run: run.best("test_accuracy"), "test_accuracy"),
    "a number": (lambda run: run[3], "must be a name"),
    "plot": (lambda run: run.plot("los"), "did you mean 'loss'"),
    "axis": (lambda run: run.plot("loss", x="time"), "time"),
    "no folder": (lambda _: dg.Run.open("gone"), "gone"),
    "a number for one": (lambda _: dg.Run.open(3), "folder"),
    "not a run": (
        lambda _: dg.Run.open("."),
        ". holds no run\n  hint: pass one that dg.simulate(out=...)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(
    name: str, run: dg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, said = WRONG[name]
    with pytest.raises(dg.DigradError) as error:
        call(run)
    assert said in str(error.value)


def test_saving_loses_nothing_that_is_there(run: dg.Run, tmp_path: Path) -> None:
    run.save(tmp_path / "a")
    before = (tmp_path / "a/metrics.csv").read_bytes()
    with pytest.raises(dg.DigradError, match="already holds a run"):
        run.save(tmp_path / "a")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(dg.DigradError, match="cannot write"):
        run.save(tmp_path / "file")
    assert (tmp_path / "a/metrics.csv").read_bytes() == before


def test_an_unfinished_run_can_be_read(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dg.simulate("quadratic", "star", steps=90, out=tmp_path / "cut", progress=stop)
    run = dg.Run.open(tmp_path / "cut")
    assert run.to_pandas().step.max() < 90
    with pytest.raises(dg.DigradError, match="resume the run first"):
        run.answer()


def test_an_object_cannot_come_back_from_a_file(tmp_path: Path, command: Any) -> None:
    dg.simulate(Quadratic.generate(4, dim=2), "star", steps=5, out=tmp_path / "a", progress=False)
    status, _, said = command("run", tmp_path / "a/experiment.toml", "--out", tmp_path / "b")
    assert status == 2
    assert "no file can bring it back" in said
    assert command("report", tmp_path / "a")[0] == 0
    assert command("table", tmp_path / "a")[0] == 0
