"""Modules as problems, against a plain Python loop over nodes and ordinary training code."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset, TensorDataset

from digrad.algorithms import PushPull
from digrad.base.counters import Sampler
from digrad.base.errors import DigradError
from digrad.engines.simulator import Simulator
from digrad.networks import exponential, weigh
from digrad.problems import (
    Compiled,
    KnownOptimum,
    Measured,
    ModuleProblem,
    Problem,
    evaluation,
    modules,
)
from digrad.problems.batched_gradients import BatchedGradients
from digrad.problems.models import CNN, MLP, ResNet, Transformer
from digrad.runs.recursion import Recursion, Trials

SIZES = (3, 7, 1, 5)  # samples of each node
SEEDS = torch.tensor([4, 9])
EXACT = {"rtol": 1e-10, "atol": 1e-12}
Case = tuple[ModuleProblem, nn.Module, list[tuple[Tensor, Tensor]]]


def network(p: float = 0.0) -> nn.Sequential:
    """Convolution, pooling, both kinds of dropout, a little of everything."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Dropout2d(p),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.Tanh(),
        nn.Dropout(p),
        nn.Linear(5, 3),
    )


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 2, 4, 4, dtype=torch.float64, generator=draw)
    return pixels, torch.randint(0, 3, (count,), generator=draw)


def case(p: float = 0.0, batch: int = 4, **more) -> Case:
    data = [images(size, seed) for seed, size in enumerate(SIZES)]
    module = network(p).double()
    return ModuleProblem(module, data, batch=batch, **more | {"dtype": torch.float64}), module, data


def draws(problem: ModuleProblem, step: int = 3) -> Tensor:
    sampler = Sampler(SEEDS, torch.arange(problem.nodes))
    return problem.sample(sampler, range(step, step + 1))[0]


def points(problem: ModuleProblem, *shape: int, seed: int = 7) -> Tensor:
    noise = torch.randn(*shape, problem.dim, generator=torch.manual_seed(seed), dtype=torch.float64)
    return problem.start() + 0.3 * noise.to(problem.start())


def flat(tensors: Iterator[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.manual_seed(seed), dtype=torch.float64)


def plain_gradient(module: nn.Module, row: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """What ``loss.backward()`` leaves in an ordinary module in training."""
    nn.utils.vector_to_parameters(row, module.parameters())
    module.zero_grad()
    functional.cross_entropy(module(inputs), targets).backward()
    return flat(p.grad for p in module.parameters())


class Masked(nn.Module):
    """Dropout with a mask written by hand."""

    def __init__(self, words: Tensor, shape: tuple[int, ...], p: float) -> None:
        super().__init__()
        share = words.to(torch.float64) / 2**32  # uniform on [0, 1)
        self.mask = torch.where(share >= p, 1 / (1 - p), 0.0).view(shape)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def test_keeps_the_contract() -> None:
    problem, module, _ = case()
    assert isinstance(problem, Problem)
    assert isinstance(problem, Compiled)
    assert isinstance(problem, Measured)
    assert not isinstance(problem, KnownOptimum)
    assert (problem.nodes, problem.dim) == (4, len(flat(module.parameters())))
    assert torch.equal(problem.start(), flat(p.detach() for p in module.parameters()))
    assert problem.sizes.tolist() == list(SIZES)


def test_every_node_draws_from_its_own_samples() -> None:
    problem, _, _ = case()
    firsts = [0, 3, 10, 11]
    drawn = problem.sample(Sampler(SEEDS, torch.arange(4)), range(200))
    for node, (first, size) in enumerate(zip(firsts, SIZES, strict=True)):
        own = drawn[:, :, node]
        assert own.unique().tolist() == list(range(first, first + size))
        alone = Sampler(SEEDS, torch.tensor([node])).indices(range(200), size, 4)[:, :, 0]
        assert torch.equal(own, first + alone)


@pytest.mark.parametrize("batch", [1, 4, 9])
def test_gradients_are_those_of_a_loop_over_nodes(batch: int) -> None:
    problem, module, data = case(batch=batch)
    x, sample = points(problem, 2, 4), draws(problem)
    got = problem.gradient(x, sample, slice(0, 4))
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    for trial in range(2):
        for node in range(4):
            k = sample[trial, node]
            wanted = plain_gradient(module, x[trial, node], inputs[k], targets[k])
            torch.testing.assert_close(got[trial, node], wanted, **EXACT)


def after_a_convolution(*layers: nn.Module) -> nn.Module:
    """A classifier of three classes; its last layer finds out for itself what arrives."""
    model = nn.Sequential(nn.Conv2d(3, 8, 5), *layers, nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(2, 3, 16, 16))
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: CNN((3, 16, 16), dropout=0.0),
    "mlp": lambda: MLP((3, 16, 16)),
    "resnet": lambda: ResNet((3, 16, 16)),
    "instance norm": lambda: after_a_convolution(nn.InstanceNorm2d(8)),
    "batch norm": lambda: after_a_convolution(nn.BatchNorm2d(8, track_running_stats=False)),
    "group norm": lambda: after_a_convolution(nn.MaxPool2d(2), nn.GroupNorm(2, 8)),
    "shuffle": lambda: after_a_convolution(nn.PixelShuffle(2)),
    "upsample": lambda: after_a_convolution(nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_many_models(name: str) -> None:
    """Also of those with layers that ask how their inputs lie in memory."""
    torch.manual_seed(1)
    model = MODELS[name]().to(torch.float64)
    data = [(normal(5, 3, 16, 16, seed=k), torch.arange(5) % 3) for k in range(3)]
    problem = ModuleProblem(model, data, batch=3, dtype=torch.float64)
    x = problem.start() + 0.01 * normal(2, 3, problem.dim)
    sample = problem.sample(Sampler(SEEDS, torch.arange(3)), range(1))[0]
    got = problem.gradient(x, sample, slice(0, 3))
    for _ in range(2):  # traced, then repeated
        assert torch.equal(got, problem.compiled_gradient(x, sample, slice(0, 3)))
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    for trial in range(2):
        for node in range(3):
            k = sample[trial, node]
            wanted = plain_gradient(model.train(), x[trial, node], inputs[k], targets[k])
            torch.testing.assert_close(got[trial, node], wanted, rtol=1e-9, atol=1e-11)


def test_what_was_traced_is_done_for_other_numbers_and_shapes() -> None:
    problem, _, _ = case(0.5)
    for trials in (2, 1, 2):
        x, sampler = points(problem, trials, 4), Sampler(SEEDS[:trials], torch.arange(4))
        for sample in problem.sample(sampler, range(7, 10)):
            wanted = problem.gradient(x, sample, slice(0, 4))
            assert torch.equal(problem.compiled_gradient(x, sample, slice(0, 4)), wanted)


@pytest.mark.parametrize("shape", [(), (4,)])
def test_cross_entropy_is_the_librarys(shape: tuple[int, ...]) -> None:
    outputs, targets = normal(6, 3, *shape), torch.arange(6).view(6, *(1,) * len(shape)) % 3
    targets = targets.expand(6, *shape)
    ours = evaluation.loss_for_rows(functional.cross_entropy, [targets, targets])
    assert ours is evaluation.cross_entropy
    wanted = functional.cross_entropy(outputs, targets)
    torch.testing.assert_close(ours(outputs, targets), wanted, **EXACT)


def test_other_losses_and_targets_stay_what_they_are() -> None:
    """-100 is ignored by the library's, and shares of classes are no classes."""
    ignored, shares = torch.tensor([1, -100]), torch.ones(2, 3)
    for targets in (ignored, shares):
        assert (
            evaluation.loss_for_rows(functional.cross_entropy, [targets])
            is functional.cross_entropy
        )
    assert evaluation.loss_for_rows(functional.mse_loss, [torch.arange(3)]) is functional.mse_loss


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_gradients_with_dropout_are_those_of_masks_by_hand(p: float) -> None:
    problem, module, data = case(p)
    x, sample = points(problem, 2, 4), draws(problem)
    assert sample.shape == (2, 4, 4 + 4 * 3 + 4 * 5)
    got = problem.gradient(x, sample, slice(0, 4))
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    for trial in range(2):
        for node in range(4):
            k, channels, units = sample[trial, node].split([4, 12, 20])
            module[1] = Masked(channels, (4, 3, 1, 1), p)
            module[7] = Masked(units, (4, 5), p)
            wanted = plain_gradient(module, x[trial, node], inputs[k], targets[k])
            torch.testing.assert_close(got[trial, node], wanted, **EXACT)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_some_nodes_alone(p: float) -> None:
    """What a process that holds a few of the nodes computes is what the whole would."""
    problem, _, _ = case(p)
    x, sample = points(problem, 2, 4), draws(problem)
    whole = problem.gradient(x, sample, slice(0, 4))
    for first, last in ((0, 1), (1, 3), (2, 4)):
        rows = slice(first, last)
        own = problem.sample(Sampler(SEEDS, torch.arange(first, last)), range(3, 4))[0]
        assert torch.equal(own, sample[:, rows])
        part = problem.gradient(x[:, rows], own, rows)
        torch.testing.assert_close(part, whole[:, rows], **EXACT)
    one = problem.gradient(x[1], sample[1], slice(0, 4))  # a single trial, without its axis
    torch.testing.assert_close(one, whole[1], **EXACT)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_groups_that_fit_into_memory(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _, _ = case(p)
    x, sample = points(whole, 2, 4), draws(whole)
    wanted = whole.gradient(x, sample, slice(0, 4))
    each, total = (
        whole._rows.kept(torch.zeros(4, 2, 4, 4, dtype=torch.float64)),
        BatchedGradients._total,
    )
    for most, size, calls in ((1, 1, 8), (3 * each, 3, 3), (8 * each, 8, 1), (100 * each, 100, 1)):
        monkeypatch.setattr(modules, "MOST_NUMBERS", most)
        problem, _, _ = case(p)
        rows = []
        monkeypatch.setattr(
            BatchedGradients,
            "_total",
            lambda self, r, *rest, f=total, seen=rows: (seen.append(len(r)), f(self, r, *rest))[1],
        )
        got = problem.gradient(x, sample, slice(0, 4))
        assert (problem._group, len(rows), sum(rows)) == (size, calls, 8)
        torch.testing.assert_close(got, wanted, **EXACT)


def test_compiled_code_that_cannot_be_repeated_is_not_used() -> None:
    images = [(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))]
    steady, restless = (ModuleProblem(nn.Linear(3, 2), images) for _ in range(2))
    kept, count = torch.ones(2), iter(range(9))
    assert steady._repeats(lambda: (kept, kept))
    with pytest.warns(UserWarning, match="same bits each time"):
        assert not restless._repeats(lambda: (kept * next(count), kept))
    assert not restless._repeats(lambda: (kept, kept))  # tried once
    assert next(count) == 2


def test_what_compiling_saves_is_known_by_layers() -> None:
    """Of text most; of group norm, which has kernels of its own, nothing."""
    texts = [(torch.zeros(4, 6, dtype=torch.int64),) * 2] * 2
    small, large = (
        ModuleProblem(Transformer(5, 6, width=width), texts, batch=2).compiling_saves(3)
        for width in (8, 16)
    )
    assert 1.5 < large / small < 2.5
    images = [(torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64))] * 2
    assert ModuleProblem(ResNet((3, 8, 8)), images).compiling_saves(3) == 0
    convolution = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 5))
    assert ModuleProblem(convolution, images).compiling_saves(3) > 1e-5


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_heavy_convolutions_go_node_by_node(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the library's own kernels, to the same gradients; a light module stays together."""
    light, _, _ = case(p)
    x, sample = points(light, 2, 4), draws(light)
    wanted = light.gradient(x, sample, slice(0, 4))
    monkeypatch.setattr(modules, "HEAVY", 1.0)
    heavy, _, _ = case(p)
    monkeypatch.setattr(BatchedGradients, "_total", None)  # which takes nodes together
    for gradient in (heavy.gradient, heavy.compiled_gradient):
        torch.testing.assert_close(gradient(x, sample, slice(0, 4)), wanted, **EXACT)
    without = ModuleProblem(MLP((2, 4, 4)).double(), [images(6, 0)], batch=4, dtype=torch.float64)
    assert not without._heavy


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",  # traced and differentiated as one graph, then run operation by operation
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler"),
            ],
        ),
    ],
)
def test_compiled_gradients_agree(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-5 in single precision, with dropout, convolution and pooling in it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(BatchedGradients, "traced", property(lambda self: self.compiled))
    exact, _, data = case(0.5, batch=2)
    problem = ModuleProblem(network(0.5), data, batch=2)
    x, sample = points(exact, 2, 4).float(), draws(exact)
    assert torch.equal(sample, draws(problem))
    wanted = exact.gradient(x.double(), sample, slice(0, 4))
    for gradient in (problem.gradient, problem.compiled_gradient):
        got = gradient(x, sample, slice(0, 4))
        assert (got - wanted).norm() < 1e-5 * wanted.norm()


def test_loss_and_full_gradient_weigh_nodes_alike() -> None:
    """The mean over nodes of the means over their samples, however many they have."""
    problem, module, data = case()
    x = points(problem, 2, 3)
    loss, gradient = problem.loss(x), problem.full_gradient(x)
    assert loss.shape == (2, 3)
    assert gradient.shape == x.shape
    for k in np.ndindex(2, 3):
        nn.utils.vector_to_parameters(x[k], module.parameters())
        naive = sum(functional.cross_entropy(module(h), y) for h, y in data) / 4
        torch.testing.assert_close(loss[k], naive.detach(), **EXACT)
        slope = flat(torch.autograd.grad(naive, list(module.parameters())))
        torch.testing.assert_close(gradient[k], slope, **EXACT)


def test_arrays_are_taken_as_they_are() -> None:
    data = [(np.ones((4, 5), dtype=np.float32), np.arange(4) % 2) for _ in range(2)]
    assert ModuleProblem(nn.Linear(5, 2), data).sizes.tolist() == [4, 4]


def test_short_numbers_round_more() -> None:
    data = [(normal(9, 5, seed=k), torch.arange(9) % 2) for k in range(2)]
    assert ModuleProblem(nn.Linear(5, 2), data, dtype=torch.bfloat16).dim == 12


def test_numbers_that_are_none_are_no_hits() -> None:
    data = [(torch.ones(4, 5), torch.zeros(4, dtype=torch.long))]
    problem = ModuleProblem(nn.Linear(5, 2), data)
    diverged = torch.full_like(problem.start(), torch.nan)
    assert problem.measure(diverged, diverged[None], ["accuracy"])["accuracy"] == 0


@pytest.mark.parametrize(
    ("module", "targets", "options", "said"),
    [
        (
            nn.Linear(6, 2),
            torch.arange(4) % 2,
            {},
            r"does not take inputs \(8, 5\) of torch.float32",
        ),
        (
            nn.Linear(5, 1),
            torch.randn(4, 1),
            {},
            r"one output, \(4, 1\): cross-entropy is 0 then\n",
        ),
        (
            nn.Linear(5, 1),
            torch.randn(4),
            {"loss": lambda a, b: (a - b).square().mean()},
            r"outputs are \(4, 1\), targets \(4,\)\n  hint: give targets the shape",
        ),
    ],
)
def test_misfits_are_said(module: nn.Module, targets: Tensor, options: Any, said: str) -> None:
    with pytest.raises(DigradError, match=said):
        ModuleProblem(module, [(torch.randn(4, 5), targets)], **options)


@pytest.mark.parametrize(("together", "at_once"), [(1, 3), (3, 7), (64, 1000), (64, 1)])
def test_evaluation_in_many_batches(
    monkeypatch: pytest.MonkeyPatch, together: int, at_once: int
) -> None:
    """Whatever samples and points are taken together, as on a GPU."""
    problem, _, _ = case(test=images(11, 5))
    x = points(problem, 2, 4)
    wanted = problem.measure(x[:, 0], x, problem.default_metrics)
    gradient = problem.full_gradient(x)
    other = replace(problem._evaluation, points=together, at_once=at_once)
    monkeypatch.setattr(problem, "_evaluation", other)
    monkeypatch.setattr("digrad.problems.evaluation.AT_ONCE", 3)
    for name, value in problem.measure(x[:, 0], x, problem.default_metrics).items():
        torch.testing.assert_close(value, wanted[name], **EXACT)
    torch.testing.assert_close(problem.full_gradient(x), gradient, **EXACT)


def naive_judgement(
    module: nn.Module, row: Tensor, data: tuple[Tensor, Tensor]
) -> tuple[float, float]:
    nn.utils.vector_to_parameters(row, module.parameters())
    with torch.no_grad():
        outputs = module.eval()(data[0])
    right = sum(int(o.argmax() == t) for o, t in zip(outputs, data[1], strict=True))
    return float(functional.cross_entropy(outputs, data[1])), right / len(outputs)


@pytest.mark.parametrize("kept", [0, 1000, 4])
def test_what_is_measured(kept: int) -> None:
    test = images(10, 5)
    problem, module, data = case(0.5, test=test, node_samples=kept)
    xhat, x = points(problem, 2), points(problem, 2, 4, seed=8)
    got = problem.measure(xhat, x, problem.default_metrics)
    assert sorted(got) == sorted(problem.default_metrics)
    # Four of ten, evenly spread.
    seen = [0, 2, 5, 7] if kept == 4 else list(range(10))
    own = test[0][seen], test[1][seen]
    for trial in range(2):
        losses, shares = zip(*(naive_judgement(module, xhat[trial], d) for d in data), strict=True)
        test_loss, test_share = naive_judgement(module, xhat[trial], test)
        nodes = [naive_judgement(module, row, own)[1] for row in x[trial]]
        wanted = {"loss": np.mean(losses), "accuracy": np.mean(shares), "test_loss": test_loss}
        wanted |= {"test_accuracy": test_share, "worst_accuracy": min(nodes)}
        wanted |= {"mean_accuracy": np.mean(nodes)}
        for name, value in wanted.items():
            assert float(got[name][trial]) == pytest.approx(value, rel=1e-10), name
        assert len({*nodes}) > 1


def test_only_what_is_wanted_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _, _ = case(test=images(10, 5))
    x = points(problem, 2, 4)
    for wanted, found in (
        (["loss"], {"loss", "accuracy"}),
        (["test_accuracy"], {"test_loss", "test_accuracy"}),
        (["worst_accuracy"], {"worst_accuracy", "mean_accuracy"}),
        (["consensus", "bytes"], set()),
    ):
        assert set(problem.measure(x[:, 0], x, wanted)) == found
    without, _, _ = case()  # no test samples
    assert set(without.measure(x[:, 0], x, without.default_metrics)) == {"loss", "accuracy"}


def test_regression_has_no_accuracy() -> None:
    """Real targets, in another precision than the parameters, as NumPy leaves them."""
    draw = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(k, 3, dtype=torch.float64, generator=draw), torch.randn(k, 1).double())
        for k in (4, 2)
    ]
    torch.manual_seed(0)
    module = nn.Linear(3, 1)
    problem = ModuleProblem(module, data, functional.mse_loss, test=data[0], batch=2)
    x = points(problem, 1, 2)
    sample = problem.sample(Sampler(torch.tensor([1]), torch.arange(2)), range(1))[0]
    got = problem.gradient(x, sample, slice(0, 2))
    w, b = x[..., :3].double(), x[..., 3:].double()
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    for node in range(2):
        h, y = inputs[sample[0, node]], targets[sample[0, node]]
        off = h @ w[0, node][:, None] + b[0, node] - y
        wanted = torch.cat([(2 * off * h).mean(0), 2 * off.mean(0)])
        torch.testing.assert_close(got[0, node].double(), wanted, rtol=1e-5, atol=1e-6)
    measured = problem.measure(x[:, 0], x, problem.default_metrics)
    assert measured["test_loss"].isfinite().all()
    for name in ("accuracy", "test_accuracy", "worst_accuracy", "mean_accuracy"):
        assert measured[name].isnan().all()
    assert problem.start().dtype == torch.float32 == problem.full_gradient(x).dtype


class Listed(Dataset):
    """A dataset as people write them: a length, items, labels as plain numbers."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.items = [(p.numpy(), int(y)) for p, y in zip(pixels, labels, strict=True)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int):
        return self.items[k]


@pytest.mark.parametrize(
    "make",
    [
        lambda h, y: TensorDataset(h, y),
        lambda h, y: Subset(TensorDataset(h.flip(0), y.flip(0)), list(range(len(y)))[::-1]),
        lambda h, y: Listed(h, y),
    ],
)
def test_datasets(make: Callable[[Tensor, Tensor], Dataset]) -> None:
    problem, _, data = case(test=images(5, 5))
    other = ModuleProblem(
        network().double(), [make(*d) for d in data], test=make(*images(5, 5)), dtype=torch.float64
    )
    x = points(problem, 2, 4)
    for a, b in zip(
        problem.measure(x[:, 0], x, problem.default_metrics).items(),
        other.measure(x[:, 0], x, other.default_metrics).items(),
        strict=True,
    ):
        assert a[0] == b[0]
        assert torch.equal(a[1], b[1])


def test_inputs_are_prepared_batch_by_batch() -> None:
    """Bytes stay bytes until they are used; training and evaluation see the same numbers."""
    pixels = torch.randint(0, 256, (6, 2, 4, 4), dtype=torch.uint8, generator=torch.manual_seed(0))
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    kinds = []

    def prepare(batch: Tensor) -> Tensor:
        kinds.append(batch.dtype)
        return batch.double() / 255 - 0.5

    def made(h: Tensor, ready: Callable[[Tensor], Tensor] | None) -> ModuleProblem:
        given = {"prepare": ready, "dtype": torch.float64, "test": (h[:4], targets[:4])}
        return ModuleProblem(network(), [(h[:2], targets[:2]), (h[2:], targets[2:])], **given)

    late, early = made(pixels, prepare), made(pixels.double() / 255 - 0.5, None)
    x, sample = points(early, 2, 2), draws(early)
    assert torch.equal(
        late.gradient(x, sample, slice(0, 2)), early.gradient(x, sample, slice(0, 2))
    )
    for name, value in late.measure(x[:, 0], x, late.default_metrics).items():
        assert torch.equal(value, early.measure(x[:, 0], x, early.default_metrics)[name])
    assert set(kinds) == {torch.uint8}


def test_a_run_is_the_loop_that_one_would_write() -> None:
    """Ten steps of S-PP on modules, by hand: Y = C(Y + G - G⁻), X = R(X - γY)."""
    problem, module, data = case(batch=2)
    net = weigh(exponential(4))
    work = Recursion(
        PushPull(),
        Simulator(net, dtype=torch.float64),
        problem,
        Trials([4, 9], [0.1, 0.05]),
        lambda t: 1.0,
    )
    got = work.advance(work.start(), 10).state.x
    R, C = (torch.from_numpy(W.toarray()) for W in (net.R, net.C))
    inputs, targets = (torch.cat(part) for part in zip(*data, strict=True))
    for trial, (seed, lr) in enumerate(((4, 0.1), (9, 0.05))):
        X, Y, before = problem.start().expand(4, -1).clone(), 0.0, 0.0
        for t in range(10):
            k = problem.sample(Sampler(torch.tensor(seed), torch.arange(4)), range(t, t + 1))[0]
            G = torch.stack(
                [
                    plain_gradient(module, X[i].clone(), inputs[k[i]], targets[k[i]])
                    for i in range(4)
                ]
            )
            Y = G if t == 0 else C @ (Y + G - before)
            X, before = R @ (X - lr * Y), G
        torch.testing.assert_close(got[trial], X, rtol=1e-9, atol=1e-11)


LABELS = torch.tensor([0, 1, 2, 0, 1])
INPUTS = torch.randn(5, 3, generator=torch.manual_seed(0))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0][:, -1]


class Branching(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def linear(**changes) -> ModuleProblem:
    given = {"module": nn.Linear(3, 3), "data": [(INPUTS, LABELS)]} | changes
    return ModuleProblem(given.pop("module"), given.pop("data"), **given)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"loss": nn.CrossEntropyLoss(reduction="sum")},
            r"of 5 samples is .*\n  hint: use a loss wi",
        ),
        (
            {"loss": nn.CrossEntropyLoss(reduction="none")},
            r"of 5 samples is of shape \(5,\), the me",
        ),
        ({"loss": nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 9.0]))}, 'reduction="mean"'),
        (
            {"data": [(INPUTS, LABELS + 1)]},
            r"outputs \(5, 3\) and training targets \(5,\) of torch.i",
        ),
        ({"data": [(INPUTS, LABELS.float())]}, "training targets"),
        ({"test": (INPUTS, LABELS + 1)}, "and test targets"),
        ({"test": (INPUTS[:, :2], LABELS)}, r"does not take test inputs \(5, 2\)"),
        ({"data": []}, "nodes must be a whole number from 1 on, got 0"),
        ({"data": [(INPUTS, LABELS), (INPUTS, LABELS[:4])]}, "node 1: 5 inputs, 4 targets"),
        ({"data": [(INPUTS[:0], LABELS[:0])]}, r"node 0: 0 inputs, 0 targets\n  hint: give one or"),
        ({"data": [TensorDataset(INPUTS[:0], LABELS[:0])]}, "node 0: 0 inputs, 0 targets"),
        ({"test": (INPUTS, LABELS[:1])}, "test: 5 inputs, 1 targets"),
        (
            {"data": [TensorDataset(INPUTS, LABELS, LABELS)]},
            r"has 3 parts\n  hint: a sample is a pair",
        ),
        (
            {"data": [(INPUTS, LABELS), (INPUTS.where(INPUTS < 1, torch.nan), LABELS)]},
            r"node 1: the inputs of sample \d are not finite\n  hint: leave",
        ),
        (  # though not among the first, on which the loss is tried
            {"data": [(INPUTS.repeat(500, 1), torch.arange(2500) // 2100 * 3)]},
            "training targets go up to class 3, the module has 3 outputs",
        ),
        ({"precision": "bf8"}, "unknown precision 'bf8'\n  hint: did you mean 'bf16'"),
        ({"way": "fast"}, "unknown way 'fast'"),
        ({"batch": 0}, "batch must be a whole number from 1 on, got 0"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"node_samples": -1}, "node_samples must be a whole number from 0 on, got -1"),
    ],
)
def test_what_is_refused(changes: dict, text: str) -> None:
    with pytest.raises(DigradError, match=text):
        linear(**changes)
