"""Quadratics: gradients, noise, optimum and what the generator promises."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from digrad.base.counters import Sampler
from digrad.base.errors import DigradError, ParameterError
from digrad.problems import PROBLEMS, Classifier, KnownOptimum, Problem, Quadratic

ALL = slice(None)
# What seed 11 gives for 2 nodes and 3 variables: on another machine it must be the same.
OPTIMUM = [0.054050031641494134, 0.34750420972384666, 0.9361193397765897]
MINIMISERS = [
    [-5.383214909828232, -5.247912274422626, 0.665446399934424],
    [0.8156736413510339, 1.9315763482875044, 1.2543649613960146],
]
MATRIX = [
    [0.7253853958273142, 0.030629423488780002, 0.41325978087904236],
    [0.030629423488780002, 0.315921178412139, 0.00040022272744762773],
    [0.41325978087904236, 0.00040022272744762773, 0.37492119177738453],
]
NO_NOISE = torch.empty(0)


def make(nodes: int = 4, dim: int = 5, **options: object) -> Quadratic:
    options = {"dtype": torch.float64, "sigma": 0.0, **options}
    return Quadratic.generate(nodes, dim, **options)  # type: ignore[arg-type]


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.manual_seed(seed))


def dense(problem: Quadratic) -> np.ndarray:
    A = problem.A.numpy()
    return A if A.ndim == 3 else np.stack([np.diag(a) for a in A])


def naive_loss(problem: Quadratic, i: int, x: np.ndarray) -> float:
    gap = x - problem.b[i].numpy()
    return float(gap @ dense(problem)[i] @ gap / 2)


BOTH = pytest.mark.parametrize("rotate", [True, False])


@BOTH
def test_keeps_the_contract(rotate: bool) -> None:
    problem = make(rotate=rotate)
    assert isinstance(problem, Problem)
    assert isinstance(problem, KnownOptimum)
    assert not isinstance(problem, Classifier)
    assert (problem.nodes, problem.dim) == (4, 5)
    assert torch.equal(problem.start(), torch.zeros(5, dtype=torch.float64))


@BOTH
def test_gradient_and_loss_by_the_formula(rotate: bool) -> None:
    problem, x = make(rotate=rotate), points(3, 4, 5)
    g = problem.gradient(x, NO_NOISE, ALL)
    for trial in range(3):
        for i in range(4):
            expected = dense(problem)[i] @ (x[trial, i] - problem.b[i]).numpy()
            np.testing.assert_allclose(g[trial, i], expected, atol=1e-14)
    y = points(2, 3, 5)
    losses = [
        np.mean([naive_loss(problem, i, v.numpy()) for i in range(4)]) for v in y.reshape(-1, 5)
    ]
    np.testing.assert_allclose(problem.loss(y), np.reshape(losses, (2, 3)), rtol=1e-13)


@BOTH
def test_full_gradient_against_autograd_and_node_gradients(rotate: bool) -> None:
    problem, x = make(rotate=rotate), points(3, 5).requires_grad_()
    (slope,) = torch.autograd.grad(problem.loss(x).sum(), x)
    x = x.detach()
    torch.testing.assert_close(problem.full_gradient(x), slope, atol=1e-14, rtol=0)
    rows = problem.gradient(x.unsqueeze(1).expand(3, 4, 5), NO_NOISE, ALL)
    torch.testing.assert_close(rows.mean(1), slope, atol=1e-14, rtol=0)
    step = 1e-4 * torch.eye(5, dtype=torch.float64)
    differences = (problem.loss(x[0] + step) - problem.loss(x[0] - step)) / 2e-4
    torch.testing.assert_close(differences, slope[0], atol=1e-10, rtol=0)


@BOTH
def test_some_rows_are_rows_of_all(rotate: bool) -> None:
    problem, x = make(rotate=rotate), points(3, 4, 5)
    whole = problem.gradient(x, NO_NOISE, ALL)
    part = problem.gradient(x[:, 1:3], NO_NOISE, slice(1, 3))
    torch.testing.assert_close(part, whole[:, 1:3], atol=1e-15, rtol=0)


@BOTH
def test_the_optimum_is_optimal(rotate: bool) -> None:
    problem = make(6, rotate=rotate, heterogeneity=3.0, seed=4)
    best = problem.optimum()
    rows = problem.gradient(best.expand(6, 5), NO_NOISE, ALL)
    assert rows.mean(0).norm() < 1e-14
    assert problem.full_gradient(best).norm() == 0
    assert float(problem.loss(best)) == pytest.approx(problem.smallest, rel=1e-14)
    assert (problem.loss(best + points(20, 5)) > problem.smallest).all()


@BOTH
@pytest.mark.parametrize("condition", [1.0, 10.0, 1000.0])
def test_condition_and_smoothness_are_as_asked(rotate: bool, condition: float) -> None:
    problem = make(condition=condition, rotate=rotate)
    for A in dense(problem):
        eigenvalues = np.linalg.eigvalsh(A)
        np.testing.assert_allclose(eigenvalues[[0, -1]], [1 / condition, 1], rtol=1e-9)
    assert problem.smoothness == pytest.approx(1, rel=1e-12)


@BOTH
@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 20.0])
def test_heterogeneity_is_as_asked(rotate: bool, heterogeneity: float) -> None:
    problem = make(7, heterogeneity=heterogeneity, rotate=rotate)
    rows = problem.gradient(problem.optimum().expand(7, 5), NO_NOISE, ALL)
    zeta = float((rows.square().sum() / 7).sqrt())
    assert zeta == pytest.approx(heterogeneity, abs=1e-12)
    assert float(problem.optimum().norm()) == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(problem.optimum(), make(7, rotate=rotate).optimum())


@pytest.mark.parametrize(("nodes", "dim"), [(1, 1), (1, 4), (3, 1)])
def test_smallest_sizes(nodes: int, dim: int) -> None:
    problem = make(nodes, dim)
    assert problem.full_gradient(problem.optimum()).norm() == 0
    assert (problem.smallest == pytest.approx(0, abs=1e-30)) == (nodes == 1)


@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("sigma", [0.5, 4.0])
def test_noise_has_the_variance_of_the_assumption(dim: int, sigma: float) -> None:
    """E‖g - ∇f‖² = σ² and E g = ∇f, whatever the dimension."""
    problem = make(5, dim, sigma=sigma)
    draw = Sampler(torch.tensor([1, 2, 3, 4]), torch.arange(5))
    noise = problem.sample(draw, range(2000))
    assert noise.shape == (2000, 4, 5, dim)
    x = points(4, 5, dim)
    exact = make(5, dim).gradient(x, NO_NOISE, ALL)
    errors = torch.stack([problem.gradient(x, step, ALL) for step in noise]) - exact
    torch.testing.assert_close(errors, noise, atol=1e-13, rtol=0)
    squares = noise.square().sum(-1)
    spread = sigma**2 * math.sqrt(2 / dim / squares.numel())
    assert abs(float(squares.mean()) - sigma**2) < 4 * spread
    assert abs(float(noise.mean())) < 4 * sigma / math.sqrt(dim * noise.numel())


def test_samples_depend_on_seed_node_step_only() -> None:
    problem = make(4, 3, sigma=1.0)
    whole = problem.sample(Sampler(torch.tensor([5, 6]), torch.arange(4)), range(10))
    part = problem.sample(Sampler(torch.tensor([6]), torch.tensor([1, 2])), range(4, 9))
    assert torch.equal(part, whole[4:9, 1:, 1:3])


def test_no_noise_is_an_empty_sample() -> None:
    draw = Sampler(torch.tensor([5, 6]), torch.arange(4))
    assert make().sample(draw, range(3)).shape == (3, 2, 4, 0)


def test_what_the_theorem_asks() -> None:
    problem = make(3, 4, sigma=2.0, heterogeneity=1.5)
    s = problem.setting(100)
    start = problem.start()
    gap = float(problem.loss(start)) - problem.smallest
    rows = make(3, 4, heterogeneity=1.5).gradient(start.expand(3, 4), NO_NOISE, ALL)
    assert (s.L, s.sigma, s.T) == (pytest.approx(1), 2.0, 100)
    assert s.delta_f == pytest.approx(gap, rel=1e-12)
    assert pytest.approx(float(rows.square().sum()) / 3, rel=1e-12) == s.F0


def test_matrices_of_ones_own() -> None:
    A = torch.tensor([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]])
    problem = Quadratic(A, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    torch.testing.assert_close(problem.optimum(), torch.tensor([5 / 11, 7 / 11]))
    assert problem.smoothness == pytest.approx((5 + math.sqrt(5)) / 2)


def test_gradients_compile_without_a_break() -> None:
    for rotate in (True, False):
        problem, x = make(sigma=1.0, rotate=rotate), points(2, 4, 5)
        sample = problem.sample(Sampler(torch.tensor([1, 2]), torch.arange(4)), range(1))[0]
        compiled = torch.compile(problem.gradient, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x, sample, ALL), problem.gradient(x, sample, ALL))


def test_single_precision_stays_single() -> None:
    problem = PROBLEMS["quadratic"](nodes=3, dim=4)
    draw = Sampler(torch.tensor([1]), torch.arange(3))
    x = problem.start()
    g = problem.gradient(x.expand(1, 3, 4), problem.sample(draw, range(1))[0], ALL)
    for value in (x, g, problem.loss(x), problem.full_gradient(x)):
        assert value.dtype == torch.float32


def test_frozen_values() -> None:
    problem = make(2, 3, seed=11)
    np.testing.assert_allclose(problem.optimum(), OPTIMUM, rtol=1e-9)
    np.testing.assert_allclose(problem.b, MINIMISERS, rtol=1e-9)
    np.testing.assert_allclose(problem.A[1], MATRIX, rtol=1e-9)


EYE = torch.eye(2).expand(3, 2, 2)
B = torch.zeros(3, 2)
NAN = torch.full((3, 2), math.nan)
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: make(0), "nodes must be a whole number from 1 on, got 0"),
    (lambda: make(2.5), "nodes"),  # type: ignore[arg-type]
    (lambda: make(2, 0), "dim must be a whole number from 1 on, got 0"),
    (lambda: make(condition=0.5), "condition must be a finite number, at least 1, got 0.5"),
    (lambda: make(condition=math.nan), "condition"),
    (lambda: make(heterogeneity=-1.0), "heterogeneity must be a finite number, at least 0, got -1"),
    (lambda: make(sigma=-1.0), "sigma must be a finite number, at least 0, got -1.0"),
    (lambda: make(seed=-1), "a seed is an integer"),
    (lambda: make(seed=2**63), "a seed is an integer"),
    (
        lambda: make(100, 10_000),
        "10,000,000,000 numbers, would take .* GiB.*\n  hint: rotate = false",
    ),
    (lambda: make(condition=1e9, dtype=torch.float32), "positive definite\n  hint: in float32"),
    (lambda: Quadratic(EYE, B[:2]), r"A of shape \(3, 2, 2\) does not go with b of shape \(2, 2\)"),
    (lambda: Quadratic(torch.ones(3, 2, 2), B), r"A\[0\] is not positive definite"),
    (lambda: Quadratic(EYE.triu() + torch.tensor([[0, 1.0], [0, 0]]), B), "not symmetric"),
    (lambda: Quadratic(EYE, NAN), "not finite"),
    (lambda: Quadratic(NAN, B), "not finite"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
def test_wrong_parameters(wrong: Callable[[], object], text: str) -> None:
    with pytest.raises(ParameterError, match=text) as caught:
        wrong()
    assert "\n  hint: " in str(caught.value)


@settings(max_examples=100)
@given(
    nodes=st.integers(-1, 3),
    dim=st.integers(-1, 3),
    condition=st.floats() | st.floats(1, 100),
    heterogeneity=st.floats() | st.floats(0, 9),
    seed=st.integers(-1, 2**64),
    rotate=st.booleans(),
)
def test_any_numbers_give_a_problem_or_one_error(
    nodes: int, dim: int, condition: float, heterogeneity: float, seed: int, rotate: bool
) -> None:
    said = "\n  hint: "
    try:
        problem = make(
            nodes, dim, condition=condition, heterogeneity=heterogeneity, seed=seed, rotate=rotate
        )
        assert problem.full_gradient(problem.start()).isfinite().all()
    except DigradError as error:
        said = str(error)
    assert "\n  hint: " in said


def test_a_user_writes_a_problem_in_ten_lines() -> None:
    class Distance:
        """fᵢ(x) = ½ ‖x - i‖², seen through uniform noise."""

        nodes, dim = 3, 2

        def start(self) -> Tensor:
            return torch.zeros(2)

        def sample(self, sampler: Sampler, steps: range) -> Tensor:
            return sampler.uniforms(steps, 2).float() - 0.5

        def gradient(self, x: Tensor, sample: Tensor, rows: slice) -> Tensor:
            return x - torch.arange(3.0)[rows, None] + sample

        def loss(self, x: Tensor) -> Tensor:
            return ((x.unsqueeze(-2) - torch.arange(3.0)[:, None]) ** 2).sum((-2, -1)) / 6

        def full_gradient(self, x: Tensor) -> Tensor:
            return x - 1

    problem: Problem = Distance()
    assert isinstance(problem, Problem)
    draw = Sampler(torch.tensor([1, 2]), torch.arange(3))
    g = problem.gradient(torch.zeros(2, 3, 2), problem.sample(draw, range(1))[0], ALL)
    assert g.shape == (2, 3, 2)
    assert float(problem.loss(problem.start())) == pytest.approx(5 / 3)
