"""Logistic regression: gradients against autograd, differences and plain NumPy."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from digrad.base.counters import Sampler
from digrad.base.errors import DigradError, ParameterError
from digrad.problems import PROBLEMS, Classifier, KnownOptimum, Logistic, Problem, logistic

ALL = slice(None)
SIZES = (3, 7, 1, 4)
# What seed 5 gives for 2 nodes, 3 variables, 2 samples: the same on another machine.
GOLDEN_Z = [
    [0.9457130075461222, 0.05714685817931551, 0.3570720815265445],
    [1.134062625825773, -0.1903930932215227, 0.16294247398069805],
    [-0.17875603745913968, -0.36958366795771924, 1.6210744197827969],
    [-1.1828194064288902, 0.46188920307433895, 0.23493693920391856],
]


def uneven(rho: float = 0.05, batch: int | None = 1, sizes: tuple[int, ...] = SIZES) -> Logistic:
    """Nodes with different numbers of samples, in four dimensions."""
    h, y = data(sizes)
    return Logistic(h, y, rho=rho, batch=batch)


def data(sizes: tuple[int, ...] = SIZES) -> tuple[list[Tensor], list[Tensor]]:
    h = [points(size, 4, seed=size) for size in sizes]
    return h, [torch.where(features[:, 0] + features[:, 1] > 0, 1, -1) for features in h]


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.manual_seed(seed))


def naive(x: np.ndarray, h: np.ndarray, y: np.ndarray, rho: float) -> tuple[float, np.ndarray]:
    """Loss and gradient of one node, sample by sample, as the paper writes them."""
    loss, slope = 0.0, np.zeros_like(x)
    for features, label in zip(h, y, strict=True):
        margin = label * features @ x
        loss += math.log1p(math.exp(-margin)) / len(y)
        slope += -label * features / (1 + math.exp(margin)) / len(y)
    return loss + rho * sum(v**2 / (1 + v**2) for v in x), slope + rho * 2 * x / (1 + x**2) ** 2


def sampler(nodes: int = 4, seeds: tuple[int, ...] = (1, 2, 3)) -> Sampler:
    return Sampler(torch.tensor(seeds), torch.arange(nodes))


def test_keeps_the_contract() -> None:
    problem = uneven()
    assert isinstance(problem, Problem)
    assert isinstance(problem, Classifier)
    assert not isinstance(problem, KnownOptimum)
    assert (problem.nodes, problem.dim) == (4, 4)
    assert torch.equal(problem.start(), torch.zeros(4, dtype=torch.float64))


def test_loss_and_full_gradient_by_the_formula() -> None:
    problem, x, (h, y) = uneven(), points(2, 3, 4), data()
    for k in product(range(2), range(3)):
        nodes = [
            naive(x[k].numpy(), *(v.numpy() for v in pair), 0.05) for pair in zip(h, y, strict=True)
        ]
        loss, slope = (np.mean(part, axis=0) for part in zip(*nodes, strict=True))
        assert float(problem.loss(x)[k]) == pytest.approx(loss, rel=1e-13)
        np.testing.assert_allclose(problem.full_gradient(x)[k], slope, atol=1e-14)


@pytest.mark.parametrize("sizes", [SIZES, (5, 5)])
def test_each_node_without_noise_by_the_formula(sizes: tuple[int, ...]) -> None:
    """``batch=None``, with equal and with different numbers of samples."""
    problem, x, (h, y) = uneven(batch=None, sizes=sizes), points(3, len(sizes), 4), data(sizes)
    nothing = problem.sample(sampler(len(sizes)), range(2))
    assert nothing.shape == (2, 3, len(sizes), 0)
    g = problem.gradient(x, nothing[0], ALL)
    for trial, i in product(range(3), range(len(sizes))):
        slope = naive(x[trial, i].numpy(), h[i].numpy(), y[i].numpy(), 0.05)[1]
        np.testing.assert_allclose(g[trial, i], slope, atol=1e-14)


def test_full_gradient_against_autograd_and_differences() -> None:
    problem, x = uneven(), points(3, 4).requires_grad_()
    (slope,) = torch.autograd.grad(problem.loss(x).sum(), x)
    x = x.detach()
    torch.testing.assert_close(problem.full_gradient(x), slope, atol=1e-14, rtol=0)
    step = 1e-5 * torch.eye(4, dtype=torch.float64)
    differences = (problem.loss(x[0] + step) - problem.loss(x[0] - step)) / 2e-5
    torch.testing.assert_close(differences, slope[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("batch", [1, 3])
def test_minibatch_gradients_by_the_formula(batch: int) -> None:
    problem, x, (h, y) = uneven(batch=batch), points(3, 4, 4), data()
    sample = problem.sample(sampler(), range(7, 9))[1]
    own = sample - torch.tensor([0, 3, 10, 11])[:, None]
    g = problem.gradient(x, sample, ALL)
    for trial, i in product(range(3), range(4)):
        drawn = own[trial, i]
        expected = naive(x[trial, i].numpy(), h[i][drawn].numpy(), y[i][drawn].numpy(), 0.05)[1]
        np.testing.assert_allclose(g[trial, i], expected, atol=1e-14)


@pytest.mark.parametrize(("batch", "size"), [(1, 7), (2, 4)])
def test_minibatch_gradients_are_unbiased(batch: int, size: int) -> None:
    """The mean over all samples that can be drawn is the full gradient, exactly."""
    problem, x = uneven(batch=batch, sizes=(size,)), points(1, 4)
    every = torch.tensor(list(product(range(size), repeat=batch)))
    mean = problem.gradient(x.expand(len(every), 1, 4), every.unsqueeze(1), ALL).mean(0)
    torch.testing.assert_close(mean[0], problem.full_gradient(x[0]), atol=1e-15, rtol=0)


def test_every_sample_of_every_node_is_drawn_and_no_other() -> None:
    drawn = uneven(batch=5).sample(sampler(), range(200))
    first = 0
    for i, size in enumerate(SIZES):
        assert set(drawn[:, :, i].flatten().tolist()) == set(range(first, first + size))
        first += size


def test_samples_depend_on_seed_node_step_only() -> None:
    problem = uneven(batch=2)
    whole = problem.sample(sampler(), range(10))
    part = problem.sample(Sampler(torch.tensor([3]), torch.tensor([1, 2])), range(4, 9))
    assert torch.equal(part, whole[4:9, 2:, 1:3])


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_some_rows_are_rows_of_all(batch: int | None) -> None:
    problem, x = uneven(batch=batch), points(3, 4, 4)
    sample = problem.sample(sampler(), range(1))[0]
    before = x.clone()
    whole = problem.gradient(x, sample, ALL)
    part = problem.gradient(x[:, 1:3], sample[:, 1:3], slice(1, 3))
    torch.testing.assert_close(part, whole[:, 1:3], atol=1e-15, rtol=0)
    single = problem.gradient(x[0], sample[0], ALL)
    torch.testing.assert_close(single, whole[0], atol=1e-15, rtol=0)
    assert torch.equal(x, before)
    assert torch.equal(problem.gradient(x, sample, ALL), whole)


def test_accuracy() -> None:
    h = torch.tensor([[1.0, 0.0], [2.0, 1.0], [-1.0, 0.0], [0.0, 3.0]])
    problem = Logistic([h[:1], h[1:]], [torch.tensor([1]), torch.tensor([1, 1, -1])])
    x = torch.tensor([[1.0, 0.0], [1.0, -1.0], [0.0, 0.0]])
    assert problem.accuracy(x).tolist() == [2.5 / 4, 3 / 4, 0.5]
    assert problem.accuracy(x[1]).shape == ()


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, x = uneven(), points(5, 7, 4)
    whole = problem.loss(x), problem.full_gradient(x), problem.accuracy(x)
    monkeypatch.setattr(logistic, "CHUNK", 40)
    pieces = problem.loss(x), problem.full_gradient(x), problem.accuracy(x)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, atol=1e-14, rtol=0)
    assert problem.loss(x[:0]).shape == (0, 7)


@pytest.mark.parametrize("size", [1e3, 1e25])
def test_large_points_do_not_overflow(size: float) -> None:
    for dtype in (torch.float32, torch.float64):
        h = torch.tensor([[1.0, 2.0], [3.0, 1.0]], dtype=dtype)
        problem = Logistic([h], [torch.tensor([1, -1])])
        x = torch.full((2,), size, dtype=dtype)
        assert float(problem.loss(x)) == pytest.approx(2 * size, rel=1e-4)
        assert problem.full_gradient(x).tolist() == pytest.approx([1.5, 0.5], rel=1e-4)


def test_smoothness_bounds_the_gradients() -> None:
    problem = uneven(batch=None)
    nothing = problem.sample(sampler(), range(1))[0]
    x = points(50, 4, 4)
    for size in (1e-3, 1.0):
        y = x + size * points(50, 4, 4, seed=1)
        rise = problem.gradient(x, nothing[:1], ALL) - problem.gradient(y, nothing[:1], ALL)
        assert (rise.norm(dim=-1) <= problem.smoothness * (x - y).norm(dim=-1)).all()
    assert problem.smoothness < 5


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_gradients_compile_without_a_break(batch: int | None) -> None:
    problem, x = uneven(batch=batch), points(3, 4, 4)
    sample = problem.sample(sampler(), range(1))[0]
    compiled = torch.compile(problem.gradient, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, sample, ALL), problem.gradient(x, sample, ALL))


def test_the_generator_follows_the_paper() -> None:
    """Labels are +1 with probability 1/(1 + exp(-hᵀx̃ᵢ)): the models can be found again."""
    problem = Logistic.generate(2, 3, 20_000, rho=0.0, sigma_h=0.5, batch=None, seed=3)
    nothing = problem.sample(sampler(2, (1,)), range(1))[0]
    x = torch.zeros(1, 2, 3)
    for _ in range(300):
        x = x - 2 * problem.gradient(x, nothing, ALL)
    draws = [Sampler(torch.tensor(3), torch.tensor([i])) for i in range(2)]
    common = draws[0].normals(range(1), 3, stream=1)[0, 0]
    models = [common + 0.5 * draw.normals(range(1), 3, stream=2)[0, 0] for draw in draws]
    # The spread of the maximum-likelihood estimate is about √(4 to 9)/√20000.
    torch.testing.assert_close(x[0].double(), torch.stack(models), atol=0.09, rtol=0)
    assert (x[0, 0] - x[0, 1]).norm() > 0.3


def test_the_generators_features_are_normal() -> None:
    problem = Logistic.generate(4, 10, 500)
    z = problem._z
    assert z.shape == (2000, 10)
    assert abs(float(z.square().mean()) - 1) < 4 * math.sqrt(2 / z.numel())
    assert abs(float((z**4).mean()) - 3) < 4 * math.sqrt(96 / z.numel())


def test_a_node_has_the_same_data_whatever_the_others() -> None:
    few, many = (Logistic.generate(n, 4, 6, dtype=torch.float64) for n in (2, 5))
    assert torch.equal(few._z, many._z[:12])


def test_defaults_are_the_papers() -> None:
    problem = PROBLEMS["logistic"](20)
    assert isinstance(problem, Logistic)
    assert (problem.nodes, problem.dim, problem.rho, problem.batch) == (20, 400, 0.01, 1)
    assert problem.sizes.tolist() == [400] * 20
    assert problem.start().dtype == torch.float32
    assert float(problem.loss(problem.start())) == pytest.approx(math.log(2), rel=1e-6)


def test_batch_zero_takes_all() -> None:
    assert uneven(batch=0).batch is None


def test_frozen_values() -> None:
    problem = Logistic.generate(2, 3, 2, seed=5, dtype=torch.float64)
    np.testing.assert_allclose(problem._z, GOLDEN_Z, rtol=1e-9)


H, Y = data()
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Logistic.generate(0), "nodes must be a whole number from 1 on, got 0"),
    (lambda: Logistic.generate(2, 0), "dim must be"),
    (lambda: Logistic.generate(2, 2, 1.5), "samples must be"),  # type: ignore[arg-type]
    (lambda: Logistic.generate(10**4, 10**4, 10**4), "1,000,000,000,000 numbers, would take about"),
    (lambda: Logistic.generate(2, 2, 2, sigma_h=math.nan), "sigma_h must be a finite number"),
    (lambda: Logistic.generate(2, 2, 2, seed=-1), "a seed is an integer"),
    (
        lambda: Logistic.generate(2, 2, 2, rho=-1.0),
        "rho must be a finite number, at least 0, at most 1e.30, got -1",
    ),
    (
        lambda: Logistic.generate(2, 2, 2, batch=-1),
        "batch must be a whole number from 0 on, got -1",
    ),
    (lambda: Logistic([], []), "features of 0 nodes"),
    (lambda: Logistic(H, Y[:2]), "features of 4 nodes, labels of 2"),
    (lambda: Logistic(H, Y[::-1]), r"node 0: features of shape \(3, 4\), labels of \(4,\)"),
    (lambda: Logistic([H[0][:0]], [Y[0][:0]]), "at least one sample"),
    (lambda: Logistic([H[0], H[1][:, :3]], Y[:2]), "node 1: features of shape"),
    (lambda: Logistic(H[:1], [Y[0] * 2]), "node 0: a label is neither -1 nor 1"),
    (lambda: Logistic([H[0] / 0], Y[:1]), "node 0: a feature is no finite number"),
    (lambda: Logistic([H[0].long()], Y[:1]), "node 0: a feature is no finite number"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG)
def test_wrong_parameters(wrong: Callable[[], object], text: str) -> None:
    with pytest.raises(ParameterError, match=text) as caught:
        wrong()
    assert "\n  hint: " in str(caught.value)


@settings(max_examples=100)
@given(
    sizes=st.tuples(*[st.integers(-1, 3)] * 3),
    rho=st.floats() | st.floats(0, 1),
    sigma_h=st.floats() | st.floats(0, 1),
    batch=st.none() | st.integers(-1, 3),
    seed=st.integers(-1, 2**64),
)
def test_any_numbers_give_a_problem_or_one_error(
    sizes: tuple[int, int, int], rho: float, sigma_h: float, batch: int | None, seed: int
) -> None:
    said = "\n  hint: "
    try:
        problem = Logistic.generate(*sizes, rho=rho, sigma_h=sigma_h, batch=batch, seed=seed)
        assert problem.full_gradient(problem.start()).isfinite().all()
    except DigradError as error:
        said = str(error)
    assert "\n  hint: " in said
