"""Options of models and splits in files of runs: those that are used, and no others."""

from digrad.results.experiment import parse_experiment
from digrad.runs.planning import resolve_defaults

ASKED = {
    "steps": 2,
    "lr": [0.1],
    "problem": {"kind": "images", "data": "digits", "model": "mlp", "samples": 60, "batch": 2},
    "networks": [{"topology": "directed-ring", "n": 3}],
    "algorithms": [{"algorithm": "push-pull"}],
}
UNUSED = {"dropout": 0.5, "norm": "group", "alpha": 0.5, "k": 1}


def test_only_options_that_are_used_are_written_out() -> None:
    params = resolve_defaults(parse_experiment(ASKED)).problem.params
    assert not UNUSED.keys() & params.keys()
    other = {**ASKED["problem"], "model": "resnet", "split": "dirichlet"}
    params = resolve_defaults(parse_experiment({**ASKED, "problem": other})).problem.params
    assert {key: params.get(key) for key in UNUSED} == {**UNUSED, "dropout": None, "k": None}
