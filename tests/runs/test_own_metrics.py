"""A problem's own metric, from its declaration to every place where metrics are shown."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import digrad as dg
from digrad.base.errors import DigradError
from digrad.cli import app
from digrad.results import judge
from digrad.results.run_state import state_of
from digrad.results.trials import Results
from digrad.runs.conformance import check_target

MINE = '''
import torch
from digrad import Metric
from digrad.problems import Quadratic


class Cauchy(Quadratic):
    """A quadratic that also says how near the coordinates are to the optimum."""

    metrics = [Metric("share_near", "share of coordinates near x*", better="more")]

    def __init__(self, nodes, dim=4, *, device="cpu", dtype=torch.float32):
        made = Quadratic.generate(nodes, dim, sigma=0.1, device=device, dtype=dtype)
        super().__init__(made.A, made.b, sigma=made.sigma)

    def measure(self, xhat, x, wanted):
        away = (xhat - self.optimum()).abs()
        return {"share_near": (1 - away).clamp(min=0).mean(-1)}
'''
TOML = """
name = "cauchy"
steps = 80
seeds = [0, 1, 2]
lr = [0.2, 0.02]
[problem]
kind = "mine.py:Cauchy"
[[networks]]
topology = "directed-ring"
n = 4
[[algorithms]]
algorithm = "push-pull"
[[algorithms]]
algorithm = "sgp"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    (folder / "experiment.toml").write_text(TOML)
    return folder


def says(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "150"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def out(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        says(home, "run", "experiment.toml", "--out", "a", "--trust")
    (home / "mine.py").rename(home / "away.py")  # nothing below needs the user's code
    yield home / "a"
    (home / "away.py").rename(home / "mine.py")


def test_it_is_recorded_beside_the_others(out):
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-2:] == ["share_near", "diverged_at"]
    assert {0.0 <= float(row["share_near"]) <= 1.0 for row in rows} == {True}
    assert float(rows[0]["share_near"]) < max(float(row["share_near"]) for row in rows)
    (known,) = json.loads((out / "metrics.json").read_text())
    assert known["better"] == "more"
    assert known["log"] is False


def test_it_is_tabled_judged_plotted_exported_and_reported(home, out):
    assert "share near at step 80" in says(home, "table", out, "--best", "share_near")
    assert "steps until share_near reaches 0.5" in says(
        home, "table", out, "--metric", "share_near", "--target", "0.5"
    )
    says(home, "plot", out, "--metric", "share_near", "--out", out / "near.svg")
    assert (out / "near.svg").is_file()
    says(home, "export", out, "--out", home / "all.csv")
    assert "share_near" in (home / "all.csv").read_text().splitlines()[0]
    says(home, "report", out, "--out", home / "page.html")
    assert "share of coordinates near x*" in (home / "page.html").read_text()
    assert "share near" in says(home, "watch", out, "--metric", "share_near")


def test_python_has_it_too(out):
    run = dg.Run.open(out)
    assert "share_near" in run.metrics
    assert run["share_near"].shape[1] == 12
    assert "share_near" in run.to_pandas().columns
    assert "share_near" in run.to_xarray()
    best = {(b.network, b.algorithm): b.value for b in run.best("share_near")}
    last = run.to_pandas().query("step == 80").groupby(["algorithm", "lr"])["share_near"].mean()
    assert best["directed-ring", "sgp"] == pytest.approx(last["sgp"].max())
    assert run.judge("share_near").by.superlative == "highest"
    assert run.judge("share_near@target=0.5").by.superlative == "lowest"


def test_a_listing_takes_it_as_the_first(home, out):
    text = (out / "experiment.toml").read_text()
    (out / "experiment.toml").write_text('metrics = ["share_near"]\n' + text)
    seen = state_of(out)
    (out / "experiment.toml").write_text(text)
    assert seen.metric == "share_near"
    assert seen.value == max(b.value for b in dg.Run.open(out).best("share_near"))


def test_folders_with_and_without_it_are_read_together(home, out):
    dg.simulate("quadratic", dg.network("directed-ring", n=4), lr=0.1, steps=9, out=home / "b")
    both = Results.read(out, home / "b")
    curves = both.curves("share_near")
    assert {key.run for key in curves} == {"cauchy"}
    assert judge(both, "loss")


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "damaged"), ('[{"name": "loss"}]', "damaged"), ("[1]", "damaged")],
)
def test_a_damaged_table_is_named(out, text, told):
    before = (out / "metrics.json").read_text()
    (out / "metrics.json").write_text(text)
    with pytest.raises(DigradError, match=rf"metrics\.json is {told}"):
        Results.read(out)
    (out / "metrics.json").write_text(before)


class Near(dg.problems.Quadratic):
    metrics = (dg.Metric("near", better="more"),)

    def measure(self, xhat, x, wanted):
        return {"near": (xhat.abs() < 1).to(xhat.dtype).mean(-1)}


def near() -> Near:
    made = dg.problems.Quadratic.generate(4, 3)
    return Near(made.A, made.b, sigma=0.1)


def test_an_object_has_it_in_memory_and_in_a_folder(tmp_path):
    net = dg.network("directed-ring", n=4)
    run = dg.simulate(near(), net, lr=0.1, steps=9, metrics=["near"])
    assert run.metrics == ("near", "consensus", "tracking")
    again = dg.Run.open(run.save(tmp_path / "kept"))
    assert again["near"].equals(run["near"])
    assert Results.read(tmp_path / "kept").metric("near").better == "more"


def test_it_is_tuned_by():
    net = dg.network("directed-ring", n=4)
    run = dg.tune(
        near(), net, ["sgp"], metric="near", steps=16, grid=(0.01, 1.0, 3), progress=False
    )
    assert run.tuning.by.metric == "near"
    assert run.tuning.by.more_is_better or run.judge("near").by.sign < 0


def test_a_metric_that_changed_is_not_gone_on_with(tmp_path):
    net, many = dg.network("directed-ring", n=4), {"lr": 0.1, "out": tmp_path / "r"}
    dg.simulate(near(), net, steps=9, **many)
    other = near()
    other.metrics = (replace(Near.metrics[0], better="less"),)
    with pytest.raises(DigradError, match="its metrics is another"):
        dg.simulate(other, net, steps=9, resume=True, **many)


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        (["near"], "must be a list of Metric"),
        ([dg.Metric("loss")], "loss of .* is a column of every run"),
        ([dg.Metric("a"), dg.Metric("a")], "is declared twice"),
    ],
)
def test_declarations_are_checked(metrics, told):
    made = near()
    made.metrics = metrics
    with pytest.raises(DigradError, match=told):
        dg.simulate(made, dg.network("directed-ring", n=4), lr=0.1, steps=2)


def test_what_cannot_be_measured_is_refused():
    class Silent(dg.problems.Quadratic):
        metrics = (dg.Metric("near"),)

    made = near()
    with pytest.raises(DigradError, match="declares the metric near, but cannot measure it"):
        dg.simulate(
            Silent(made.A, made.b, sigma=0.0), dg.network("directed-ring", n=4), lr=0.1, steps=2
        )
    made.measure = lambda xhat, x, wanted: {"near": 1.0}
    with pytest.raises(DigradError, match=r"measure.. gives float for the metric near"):
        dg.simulate(made, dg.network("directed-ring", n=4), lr=0.1, steps=2)


@pytest.mark.parametrize("name", ["", "a b", "1st", "ok" * 40, 3])
def test_names_are_words(name):
    with pytest.raises(DigradError, match="a metric cannot be called"):
        dg.Metric(name)


def test_check_tries_it_out(home, monkeypatch):
    monkeypatch.chdir(home)
    where = "mine.py" if (home / "mine.py").exists() else "away.py"
    told = {name: failure for name, _, failure in check_target(f"{where}:Cauchy")}
    assert told["metrics"] == ""
    bad = MINE.replace("mean(-1)}", "mean()}")
    (home / "bad.py").write_text(bad)
    told = {name: failure for name, _, failure in check_target("bad.py:Cauchy")}
    assert "one number per trial" in told["metrics"]


def test_it_goes_over_all_nodes_and_trials():
    made, x = near(), torch.zeros(2, 4, 3)
    assert made.measure(x[:, 0], x, ["near"])["near"].shape == (2,)
