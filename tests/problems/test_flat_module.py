"""Modules as functions of a flat row: what is taken, what is refused, what stays untouched."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from digrad.base.counters import Sampler
from digrad.base.errors import DigradError
from digrad.kernels.layers import Dropout
from digrad.problems import ModuleProblem
from digrad.problems.flat_module import FlatModule

INPUTS = torch.randn(6, 1, 8, 8, generator=torch.manual_seed(3))


def network(p: float = 0.5) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.Dropout2d(p),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 5),
        nn.Dropout(p),
        nn.Linear(5, 3),
    )


def problem(module: nn.Module, nodes: int = 4, batch: int = 3, **more) -> ModuleProblem:
    torch.manual_seed(1)
    data = [(torch.randn(7, 1, 8, 8), torch.randint(0, 3, (7,))) for _ in range(nodes)]
    return ModuleProblem(module, data, batch=batch, **more)


class With(nn.Module):
    """A linear layer, and a function of it and its outputs."""

    def __init__(self, then, **children: nn.Module) -> None:
        super().__init__()
        self.linear, self.then = nn.Linear(64, 3), then
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.linear(x.flatten(1)))


# FlatModule and names.


def test_a_row_is_the_parameters_in_order() -> None:
    module = network()
    rows = FlatModule.of(module, INPUTS)
    assert torch.equal(rows.start(), nn.utils.parameters_to_vector(module.parameters()))
    assert rows.dim == 4 * 9 + 4 + 36 * 5 + 5 + 5 * 3 + 3 == len(rows.start())
    row = torch.arange(float(rows.dim))
    loaded = rows.load(row)
    assert torch.equal(nn.utils.parameters_to_vector(loaded.parameters()), row)
    assert not loaded.training
    assert [type(m) for m in loaded] == [type(m) for m in module]  # nothing of ours in it
    named = rows.named(row)
    assert list(named) == [name for name, _ in module.named_parameters()]
    assert torch.equal(functional_call(module.eval(), named, (INPUTS,)), loaded(INPUTS))


def test_layers_are_computed_otherwise_but_the_same() -> None:
    module = network(p=0.0)
    rows = FlatModule.of(module, INPUTS)
    got = functional_call(rows.training, rows.named(rows.start()), (INPUTS,))
    torch.testing.assert_close(got, module(INPUTS))
    assert rows.words == {}  # a dropout that drops nothing wants no random numbers


def test_tied_parameters_lie_in_a_row_once() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 64, bias=False), nn.Linear(64, 64))
    module[2].weight = module[1].weight
    made = problem(module)
    assert made.dim == 64 * 64 + 64
    row = torch.randn(made.dim, generator=torch.manual_seed(0)) / 8
    loaded = made.module(row)
    assert loaded[1].weight is loaded[2].weight
    x = INPUTS.flatten(1)
    w, b = row[: 64 * 64].view(64, 64), row[64 * 64 :]
    torch.testing.assert_close(loaded(INPUTS), x @ w.T @ w.T + b)
    sample = torch.arange(12).view(1, 4, 3)
    got = made.gradient(row.expand(1, 4, -1), sample, slice(0, 4))
    w.requires_grad_()
    for node in range(4):
        k = sample[0, node]
        a = made._training.inputs[k].flatten(1)
        loss = functional.cross_entropy(a @ w.T @ w.T + b, made._training.targets[k])
        (wanted,) = torch.autograd.grad(loss, w)  # both of its places count
        torch.testing.assert_close(got[0, node, : 64 * 64], wanted.flatten())


def test_frozen_parameters_stay_what_they_are() -> None:
    module = network(p=0.0)
    module[5].weight.requires_grad_(False)
    made = problem(module)
    assert made.dim == sum(p.numel() for p in module.parameters()) - 36 * 5
    loaded = made.module(torch.zeros(made.dim))
    assert torch.equal(loaded[5].weight, module[5].weight)
    assert not loaded[5].bias.any()
    assert made.gradient(
        made.start().expand(1, 4, -1), torch.zeros(1, 4, 3).long(), slice(0, 4)
    ).any()


@pytest.mark.parametrize("module", [nn.Flatten(), nn.Linear(2, 2).requires_grad_(False)])
def test_nothing_to_train_is_refused(module: nn.Module) -> None:
    with pytest.raises(DigradError, match=r"no parameters to train\n  hint: set requires_grad"):
        FlatModule.of(module, torch.ones(3, 2))


def test_the_module_stays_untouched() -> None:
    module = network()
    module.train()
    module[6].eval()  # a mode for each of them
    before = copy.deepcopy(module)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    made = ModuleProblem(module, [(INPUTS, torch.zeros(6).long())], dtype=torch.float64)
    sample = made.sample(Sampler(torch.tensor([1]), torch.arange(1)), range(1))[0]
    made.gradient(made.start().expand(1, 1, -1), sample, slice(0, 1))
    made.loss(made.start() + 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    for a, b in zip(module.modules(), before.modules(), strict=True):
        assert (type(a), a.training) == (type(b), b.training)
    for a, b in zip(module.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(a, b)
        assert a.dtype == torch.float32
    assert all(p.grad is None for p in module.parameters())
    assert made.start().dtype == torch.float64


# Buffers.


def test_a_buffer_that_is_replaced_is_seen_too() -> None:
    """It is no batch norm's, so it is said what becomes of it."""

    def count(self: nn.Module, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return x

    module = With(count)
    module.register_buffer("steps", torch.zeros(()))
    with pytest.warns(UserWarning, match="the buffers steps of With change in a forward pass"):
        made = problem(module)
    assert module.steps == 0
    x = made.start().expand(4, -1)
    sample = made.sample(Sampler(torch.tensor(0), torch.arange(4)), range(1))[0]
    kept = torch.arange(4.0)[:, None]
    _, after = made.gradient_and_buffers(x, sample, slice(0, 4), kept, compiled=False)
    assert torch.equal(after, kept + 1)
    assert torch.equal(made.common(after), torch.tensor([2.5]))


def test_a_buffer_that_changes_its_shape_is_refused() -> None:
    def grow(self: nn.Module, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, self.seen])
        return x

    module = With(grow)
    module.register_buffer("seen", torch.zeros(1))
    with pytest.raises(DigradError, match="'seen' changes its shape"):
        problem(module)


def test_batch_norm_without_running_means() -> None:
    """Each node's batch has its own means: as the library does for one node at a time."""
    norm = nn.BatchNorm2d(2, track_running_stats=False)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(72, 3))
    made = problem(module)
    x = made.start() + 0.1 * torch.randn(1, 4, made.dim, generator=torch.manual_seed(2))
    sample = torch.tensor([[[0, 1, 2], [7, 9, 8], [14, 20, 15], [27, 22, 22]]])
    got = made.gradient(x, sample, slice(0, 4))
    for node in range(4):
        plain = made.module(x[0, node]).train()
        k = sample[0, node]
        loss = functional.cross_entropy(plain(made._training.inputs[k]), made._training.targets[k])
        wanted = torch.autograd.grad(loss, list(plain.parameters()))
        torch.testing.assert_close(
            got[0, node], nn.utils.parameters_to_vector(wanted), rtol=1e-4, atol=1e-6
        )


def test_constant_buffers_are_kept() -> None:
    module = With(lambda self, x: x * self.scale)
    module.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
    made = problem(module, dtype=torch.float64)
    loaded = made.module(made.start())
    assert loaded.scale.tolist() == [1, 2, 3]
    assert loaded.scale.dtype == torch.float64
    assert made.dim == 64 * 3 + 3


# Random numbers.


def test_dropout_called_twice_is_refused() -> None:
    module = With(lambda self, x: self.drop(self.drop(x)), drop=nn.Dropout(0.5))
    with pytest.raises(DigradError, match=r"'drop' is called twice .*\n  hint: give each call its"):
        FlatModule.of(module, INPUTS)
    nothing = With(lambda self, x: self.drop(self.drop(x)), drop=nn.Dropout(0.0))
    assert FlatModule.of(nothing, INPUTS).words == {}


def test_one_dropout_at_two_places_of_a_sequence() -> None:
    drop = nn.Dropout(0.5)
    module = nn.Sequential(nn.Flatten(), drop, nn.Linear(64, 3), drop)
    rows = FlatModule.of(module, INPUTS)
    assert rows.words == {"1": 6 * 64, "3": 6 * 3}  # each with numbers of its own


def test_dropouts_inside_and_unused_ones() -> None:
    inner = nn.Sequential(nn.Identity(), nn.Dropout(0.5))
    module = With(lambda self, x: self.inner(x), inner=inner, idle=nn.Dropout(0.5))
    assert FlatModule.of(module, INPUTS).words == {"inner.1": 6 * 3}


def test_a_module_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(DigradError, match=r"returns a tuple, not a tensor\n  hint: wrap it"):
        FlatModule.of(With(lambda self, x: (x, x)), INPUTS)


def test_outputs_that_are_no_numbers_are_not_taken_for_random() -> None:
    assert FlatModule.of(With(lambda self, x: x * float("nan")), INPUTS).words == {}


def test_draws_are_a_function_of_seed_node_and_step() -> None:
    """Drawn for all, or for some trials, nodes and steps: the same numbers."""
    made = problem(network())
    words = sum(FlatModule.of(network(), INPUTS[:3]).words.values())
    assert words == 3 * 4 + 3 * 5
    seeds = torch.tensor([5, 8, 2**40])
    whole = made.sample(Sampler(seeds, torch.arange(4)), range(20))
    assert whole.shape == (20, 3, 4, 3 + words)
    for trial, nodes, steps in ((1, [2], (7, 9)), (2, [3, 0], (0, 20)), (0, [1, 2], (19, 20))):
        some = made.sample(Sampler(seeds[trial], torch.tensor(nodes)), range(*steps))
        assert torch.equal(some, whole[slice(*steps), trial][:, nodes])
    # Masks from a stream of their own: they know nothing of which samples are drawn.
    assert torch.equal(whole[..., 3:], Sampler(seeds, torch.arange(4)).bits(range(20), words, 1))
    flat = whole.flatten(0, 2)
    assert len(flat.unique(dim=0)) == len(flat)
    assert flat.min() >= 0
    assert flat[:, 3:].max() < 2**32


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped(p: float) -> None:
    """10 800 and 240 000 draws of a fixed seed: five deviations leave room for nothing else."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 9, 3), nn.Dropout2d(p), nn.Flatten(), nn.Dropout(p))
    rows = FlatModule.of(module, INPUTS)
    count = sum(rows.words.values())
    assert count == 6 * 9 + 6 * 9 * 36
    words = Sampler(torch.tensor(1), torch.arange(20)).bits(range(10), count, 1)
    kept = words >= round(p * 2**32)
    for part in (kept[..., :54], kept[..., 54:]):
        deviation = (p * (1 - p) / part.numel()) ** 0.5
        assert abs(float((~part).double().mean()) - p) < 5 * deviation
    out = functional_call(rows.training[:2], {"1.words": words[0, 0, :54]}, (INPUTS,))
    plain = module[0](INPUTS) / (1 - p)
    whole = kept[0, 0, :54].view(6, 9, 1, 1)  # channels, whole or not at all
    torch.testing.assert_close(out, plain * whole)
    assert isinstance(rows.training[1], Dropout)


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_there_is_no_dropout_when_it_is_judged(p: float) -> None:
    made, without = problem(network(p)), problem(network(0.0))
    x = made.start()
    assert torch.equal(made.loss(x), without.loss(x))
    assert torch.equal(made.full_gradient(x), without.full_gradient(x))
    assert torch.equal(made.module(x)(INPUTS), without.module(x)(INPUTS))


def test_when_all_is_dropped_only_the_last_bias_learns() -> None:
    made = problem(network(1.0))
    sample = made.sample(Sampler(torch.tensor([1]), torch.arange(4)), range(1))[0]
    g = made.gradient(made.start().expand(1, 4, -1), sample, slice(0, 4))
    assert not g[..., :-3].any()
    assert g[..., -3:].any()


def test_what_a_pass_keeps_is_counted() -> None:
    """Outputs of all layers, patches of convolutions, the whole once more; 6 images."""
    rows = FlatModule.of(network(0.0), INPUTS)
    each = [144, 144, 36, 36, 36, 5, 5, 3, 3]
    assert rows.kept(INPUTS) == 6 * (sum(each) + 64 * 9)
    assert rows.kept(INPUTS[:1]) == sum(each) + 64 * 9
