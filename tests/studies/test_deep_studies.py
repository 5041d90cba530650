"""CIFAR-10 and a text, decentralized: the settings, and the commands on tiny files."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from digrad.algorithms.needs import check
from digrad.data import formats as cifar
from digrad.results.trials import Results
from digrad.runs import local_workers
from digrad.runs.planning import plan
from digrad_studies import deep
from tiny_images import cifar_contents

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("COLUMNS", "120")
    # Other processes would not see what is patched.
    monkeypatch.setattr(local_workers, "usable_cores", lambda: 1)
    yield
    torch.set_num_threads(before)


def test_the_recipe_of_cifar() -> None:
    made = deep.cifar(data_dir="here")
    assert [e.name for e in made] == [
        *("exponential-by-label", "exponential-dirichlet"),
        *("multi-sub-ring-by-label", "multi-sub-ring-dirichlet"),
    ]
    for experiment in made:
        assert (experiment.steps, experiment.lr, experiment.seeds) == (
            160 * 97,
            (1.0,),
            (0, 1, 2),
        )
        told = experiment.problem.params
        assert (told["model"], told["norm"], told["augment"]) == ("resnet-20", "group", 4)
        assert (told["batch"], told["weight_decay"]) == (32, 1e-4)
        assert experiment.networks[0].n == 16
    assert len(made[0].algorithms) == 6
    assert [a.algorithm for a in made[2].algorithms] == ["push-pull", "sgp", "centralized"]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(deep, "QUICK_STEPS", 4)
    monkeypatch.setattr(deep, "NODES", 4)
    monkeypatch.setattr(cifar, "RECORDS", 40)
    folder = tmp_path / "data" / cifar.FOLDER
    folder.mkdir(parents=True)
    for name, content in cifar_contents(40).items():
        (folder / name).write_bytes(content)
    return tmp_path / "data"


def test_every_method_suits_its_networks_and_moves_alike(tiny: Path) -> None:
    """One tenth of γ for all, divided by nπ for S-PP."""
    for experiment in deep.cifar(quick=True, data_dir=str(tiny)):
        work = plan(experiment)
        for job in work.jobs:
            check(job.method, job.net)
            speed = job.method.speed
            assert speed == pytest.approx(10)


@pytest.mark.slow
def test_the_command_for_cifar(tiny: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    words = "reproduce", "cifar", "--quick", "--data-dir", tiny, "--out", out
    code, _, err = command(*words)
    assert code == 0
    assert all("% done" in line for line in err.splitlines()), err  # of a busy machine
    assert "multi-sub-ring-dirichlet-quick" in {p.name for p in out.iterdir()}
    assert (out / "report.html").exists()
    assert (out / "exponential-by-label-quick" / "test_accuracy-bytes.png").exists()
    found = Results.read(out / "exponential-by-label-quick")
    assert len(found.trials) == 6
    code, _, err = command(*words)
    assert code == 2
    assert "already holds a run" in err
    assert command(*words, "--resume")[0] == 0


@pytest.mark.slow
def test_the_command_for_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """On a text that ships with Python."""
    monkeypatch.setattr(deep, "TEXT_QUICK_STEPS", 4)
    source = Path(argparse.__file__).read_text(encoding="utf-8")[:6_000]
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(source, encoding="utf-8")
    code, _, err = command("reproduce", "language", "--quick", "--text", text, "--out", out)
    assert code == 0
    assert all("% done" in line for line in err.splitlines()), err  # of a busy machine
    found = Results.read(out)
    assert {trial.key.algorithm for trial in found.trials} == {
        *("S-PP, AdamW", "SGP, AdamW", "DDP, AdamW"),
    }
    assert (out / "test_loss.png").exists()


def test_language_without_a_text(command: Command) -> None:
    code, _, err = command("reproduce", "language", "--quick")
    assert code == 2
    assert "there is none" in err
    assert "--text FILE" in err
