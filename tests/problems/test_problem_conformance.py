"""The checks of problems pass the library's, and catch those that break the contract."""

from typing import Any

import pytest
import torch
from torch import Tensor

from digrad.base.counters import Sampler
from digrad.problems import Logistic, Quadratic
from digrad.problems.conformance import check_problem


def failures(problem: Any) -> dict[str, str]:
    return {v.check: v.failure for v in check_problem(problem) if v.failure}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_library_keeps_the_contract(dtype: torch.dtype) -> None:
    assert failures(Quadratic.generate(5, 4, dtype=dtype)) == {}
    assert failures(Logistic.generate(5, 6, 40, dtype=dtype)) == {}


class Liar:
    """A quadratic problem that somebody has meddled with."""

    def __init__(self) -> None:
        self.inner = Quadratic.generate(5, 4, dtype=torch.float64)
        self.nodes, self.dim = 5, 4

    def start(self) -> Tensor:
        return self.inner.start()

    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        return self.inner.sample(sampler, steps)

    def gradient(self, x: Tensor, sample: Tensor, rows: slice) -> Tensor:
        return self.inner.gradient(x, sample, rows)

    def loss(self, x: Tensor) -> Tensor:
        return self.inner.loss(x)

    def full_gradient(self, x: Tensor) -> Tensor:
        return self.inner.full_gradient(x)


class WrongShape(Liar):
    def loss(self, x: Tensor) -> Tensor:
        return self.inner.loss(x).unsqueeze(-1).expand(-1, 3).mT


class WrongType(Liar):
    def full_gradient(self, x: Tensor) -> Tensor:
        return self.inner.full_gradient(x).float()


class Half(Liar):
    def loss(self, x: Tensor) -> Tensor:
        return 2 * self.inner.loss(x)


class Biased(Liar):
    def gradient(self, x: Tensor, sample: Tensor, rows: slice) -> Tensor:
        return self.inner.gradient(x, sample, rows) + 0.5


class Rolling(Liar):
    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        return torch.randn(len(steps), len(sampler.seeds), len(sampler.rows), 4).double()


class FirstNodes(Liar):
    """Forgets which nodes are asked for."""

    def gradient(self, x: Tensor, sample: Tensor, rows: slice) -> Tensor:
        return self.inner.gradient(x, sample, slice(0, x.shape[-2]))


@pytest.mark.parametrize(
    ("problem", "check", "said"),
    [
        (WrongShape(), "shapes", "loss() of one point for each trial has shape (3, 2), not (2,)"),
        (WrongType(), "shapes", "full_gradient() is of torch.float32, start() of torch.float64"),
        (Half(), "loss", "in direction 0 the loss rises by"),
        (Biased(), "mean", "on average over 400 steps"),
        (Rolling(), "samples", "samples differ when steps are drawn in two parts"),
        (FirstNodes(), "rows", "the gradient of a node in a block of its own is off by"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Liar) else "",
)
def test_liars_are_caught(problem: Liar, check: str, said: str) -> None:
    failure = failures(problem)[check]
    assert said in failure
    assert "\n  hint: " in failure


def test_a_problem_without_noise() -> None:
    assert failures(Quadratic.generate(5, 4, sigma=0.0, dtype=torch.float64)) == {}
