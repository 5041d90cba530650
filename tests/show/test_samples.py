"""Readers are told on which test samples accuracies are: in tables, reports and notebooks."""

from collections.abc import Callable
from pathlib import Path

import torch

import digrad as dg

NODES = (
    "worst and mean accuracy{}: of each node's own model, on at most {} test samples, evenly spread"
)
TESTS = (
    "accuracy, worst accuracy and mean accuracy{}: on at most {} of the test samples, evenly spread"
)


def test_of_a_module(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(4)]
    run = dg.simulate(
        torch.nn.Linear(3, 2),
        "exponential",
        data=data,
        test=(torch.randn(30, 3), torch.randint(0, 2, (30,))),
        node_samples=7,
        metrics=("worst_accuracy", "mean_accuracy"),
        steps=4,
        out=tmp_path / "run",
        progress=False,
    )
    assert NODES.format("", 7) in str(run)
    assert NODES.format("", 7).replace("'", "&#x27;") in run.report().read_text()
    assert "on at most 7 test samples, evenly spread" in run._repr_html_()
    status, out, _ = command("table", str(tmp_path / "run"))
    assert status == 0
    assert NODES.format(f" in {tmp_path / 'run'}", 7) in out


def test_of_images(tmp_path: Path) -> None:
    settings = {
        "data": "digits",
        "model": "mlp",
        "test_samples": 40,
        "node_samples": 20,
        "samples": 100,
    }
    metrics = ("accuracy", "worst_accuracy", "mean_accuracy")
    words = {**settings, "metrics": metrics, "steps": 2, "out": tmp_path / "run"}
    run = dg.simulate("images", "exponential", "push-pull", progress=False, **words)
    assert TESTS.format("", 40) in str(run)
    assert NODES.format("", 20) in str(run)
    few = dg.simulate("quadratic", "exponential", steps=2, dim=2, progress=False)
    assert "evenly" not in str(few)
