"""The examples run, learn something, and go on where they were stopped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engines.ranks import SETTINGS, pool

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST = 80  # lines: short enough to read


def said(script: str, *options: object) -> str:
    """What rank 0 prints; the others must be silent."""
    path, words = str(EXAMPLES / script), list(map(str, options))
    first, *others = pool().run("train.tasks:example", 2, script=path, options=words)
    assert others == [""]
    assert isinstance(first, str)
    return first


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def test_they_are_short() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert [script.name for script in scripts] == ["logistic.py", "mnist.py", "transformer.py"]
    for script in scripts:
        assert len(script.read_text().splitlines()) < LONGEST, script.name


@pytest.mark.slow
def test_logistic() -> None:
    text = said("logistic.py", "--steps", 60)
    assert "2 nodes, 60 steps" in text
    assert number(r"loss ([\d.]+)", text) < 0.5  # log 2 = 0.69 is knowing nothing
    assert number(r"loss ([\d.]+)", said("logistic.py", "--steps", 1, "--lr", 0)) > 0.5


@pytest.mark.slow
def test_mnist_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """With dropout and a schedule, stopped and resumed, it ends where one run does."""
    whole = said("mnist.py", "--steps", 110, "--checkpoints", tmp_path / "whole")
    assert "2 nodes, 110 steps" in whole
    assert number(r": ([\d.]+)%", whole) > 30
    again = said("mnist.py", "--steps", 110, "--checkpoints", tmp_path / "whole")
    assert again == whole
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["step-000100"]


@pytest.mark.slow
def test_transformer_goes_on_from_a_model(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    first = number(r"loss ([\d.]+)", said("transformer.py", "--steps", 25, "--save", file))
    assert torch.load(file, weights_only=True)
    second = number(r"loss ([\d.]+)", said("transformer.py", "--steps", 25, "--start", file))
    assert second < first < 4.85  # log 128


@pytest.mark.slow
@pytest.mark.parametrize("script", ["logistic.py", "mnist.py", "transformer.py"])
def test_under_torchrun(script: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node", "4", str(EXAMPLES / script), "--steps", "20"]
    done = subprocess.run(
        command, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "4 nodes, 20 steps" in done.stdout
