"""What methods are compared by: the first metric that an experiment asks for."""

from pathlib import Path

import digrad as dg
from digrad.results import judge
from digrad.results.trials import Results
from digrad_studies import deep

SMALL = {"dim": 3, "steps": 4, "progress": False}


def test_the_first_metric_that_was_asked_for_comes_first(tmp_path: Path) -> None:
    net, methods = dg.network("directed-ring", n=3), ["push-pull", "sgp"]
    here = dg.simulate("quadratic", net, methods, metrics=["loss", "gap"], **SMALL)
    assert here.metrics[:2] == ("loss", "gap")
    dg.simulate("quadratic", net, methods, metrics=["gap"], out=tmp_path / "run", **SMALL)
    read = Results.read(tmp_path / "run")
    assert read.metrics[0] == "gap"
    assert "gap at step 4" in judge(read).headline
    assert read.select(algorithm="sgp").metrics[0] == "gap"


def test_without_a_wish_the_gradient_norm_comes_first() -> None:
    run = dg.simulate("quadratic", dg.network("directed-ring", n=3), **SMALL)
    assert run.metrics[0] == "gradient_norm"


def test_deep_studies_are_judged_by_test_data() -> None:
    assert {e.metrics[0] for e in deep.cifar()} == {"test_accuracy"}
    assert deep.language("text.txt").metrics[0] == "test_loss"
