"""Images by name: what is read, how it is shared out, and whole experiments with them."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from digrad.base.errors import DigradError
from digrad.base.metrics import VALUES
from digrad.data import formats as cifar
from digrad.data import read_images
from digrad.problems import PROBLEMS, image_problem, partition
from digrad.problems.models import CNN
from digrad.results.experiment import load_experiment
from digrad.results.trials import Results
from digrad.runs import execute
from digrad.runs.planning import plan
from digrad.runs.recursion import EAGER, StepMode
from tiny_images import cifar_contents, images, write_mnist

MEAN, STD = 0.1307, 0.3081  # of MNIST's pixels


@pytest.fixture
def mnist(tmp_path: Path) -> str:
    return str(write_mnist(tmp_path / "data", train=60, test=20))


# From names to a problem.


def test_the_papers_network_on_mnist(mnist: str) -> None:
    problem = image_problem(5, data_dir=mnist)
    pixels, labels = images(60)
    order = np.argsort(labels, kind="stable")  # sorted by label, contiguous blocks
    stored = problem._training
    assert (problem.nodes, problem.dim, problem.batch) == (5, 21_840, 8)
    assert problem.sizes.tolist() == [12] * 5
    assert torch.equal(stored.targets, torch.from_numpy(labels[order]))
    assert stored.inputs.dtype == torch.uint8
    assert torch.equal(stored.inputs[:, 0], torch.from_numpy(pixels[order]).byte())
    seen = problem._ready(stored.inputs)
    wanted = (torch.from_numpy(pixels[order]).double() / 255 - MEAN) / STD
    torch.testing.assert_close(seen[:, 0].double(), wanted, rtol=1e-5, atol=1e-6)
    assert problem._testing is not None
    assert torch.equal(problem._testing.targets, torch.from_numpy(images(20, 1)[1]))


def test_the_start_depends_on_the_seed_alone(mnist: str) -> None:
    torch.manual_seed(9)
    state = torch.random.get_rng_state()
    first, again, other = (image_problem(2, data_dir=mnist, seed=s).start() for s in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(3)
    assert torch.equal(first, torch.nn.utils.parameters_to_vector(CNN().parameters()).detach())


@pytest.mark.parametrize(
    ("split", "more"),
    [("iid", {}), ("by-label", {}), ("dirichlet", {"alpha": 0.1}), ("k-classes", {"k": 3})],
)
def test_splits(mnist: str, split: str, more: dict) -> None:
    problem = image_problem(4, data_dir=mnist, model="mlp", split=split, seed=7, **more)
    parts = partition(images(60)[1], 4, split, **more, seed=7)
    assert problem.sizes.tolist() == [len(part) for part in parts]
    wanted = torch.from_numpy(images(60)[1][np.concatenate(parts)])
    assert torch.equal(problem._training.targets, wanted)


@pytest.mark.parametrize(
    ("asked", "kept"), [(0, 60), (60, 60), (99, 60), (7, 7), (1, 1)], ids=lambda v: str(v)
)
def test_some_of_the_images_evenly_spread(mnist: str, asked: int, kept: int) -> None:
    problem = image_problem(1, data_dir=mnist, model="mlp", samples=asked, test_samples=asked)
    places = np.arange(kept) * 60 // kept
    assert torch.equal(
        problem._training.targets.sort().values, torch.from_numpy(np.sort(images(60)[1][places]))
    )
    assert problem._testing is not None
    assert len(problem._testing.targets) == min(kept, 20)


def test_colour_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "RECORDS", 4)  # in a file
    for name, content in cifar_contents(4).items():
        (tmp_path / name).write_bytes(content)
    for model in ("cnn", "resnet"):
        problem = image_problem(2, "cifar-10", model=model, data_dir=str(tmp_path))
        assert sum(problem.sizes) == 20
        x = problem.start()
        assert problem.full_gradient(x).isfinite().all()
    seen = problem._ready(problem._training.inputs).double()
    assert seen.shape == (20, 3, 32, 32)


def test_digits_come_with_a_package() -> None:
    problem = image_problem(3, "digits", model="mlp")
    assert problem._training.inputs.shape == (1500, 1, 8, 8)
    seen = problem._ready(problem._training.inputs)
    assert abs(float(seen.mean())) < 1e-3
    assert abs(float(seen.std()) - 1) < 1e-3


def test_the_environment_says_where(mnist: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGRAD_DATA", mnist)
    assert image_problem(2, model="mlp").nodes == 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"data": "minst"}, r"unknown dataset 'minst'\n  hint: did you mean 'mnist'"),
        ({"model": "cnm"}, r"unknown model 'cnm'\n  hint: did you mean 'cnn'"),
        ({"split": "by-labels"}, r"'by-labels'\n  hint: did you mean 'by-label'"),
        ({"data": "digits"}, r"digits are 8 x 8 pixels\n  hint: model = \"mlp\" takes any size"),
        ({"samples": -1}, "samples must be a whole number from 0 on, got -1"),
        ({"test_samples": -2}, "samples must be a whole number from 0 on, got -2"),
        ({"batch": 0}, "batch must be"),
        ({"dropout": 1.5}, "dropout must be a finite number, at least 0, at most 1, got 1.5"),
        ({"nodes": 61}, "61"),
        (
            {"norm": "batch"},
            r"model = 'cnn' does not use norm = 'batch'\n  hint: leave norm out, or",
        ),
        ({"model": "mlp", "dropout": 0.5}, r"'mlp' does not use dropout = 0.5\n.*model: cnn$"),
        ({"model": "resnet", "norm": "batchnorm"}, r"unknown norm 'batchnorm'\n.*mean 'batch'"),
        ({"model": "mlp", "k": 1}, r"split = 'by-label' does not use k = 1\n.*split: k-classes$"),
    ],
)
def test_what_is_refused(mnist: str, given: dict, text: str) -> None:
    with pytest.raises(DigradError, match=text):
        image_problem(**{"nodes": 2, "data_dir": mnist} | given)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DigradError) as error:
        image_problem(2, data_dir=str(tmp_path))
    for text in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "digrad data fetch mnist"):
        assert text in str(error.value)


# Whole experiments.

EXPERIMENT = """
name = "tiny"
steps = {steps}
lr = {sizes}
seeds = [0, 1]
metrics_every = 4
{more}

[[networks]]
topology = "star"
n = 3

[[algorithms]]
algorithm = "push-pull"

[[algorithms]]
algorithm = "sgp"

[problem]
kind = "images"
{problem}
"""
DIGITS = 'data = "digits"\nmodel = "mlp"\nsplit = "iid"\nsamples = 300'


def written(
    folder: Path, problem: str, steps: int = 12, sizes: str = "[0.05]", more: str = ""
) -> Path:
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(problem=problem, steps=steps, sizes=sizes, more=more))
    return file


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_stopped_and_resumed_to_the_same_bytes(mnist: str, tmp_path: Path) -> None:
    """The paper's network with dropout, killed in both methods, at records and in between."""
    problem = f'data_dir = "{mnist}"\nbatch = 2\nnode_samples = 5'
    experiment = load_experiment(written(tmp_path, problem))
    whole = execute.run(experiment, tmp_path / "whole")
    for stops in ([(0, 4), (1, 8)], [(0, 12), (1, 4), (1, 12)]):
        out = tmp_path / f"stopped-{stops}"
        for place in stops:

            def stop(job, t: int, at: tuple[int, int] = place) -> None:
                if (job.index, t) == at:
                    raise KeyboardInterrupt

            begun = out.exists()
            with pytest.raises(KeyboardInterrupt):
                execute.run(experiment, out, resume=begun, progress=stop, checkpoint_seconds=-1.0)
        execute.run(experiment, out, resume=True)
        assert (out / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    losses = {row["loss"] for row in rows(whole) if row["step"] == "12"}
    assert len(losses) == 4  # seeds and methods differ


def test_what_is_recorded_without_being_asked(tmp_path: Path) -> None:
    out = execute.run(load_experiment(written(tmp_path, DIGITS)), tmp_path / "run")
    kept = {name for name in VALUES if all(row[name] for row in rows(out))}
    assert kept == {
        *("loss", "accuracy", "test_loss", "test_accuracy", "worst_accuracy", "mean_accuracy"),
        *("consensus", "messages", "bytes"),
    }
    assert not any(row["gradient_norm"] or row["gap"] for row in rows(out))
    for row in rows(out):
        assert float(row["worst_accuracy"]) <= float(row["mean_accuracy"]) <= 1


def test_metrics_are_chosen(tmp_path: Path) -> None:
    chosen = 'metrics = ["test_accuracy", "gradient_norm"]'
    experiment = load_experiment(written(tmp_path, DIGITS, more=chosen))
    out = execute.run(experiment, tmp_path / "run")
    seen = {name for name in VALUES if any(row[name] for row in rows(out))}
    cheap = {"consensus", "tracking", "messages", "bytes"}
    assert seen - cheap == {"test_loss", "test_accuracy", "gradient_norm"}
    every = execute.run(replace(experiment, metrics=()), tmp_path / "every")
    for a, b in zip(rows(out), rows(every), strict=True):  # looking changes nothing
        assert (a["test_accuracy"], a["consensus"]) == (b["test_accuracy"], b["consensus"])


def test_an_unknown_metric_gets_a_suggestion(tmp_path: Path, command: Callable) -> None:
    file = written(tmp_path, DIGITS, more='metrics = ["test_acuracy"]')
    code, _, err = command("run", file, "--out", tmp_path / "run")
    assert code == 2
    assert "unknown metric 'test_acuracy'" in err
    assert "did you mean 'test_accuracy'?" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        ('data = "digit"', "unknown dataset 'digit'\n  hint: did you mean 'digits'?"),
        ('data = "digits"\nmodle = "mlp"', "did you mean 'model'?"),
        ('data = "digits"\nmodel = "mlp"\nsplit = "iid"\nbatch = -1', "from 1 on, got -1"),
    ],
)
def test_wrong_keys_end_in_one_message(
    tmp_path: Path, command: Callable, problem: str, text: str
) -> None:
    code, _, err = command("run", written(tmp_path, problem), "--out", tmp_path / "run")
    assert code == 2
    assert text in err
    assert "Traceback" not in err


def test_divergence_is_marked(tmp_path: Path) -> None:
    """Huge steps leave the finite numbers; their neighbours in the same tensor do not notice."""
    sizes = "[0.05, 1e30]"
    wild = execute.run(load_experiment(written(tmp_path, DIGITS, sizes=sizes)), tmp_path / "wild")
    tame = execute.run(load_experiment(written(tmp_path, DIGITS)), tmp_path / "tame")
    for row in rows(wild):
        ended = row["lr"] == "1e+30"
        assert bool(row["diverged_at"]) == ended
        if ended:
            assert int(row["step"]) < int(row["diverged_at"]) <= 4
    steady = [row for row in rows(wild) if row["lr"] == "0.05"]
    assert len(steady) == len(rows(tame))
    for a, b in zip(steady, rows(tame), strict=True):
        assert float(a["loss"]) == pytest.approx(float(b["loss"]), rel=1e-4)


def test_curves_and_tables_of_test_accuracy(tmp_path: Path, command: Callable) -> None:
    """It goes up: a linear axis, and a target that is reached from below."""
    out = tmp_path / "run"
    file = written(tmp_path, DIGITS, steps=40, sizes="[0.2]")
    code, text, _ = command("run", file, "--out", out)
    assert code == 0
    assert "test accuracy" in text
    code, text, _ = command("plot", out, "--metric", "test_accuracy")
    assert (code, text) == (0, f"figure: {out / 'test_accuracy.png'}\n")
    assert (out / "test_accuracy.png").read_bytes().startswith(b"\x89PNG")
    code, text, _ = command("table", out, "--metric", "test_accuracy", "--target", "0.5")
    assert code == 0
    assert "steps until test_accuracy reaches 0.5" in text
    until = text.partition("steps until")[2].splitlines()
    for curve in Results.read(out).curves("test_accuracy").values():
        assert curve.mean[0] < 0.3
        assert curve.mean[-1] > 0.6
        first = int(curve.steps[np.argmax(curve.mean >= 0.5)])
        line = next(a for a in until if f" {curve.key.algorithm} " in a)
        assert str(first) in line.split()
    code, text, _ = command("plot", out)  # of the loss: the gradient is only read on demand
    assert code == 0
    assert "loss.png" in text
    code, _, err = command("plot", out, "--metric", "gradient_norm")
    assert code == 2
    assert "no trial recorded its gradient_norm" in err
    assert "recorded are: loss" in err


def test_a_plan_gives_the_whole_sweep_one_problem(tmp_path: Path) -> None:
    work = plan(load_experiment(written(tmp_path, DIGITS, more="tf32 = true")))
    assert work.experiment.tf32
    assert len({id(job.problem) for job in work.jobs}) == 1
    assert all(job.mode == EAGER for job in work.jobs)
    longer = plan(replace(work.experiment, steps=4000))
    assert all(job.mode == StepMode("single", "compiled") for job in longer.jobs)
    assert work.problem.nodes == 3
    assert PROBLEMS["images"] is image_problem
    assert len(read_images("digits").test) == 297
