"""Batch norm, layers that vmap cannot take, short precision and augmentation in the simulator."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import digrad as dg
from digrad.algorithms import LocalSGP, PushPull
from digrad.base.counters import Sampler
from digrad.engines.simulator import Simulator
from digrad.networks import exponential, weigh
from digrad.problems import ModuleProblem
from digrad.problems.batched_gradients import ShiftAndFlip
from digrad.problems.models import CNN
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import Recursion, StepMode, Trials

NODES, BATCH = 4, 6


def images(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Nodes that differ in mean and spread, so that their statistics do."""
    draw = torch.Generator().manual_seed(seed)
    return [
        (node + (1 + node) * torch.randn(20, 1, 6, 6, generator=draw), torch.arange(20) % 3)
        for node in range(NODES)
    ]


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    )


def problem(module: nn.Module, **more: Any) -> ModuleProblem:
    more = {"batch": BATCH, "dtype": torch.float64, **more}
    return ModuleProblem(module, images(), test=images(1)[0], **more)


def work(made: ModuleProblem, algorithm: Any = None, **more: Any) -> Recursion:
    net, dtype = weigh(exponential(NODES)), made.start().dtype
    trials = Trials([4, 9], [0.1, 0.05])
    engine = Simulator(net, dtype=dtype)
    return Recursion(algorithm or PushPull(), engine, made, trials, lambda t: 1.0, **more)


def by_hand(made: ModuleProblem, module: nn.Module, steps: int, seed: int, lr: float) -> Any:
    """S-PP with a module for each node, batch norm as the library has it."""
    net = weigh(exponential(NODES))
    R, C = (torch.from_numpy(W.toarray()) for W in (net.R, net.C))
    nodes = [made.module(made.start()).train() for _ in range(NODES)]
    inputs, targets = (torch.cat(part) for part in zip(*images(), strict=True))
    X, Y, before = made.start().expand(NODES, -1).clone(), torch.zeros(()), torch.zeros(())
    for t in range(steps):
        k = made.sample(Sampler(torch.tensor(seed), torch.arange(NODES)), range(t, t + 1))[0]
        rows = []
        for i, node in enumerate(nodes):
            nn.utils.vector_to_parameters(X[i].clone(), node.parameters())
            loss = nn.functional.cross_entropy(node(inputs[k[i]].double()), targets[k[i]])
            parts = torch.autograd.grad(loss, list(node.parameters()))
            rows.append(torch.cat([part.flatten() for part in parts]))
        G = torch.stack(rows)
        Y = G if t == 0 else C @ (Y + G - before)
        X, before = R @ (X - lr * Y), G
    return X, nodes


@pytest.mark.parametrize("gradient", ["plain", "compiled"])
def test_batch_norm_is_that_of_a_loop_over_nodes(gradient: Any) -> None:
    module = normed()
    made = problem(module)
    state = work(made, mode=StepMode("single", gradient)).advance(work(made).start(), 5).state
    for trial, (seed, lr) in enumerate(((4, 0.1), (9, 0.05))):
        X, nodes = by_hand(made, module, 5, seed, lr)
        torch.testing.assert_close(state.x[trial], X, rtol=1e-8, atol=1e-10)
        for node, kept in zip(nodes, state.buffers[trial], strict=True):
            own = torch.cat([b.double().flatten() for b in node.buffers()])
            torch.testing.assert_close(kept, own, rtol=1e-8, atol=1e-10)
    assert module[1].num_batches_tracked == 0  # the user's own stays as it was


def test_common_buffers_are_those_of_all_data_taken_together() -> None:
    """Total variance: of four nodes with different means it is larger than any mean of theirs."""
    made = problem(normed())
    draw = torch.randn(NODES, 1000, 3, dtype=torch.float64) * 2 + torch.arange(NODES)[:, None, None]
    counts = torch.tensor([7.0, 7, 8, 7], dtype=torch.float64)
    rows = torch.cat([draw.mean(1), draw.var(1, correction=0), counts[:, None]], dim=-1)
    wanted = torch.cat(
        [draw.flatten(0, 1).mean(0), draw.flatten(0, 1).var(0, correction=0), torch.tensor([7.0])]
    )
    torch.testing.assert_close(made.common(rows), wanted, rtol=1e-12, atol=1e-12)


def test_answers_are_judged_with_common_buffers_and_nodes_with_their_own() -> None:
    made = problem(normed())
    there = work(made)
    moment = there.advance(there.start(), 6)
    evaluator = Evaluator.make(there.algorithm, made, weigh(exponential(NODES)))
    read = evaluator.read(moment)
    inputs, targets = (part.double() if k == 0 else part for k, part in enumerate(images(1)[0]))
    rows = evaluator.whole_answer(moment)
    for trial in range(2):
        model = made.module(rows[trial])
        assert not model.training
        loss = nn.functional.cross_entropy(model(inputs), targets)
        torch.testing.assert_close(read["test_loss"][trial], loss.detach())
        each = []
        for x, kept in zip(moment.state.x[trial], moment.state.buffers[trial], strict=True):
            outputs = made.module(torch.cat([x, kept]))(inputs)
            each.append((outputs.argmax(1) == targets).double().mean())
        torch.testing.assert_close(read["worst_accuracy"][trial], torch.stack(each).min())


def test_a_run_with_batch_norm_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    def run(folder: str, **more: Any) -> Any:
        told: dict[str, Any] = {"lr": 0.1, "data": images(), "batch": BATCH, "progress": False}
        told |= {"test": images(1)[0], "metrics_every": 2, "compile": "never", **more}
        return dg.simulate(normed(), "exponential", "push-pull", out=tmp_path / folder, **told)

    whole = run("whole", steps=8)

    def stop(job: Any, t: int) -> None:
        if t == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("parts", steps=8, progress=stop)
    again = run("parts", steps=8, resume=True)
    assert torch.equal(whole.answer(), again.answer())
    one, other = whole.module(), again.module()
    assert int(one[1].num_batches_tracked) == 8
    assert all(torch.equal(a, b) for a, b in zip(one.buffers(), other.buffers(), strict=True))
    assert len(whole.answer()) == sum(p.numel() for p in one.parameters())


def test_steps_at_home_change_buffers_too() -> None:
    there = work(problem(normed()), LocalSGP(every=3))
    state = there.advance(there.start(), 2).state
    assert state.buffers[..., -1].unique().tolist() == [6.0]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x[:, 0])[0][:, -1])


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x.flatten(1))
        return out if out.sum() > 0 else -2 * out


@pytest.mark.parametrize("kind", [Recurrent, Branching])
def test_what_vmap_cannot_take_runs_node_by_node(kind: Any) -> None:
    torch.manual_seed(0)
    module = kind()
    with pytest.warns(UserWarning, match=f"{kind.__name__} are computed one after the other") as w:
        made = problem(module)
    assert len(w) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        there = work(made, mode=StepMode("single", "compiled"))
        got = there.advance(there.start(), 4).state.x
        read = Evaluator.make(PushPull(), made, weigh(exponential(NODES))).read(there.start())
    assert read["test_loss"].isfinite().all()
    assert not made.traceable
    for trial, (seed, lr) in enumerate(((4, 0.1), (9, 0.05))):
        X, _ = by_hand(made, module, 4, seed, lr)
        torch.testing.assert_close(got[trial], X, rtol=1e-8, atol=1e-10)


def test_branches_are_not_compiled() -> None:
    with pytest.warns(UserWarning, match="one after the other"):
        made = problem(Branching(), dtype=torch.float32)
    dg.simulate(made, "exponential", lr=0.1, steps=3, progress=False)
    with pytest.raises(dg.DigradError, match="decides in Python"):
        dg.simulate(made, "exponential", lr=0.1, steps=3, progress=False, compile="always")


@pytest.mark.parametrize("make", [normed, lambda: CNN((1, 16, 16), 3, dropout=0.5)])
def test_bf16_rounds_passes_and_keeps_the_state(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    data = images() if make is normed else [(torch.randn(9, 1, 16, 16), torch.arange(9) % 3)] * 4
    full, half = (
        ModuleProblem(module, data, batch=BATCH, precision=kind)  # type: ignore[arg-type]
        for kind in ("full", "bf16")
    )
    x = full.start().expand(NODES, -1)
    sample = full.sample(Sampler(torch.tensor(3), torch.arange(NODES)), range(1))[0]
    exact, rounded = (p.gradient(x, sample, slice(0, NODES)) for p in (full, half))
    assert rounded.dtype == exact.dtype == torch.float32
    off = (rounded - exact).norm() / exact.norm()
    assert 1e-4 < off < 0.05
    assert torch.equal(half.compiled_gradient(x, sample, slice(0, NODES)), rounded)
    assert torch.equal(full.loss(x[0]), half.loss(x[0]))  # answers are judged in full
    assert full.digest() != half.digest()


def test_images_are_moved_and_mirrored_by_words() -> None:
    image = torch.arange(1.0, 10).view(1, 1, 3, 3)

    def word(place: int, of: int) -> int:
        return (place * 2**32) // of + 2**32 // (2 * of)

    def moved(down: int, right: int, flip: int) -> Tensor:
        words = torch.tensor([[word(down, 3), word(right, 3), word(flip, 2)]])
        return ShiftAndFlip(1)(image, words)[0, 0]

    assert torch.equal(moved(1, 1, 0), image[0, 0])
    assert torch.equal(moved(1, 1, 1), image[0, 0].flip(1))
    assert moved(0, 1, 0).tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved(1, 2, 0).tolist() == [[2, 3, 0], [5, 6, 0], [8, 9, 0]]


def test_augmentation_is_a_function_of_seed_node_and_step() -> None:
    """And does not move the draws of samples and dropout."""
    module = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(36, 3))
    plain, made = problem(module), problem(module, augment=ShiftAndFlip(2))
    sampler = Sampler(torch.tensor([1, 2]), torch.arange(NODES))
    drawn, before = made.sample(sampler, range(6)), plain.sample(sampler, range(6))
    assert drawn.shape[-1] == before.shape[-1] + 3 * BATCH
    assert torch.equal(drawn[..., :BATCH], before[..., :BATCH])
    assert torch.equal(drawn[..., BATCH + 3 * BATCH :], before[..., BATCH:])
    assert torch.equal(made.sample(sampler, range(3, 4)), drawn[3:4])
    some = Sampler(torch.tensor([1, 2]), torch.tensor([2]))
    assert torch.equal(made.sample(some, range(6)), drawn[:, :, 2:3])
    x = made.start().expand(2, NODES, -1)
    apart = made.gradient(x, drawn[0], slice(0, NODES)) - plain.gradient(x, before[0], slice(0, 4))
    assert apart.abs().max() > 1e-3
