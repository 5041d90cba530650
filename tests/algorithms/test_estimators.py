"""Estimators with a memory: a naive twin, reference numbers, and noise that dies out."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from algorithms.test_momentum import DIGRAPH, START, A, B, rows
from digrad.algorithms import (
    ALGORITHMS,
    ABSaga,
    ABSvrg,
    LocalSGP,
    PushDigingATC,
    PushPull,
    PushSaga,
    PushSvrg,
)
from digrad.algorithms.estimators import Saga, Svrg, WithEstimator
from digrad.base.errors import ParameterError
from digrad.engines.simulator import Simulator
from digrad.problems import Logistic, Quadratic
from digrad.runs.recursion import Recursion, Trials
from mixers import Dense

D = torch.tensor([0.5, -0.25], dtype=torch.float64)


class Pair:
    """Two samples for each node, with minima at b ± D; which are drawn is written down."""

    def __init__(self, drawn: list[int], centres: Tensor | None = None) -> None:
        self.centres = torch.stack([B + D, B - D]) if centres is None else centres
        self.sizes = torch.full((4,), len(self.centres))
        self.drawn = torch.tensor(drawn)[:, None]

    def one(self, x: Tensor, number: Tensor) -> Tensor:
        return A * (x - self.centres[number, torch.arange(4)])

    def whole(self, x: Tensor) -> Tensor:
        return A * (x - self.centres.mean(0))


DRAWS = [[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]]


def after_three(algorithm: Any) -> tuple[Any, Tensor]:
    s = algorithm.init(START)
    for t, drawn in enumerate(DRAWS):
        g, s = algorithm.estimate(s, t, Pair(drawn))
        s = algorithm.step(s, g, Dense(DIGRAPH), 0.1)
    return s, g


def test_push_saga_reference() -> None:
    s, g = after_three(PushSaga())
    wanted = {
        "u": "0.118520143613 -0.336381349206; 0.297125472553 -0.256798801587; "
        "0.467944980915 -0.336926968254; 0.185401374858 -0.241992452381",
        "y": "0.077441964286 0.667873015873; -0.099299464286 -0.674087460317; "
        "1.245033443878 -1.781742222222; 1.788154336735 -0.596047619048",
        "mean": "-0.489569196429 -1.167267857143; 1.042080000000 -2.417020000000; "
        "4.263707908163 -1.374321428571; -1.735866071429 2.292857142857",
        "v": "0.842592592593; 0.606481481481; 1.287037037037; 1.263888888889",
    }
    for name, text in wanted.items():
        torch.testing.assert_close(getattr(s, name), rows(text), rtol=0, atol=2e-12)
    last = (
        "-0.534138392857 -1.254535714286; 1.124160000000 -2.429040000000; "
        "4.318040816327 -1.336142857143; -1.896732142857 2.635714285714"
    )
    torch.testing.assert_close(g, rows(last), rtol=0, atol=2e-12)


def test_ab_saga_reference() -> None:
    s, _ = after_three(ABSaga())
    models = (
        "0.215923611111 -0.458909722222; 0.514326388889 -0.484175347222; "
        "0.435453703704 -0.361946759259; 0.128187500000 -0.194397569444"
    )
    mean = (
        "-0.467916666667 -1.130833333333; 1.068333333333 -2.445104166667; "
        "4.367916666667 -1.399027777778; -1.742083333333 2.282916666667"
    )
    torch.testing.assert_close(s.x, rows(models), rtol=0, atol=2e-12)
    torch.testing.assert_close(s.mean, rows(mean), rtol=0, atol=2e-12)


def logistic(batch: int = 1, samples: int = 5) -> Logistic:
    return Logistic.generate(4, 3, samples, batch=batch, dtype=torch.float64)


def recursion(algorithm: Any, problem: Any, size: float = 0.05) -> Recursion:
    engine = Simulator(DIGRAPH, dtype=torch.float64)
    return Recursion(algorithm, engine, problem, Trials([3], [size]), lambda t: 1.0)


@pytest.mark.parametrize("batch", [1, 3])
def test_saga_by_a_naive_table(batch: int) -> None:
    """One node after the other, in NumPy, gradients of single samples by their formula."""
    problem = logistic(batch)
    r = recursion(ABSaga(), problem)
    moment = r.start()
    table: list[list[np.ndarray[Any, Any]]] = []
    for t in range(12):
        x = moment.state.x[0].numpy()
        each = [
            [
                problem.sample_gradient(
                    torch.from_numpy(x), torch.full((4,), k), slice(0, 4)
                ).numpy()[i]
                for k in range(5)
            ]
            for i in range(4)
        ]
        drawn = problem.numbers(r._samples(range(t, t + 1))[0, 0], slice(0, 4))[0].tolist()
        if not table:
            table, wanted = each, [np.mean(one, axis=0) for one in each]
        else:
            wanted = []
            for i in range(4):
                parts = [each[i][k] - table[i][k] for k in drawn[i]]
                wanted.append(np.mean(parts, axis=0) + np.mean(table[i], axis=0))
                for k in drawn[i]:
                    table[i][k] = each[i][k]
        moment = r.advance(moment, t + 1)
        np.testing.assert_allclose(moment.state.g[0].numpy(), np.array(wanted), atol=1e-13)
        means = np.array([np.mean(one, axis=0) for one in table])
        np.testing.assert_allclose(moment.state.mean[0].numpy(), means, atol=1e-13)


@pytest.mark.parametrize("estimator", [Saga(), Svrg(7)])
def test_estimates_are_right_on_average(estimator: Any) -> None:
    """Over all samples that a node may draw, their mean is its whole gradient."""
    names: tuple[Any, ...] = (None, None)
    _, memory = estimator(names, 0, START, Pair(DRAWS[0]))
    x, found = START + 0.3, []
    for k in (0, 1):
        kept = tuple(value.clone() for value in memory)
        found.append(estimator(kept, 1, x, Pair([k] * 4))[0])
    torch.testing.assert_close(torch.stack(found).mean(0), Pair([0] * 4).whole(x))


def test_one_sample_is_no_noise_to_the_bit() -> None:
    plain, saga = (recursion(a, logistic(samples=1)) for a in (PushDigingATC(), PushSaga()))
    one, other = plain.advance(plain.start(), 20).state, saga.advance(saga.start(), 20).state
    assert torch.equal(one.u, other.u)
    assert torch.equal(one.y, other.y)


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("push-saga", "ab-svrg", "push-svrg")
]


@pytest.mark.parametrize("name", ["ab-saga", *OTHERS])
def test_exact_with_noise(name: str) -> None:
    """Where the same method with plain samples stays away."""
    problem = logistic(samples=4)
    r = recursion(ALGORITHMS[name](), problem, 0.05)
    end = r.advance(r.start(), 6000)
    gradient = problem.full_gradient(r.algorithm.answer(end.state)[0].mean(0))
    plain = recursion(r.algorithm.method, problem, 0.05)
    stays = plain.advance(plain.start(), 6000)
    noisy = problem.full_gradient(plain.algorithm.answer(stays.state)[0].mean(0))
    assert gradient.norm() < 1e-3 * noisy.norm()


def test_nodes_with_different_numbers_of_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = (2, 5, 3, 1)
    features = [torch.randn(k, 3, generator=generator, dtype=torch.float64) for k in sizes]
    labels = [torch.ones(k, dtype=torch.float64) for k in sizes]
    problem = Logistic(features, labels)
    r = recursion(ABSaga(), problem)
    state = r.advance(r.start(), 1).state
    whole = problem.local_gradient(problem.start().expand(1, 4, -1), slice(0, 4))
    torch.testing.assert_close(state.g, whole)
    state = r.advance(r.start(), 40).state
    for i, size in enumerate(sizes):
        torch.testing.assert_close(state.mean[0, i], state.table[0, :size, i].mean(0))


def test_any_method_with_any_estimator() -> None:
    method = WithEstimator(PushPull(momentum=0.5), Svrg(3))
    assert method.speed == 2
    assert method.root_weighted
    r = recursion(method, logistic())
    assert r.advance(r.start(), 9).state.x.isfinite().all()


def test_what_is_refused() -> None:
    with pytest.raises(ParameterError, match="does not say which it draws"):
        recursion(PushSaga(), Quadratic.generate(4, 3, dtype=torch.float64))
    still = recursion(PushSvrg(), logistic(batch=0))
    with pytest.raises(ParameterError, match="draws no samples"):
        still.advance(still.start(), 1)
    with pytest.raises(ParameterError, match="takes 4 gradients a step"):
        WithEstimator(LocalSGP(), Saga())
    with pytest.raises(ParameterError, match="period must be at least 0"):
        ABSvrg(-1).init(START)
