"""Text by characters: how it is cut up, and a run that is stopped and gone on with."""

from pathlib import Path

import pytest
import torch

from digrad.base.errors import DigradError
from digrad.problems import PROBLEMS, character_problem
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.runs import execute

TEXT = "the quick brown fox jumps over the lazy dog. " * 12  # 540 characters, 28 different
SMALL = {"length": 8, "width": 8, "heads": 2, "layers": 1, "batch": 2}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return str(file)


def test_the_text_is_cut_into_stretches_and_pieces(path: str) -> None:
    """67 stretches of 8: the last 6 to test on, the others in order, a piece for each node."""
    problem = character_problem(4, path, **SMALL)
    alphabet = sorted(set(TEXT))
    assert len(alphabet) == 28
    assert problem.sizes.tolist() == [16, 15, 15, 15]
    inputs, targets = problem._training.inputs, problem._training.targets

    def text(codes: torch.Tensor) -> str:
        return "".join(alphabet[k] for k in codes.flatten())

    assert text(inputs) == TEXT[: 61 * 8]
    assert text(targets) == TEXT[1 : 61 * 8 + 1]  # each next character
    assert problem._testing is not None
    assert text(problem._testing.inputs) == TEXT[61 * 8 : 67 * 8]
    assert text(problem._testing.targets) == TEXT[61 * 8 + 1 : 67 * 8 + 1]


def test_accuracy_counts_characters(path: str) -> None:
    problem = character_problem(2, path, **SMALL)
    x = problem.start()
    guesses = problem.module(x)(problem._training.inputs).argmax(1)
    right = (guesses == problem._training.targets).double().mean(1)
    hits = [part.mean() for part in right.split(problem.sizes.tolist())]
    got = problem.measure(x, x.expand(2, -1), ["accuracy"])["accuracy"]
    assert float(got) == pytest.approx(float(sum(hits) / 2))


def test_a_model_sees_only_what_came_before(path: str) -> None:
    problem = character_problem(2, path, **SMALL)
    module = problem.module(problem.start())
    codes = problem._training.inputs[:1].clone()
    before = module(codes)
    codes[0, 5] = (codes[0, 5] + 1) % 28
    after = module(codes)
    assert torch.equal(before[..., :5], after[..., :5])
    assert not torch.allclose(before[..., 5:], after[..., 5:])


def test_the_start_depends_on_the_seed_alone(path: str) -> None:
    state = torch.random.get_rng_state()
    first, again, other = (character_problem(2, path, **SMALL, seed=s).start() for s in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_draws_only_where_there_is_some(path: str) -> None:
    assert character_problem(2, path, **SMALL)._rows.words == {}
    words = character_problem(2, path, **SMALL, dropout=0.1)._rows.words
    assert words == {"blocks.0.drops.0": 2 * 8 * 8, "blocks.0.drops.1": 2 * 8 * 8}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nodes": 62}, r"540 characters, 67 stretches of 8\n  hint: 62 nodes need one each, and"),
        ({"length": 600}, "0 stretches of 600"),
        ({"length": 0}, "length must be a whole number from 1 on, got 0"),
        ({"length": -3}, "length must be a whole number from 1 on, got -3"),
        ({"width": 9}, "multiple of heads, got width = 9 and heads = 2"),
        ({"heads": 0}, "heads must be a whole number from 1 on, got 0"),
        ({"dropout": -0.1}, "dropout must be between 0 and 1, got -0.1"),
        ({"batch": 0}, "batch must be"),
        ({"path": "nowhere.txt"}, "nowhere.txt: no such file"),
    ],
)
def test_what_is_refused(path: str, given: dict, text: str) -> None:
    with pytest.raises(DigradError, match=text):
        character_problem(**{"nodes": 2, "path": path} | SMALL | given)


def test_as_many_nodes_as_there_are_stretches(path: str) -> None:
    problem = character_problem(61, path, **SMALL)
    assert problem.sizes.tolist() == [1] * 61
    assert PROBLEMS["characters"] is character_problem


def test_stopped_and_resumed_to_the_same_bytes(path: str, tmp_path: Path) -> None:
    experiment = Experiment(
        networks=(NetworkSpec("star", n=3),),
        algorithms=(AlgorithmSpec("push-pull"),),
        problem=KindSpec("characters", {"path": path, **SMALL, "dropout": 0.2}),
        steps=10,
        lr=(0.1, 0.2),
        metrics_every=3,
    )
    whole = execute.run(experiment, tmp_path / "whole")

    def stop(job, t: int) -> None:
        if t == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute.run(experiment, tmp_path / "stopped", progress=stop)
    out = execute.run(experiment, tmp_path / "stopped", resume=True)
    assert (out / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
