"""Records handed on to other tools are those of the run, to the last bit."""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from digrad.base.errors import ParameterError
from digrad.cli import main
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.show.exports import MissingLibraryError, to_pandas, to_xarray, write_export

SMALL = Experiment(
    networks=(NetworkSpec("directed-ring", name="ring", n=3),),
    algorithms=(AlgorithmSpec("push-pull", "S-PP"), AlgorithmSpec("sgp", lr=(0.2,))),
    problem=KindSpec("quadratic", {"dim": 2, "sigma": 0.1}),
    steps=80,
    lr=(0.1, 40.0),  # the second diverges
    seeds=(0, 4),
    metrics_every=4,
    name="small",
)
MISSING: dict[str, Any] = {
    "pandas": to_pandas,
    "xarray": to_xarray,
    "pyarrow": lambda results: write_export(results, "x.parquet"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(SMALL, tmp_path_factory.mktemp("runs") / "small", workers=1)


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    found = Results.read(folder)
    assert any(trial.diverged_at for trial in found.trials)
    return found


def test_a_csv_is_that_of_the_run(folder: Path, results: Results, tmp_path: Path) -> None:
    written = write_export(results, tmp_path / "all.csv")
    texts = (path.read_text().splitlines() for path in (written, folder / "metrics.csv"))
    rows, others = (list(csv.reader(text)) for text in texts)
    assert rows[0] == others[0]
    assert sorted(rows) == sorted(others)


def test_parquet_has_the_same_numbers(folder: Path, results: Results, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = pandas.read_parquet(write_export(results, tmp_path / "all.parquet"))
    wanted = pandas.read_csv(folder / "metrics.csv")
    assert list(table) == list(wanted)
    order = ["network", "algorithm", "lr", "seed", "step"]
    table, wanted = (t.astype(dict.fromkeys(order[:2], str)) for t in (table, wanted))
    table, wanted = (t.sort_values(order, ignore_index=True) for t in (table, wanted))
    for name in wanted:  # pandas reads CSV with an error in the last bit unless told not to
        if name in order[:2]:
            assert table[name].tolist() == wanted[name].tolist()
        else:
            np.testing.assert_allclose(
                table[name].astype(float), wanted[name].astype(float), rtol=1e-15
            )


def test_several_runs_are_told_apart(folder: Path, tmp_path: Path) -> None:
    import shutil

    other = shutil.copytree(folder, tmp_path / "other")
    both = Results.read(folder, other)
    table = to_pandas(both)
    assert list(table)[:6] == ["run", "network", "algorithm", "lr", "seed", "step"]
    assert set(table["run"]) == {"small", "other"}
    assert write_export(both, tmp_path / "x.csv").read_text().startswith("run,network,")


def test_xarray_has_a_place_for_every_record(results: Results) -> None:
    pytest.importorskip("xarray")
    data = to_xarray(results)
    assert data["loss"].dims == ("network", "algorithm", "lr", "seed", "step")
    assert data["algorithm"].values.tolist() == ["S-PP", "sgp"]
    assert data["lr"].values.tolist() == [0.1, 0.2, 40.0]
    table = to_pandas(results)
    for row in table.sample(20, random_state=0).itertuples():
        at = {"algorithm": row.algorithm, "lr": row.lr, "seed": row.seed, "step": row.step}
        value = float(data["loss"].sel(network="ring", **at))
        assert value == row.loss or (np.isnan(value) and np.isnan(row.loss))
    assert int(data["loss"].notnull().sum()) == int(table["loss"].notna().sum())
    ends = data["diverged_at"].sel(algorithm="S-PP", lr=40.0).values.ravel().tolist()
    assert ends == [t.diverged_at for t in results.trials if t.key.lr == 40]
    assert np.isnan(data["loss"].sel(algorithm="sgp", lr=0.1)).all()


def test_an_array_that_is_nearly_empty_is_refused(results: Results) -> None:
    pytest.importorskip("xarray")
    from dataclasses import replace

    trials = tuple(
        trial._replace(seed=k, key=trial.key._replace(lr=float(k)))
        for k, trial in enumerate(results.trials * 400)
    )
    many = np.arange(len(trials))
    columns = {name: np.ones(len(trials)) for name in results.columns}
    with pytest.raises(ParameterError, match=r"an array of [\d,]+ places would hold 2,400 records"):
        to_xarray(replace(results, trials=trials, trial=many, step=many, columns=columns))


@pytest.mark.parametrize("library", MISSING)
def test_what_is_not_installed_is_named_with_the_fix(
    results: Results, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    extra = "parquet" if library == "pyarrow" else library
    with pytest.raises(MissingLibraryError, match=rf"{library} is not installed\n.*\[{extra}\]"):
        MISSING[library](results)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["digrad", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_the_command_writes_what_is_asked_for(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "some.csv"
    words = ("export", str(folder), "-o", str(out), "--only", "sgp", "--label", "sgp=SGP")
    assert call(monkeypatch, *words) == 0
    assert capsys.readouterr().out == f"records: {out}\n"
    assert set(pandas.read_csv(out)["algorithm"]) == {"SGP"}
    assert call(monkeypatch, "export", str(folder), "-o", "x.xlsx") == 2
    assert "its suffix is none of .csv, .parquet" in capsys.readouterr().err
