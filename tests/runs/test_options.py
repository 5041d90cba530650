"""Options of models and splits in files of runs: those that are used, and no others."""

import tomllib
from pathlib import Path

import tomli_w

from digrad.results.experiment import parse_experiment
from digrad.runs.execute import run
from digrad.runs.planning import resolved

ASKED = {
    "steps": 2,
    "lr": [0.1],
    "problem": {"kind": "images", "data": "digits", "model": "mlp", "samples": 60, "batch": 2},
    "networks": [{"topology": "directed-ring", "n": 3}],
    "algorithms": [{"algorithm": "push-pull"}],
}
UNUSED = {"dropout": 0.5, "norm": "group", "alpha": 0.5, "k": 1}


def test_only_options_that_are_used_are_written_out() -> None:
    params = resolved(parse_experiment(ASKED)).problem.params
    assert not UNUSED.keys() & params.keys()
    other = {**ASKED["problem"], "model": "resnet", "split": "dirichlet"}
    params = resolved(parse_experiment({**ASKED, "problem": other})).problem.params
    assert {key: params.get(key) for key in UNUSED} == {**UNUSED, "dropout": None, "k": None}


def test_a_run_whose_file_has_all_options_goes_on(tmp_path: Path) -> None:
    experiment, out = parse_experiment(ASKED), tmp_path / "run"
    run(experiment, out)
    file = out / "experiment.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    table["problem"]["params"] |= UNUSED
    file.write_text(tomli_w.dumps(table), encoding="utf-8")
    (out / "metrics.csv").unlink(missing_ok=True)
    run(experiment, out, resume=True)
    assert (out / "metrics.csv").exists()
