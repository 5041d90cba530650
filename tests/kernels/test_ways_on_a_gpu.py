"""Nodes together and apart on CUDA: the same gradients, recorded or not; skipped without one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from digrad.algorithms import PushPull
from digrad.base.counters import Sampler
from digrad.engines.simulator import Simulator
from digrad.kernels import autotune
from digrad.networks import exponential, weigh
from digrad.problems import ModuleProblem
from digrad.problems.models import CNN, Transformer, resnet_20
from digrad.runs.recursion import Recursion, StepMode, Trials

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
NODES = 5


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # as a run does by default


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 10)
    )


MODELS: dict[str, Any] = {
    "cnn": lambda: CNN((3, 16, 16)),
    "resnet-20": lambda: resnet_20((3, 16, 16)),
    "batch norm": normed,
}


def problem(name: str, **more: Any) -> ModuleProblem:
    torch.manual_seed(0)
    data = [(torch.randn(30, 3, 16, 16), torch.randint(0, 10, (30,))) for _ in range(NODES)]
    return ModuleProblem(MODELS[name](), data, batch=6, test=data[0], device="cuda", **more)


def gradient(made: ModuleProblem) -> tuple[torch.Tensor, torch.Tensor]:
    nodes = torch.arange(NODES, device="cuda")
    sample = made.sample(Sampler(torch.tensor([1, 2], device="cuda"), nodes), range(1))[0]
    x = made.start().expand(2, NODES, -1).contiguous()
    kept = made.buffers().expand(2, NODES, -1).contiguous()
    return made.gradient_and_buffers(x, sample, slice(0, NODES), kept, compiled=False)


@pytest.mark.parametrize("name", MODELS)
def test_both_ways_come_to_the_same(name: str) -> None:
    one, other = (gradient(problem(name, way=way)) for way in ("together", "apart"))
    for a, b in zip(one, other, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()
    again = gradient(problem(name, way="apart"))
    assert all(map(torch.equal, other, again))


@pytest.mark.parametrize("way", ["together", "apart"])
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_are_single_ones(name: str, way: str) -> None:
    made, net = problem(name, way=way), weigh(exponential(NODES))
    setup = Simulator(net, device="cuda"), made, Trials([0, 1], [0.01, 0.02]), lambda t: 1.0
    ends = []
    for pace in (StepMode("single"), StepMode("recorded"), StepMode("recorded")):
        there = Recursion(PushPull(inner="adamw"), *setup, pace)
        ends.append(there.advance(there.start(), 24).state)
    single, recorded, again = ends
    for a, b, c in zip(single, recorded, again, strict=True):
        assert torch.equal(b, c)
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("way", ["together", "apart"])
@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_near(name: str, way: str) -> None:
    full = gradient(problem(name, way="together"))[0]
    half = gradient(problem(name, way=way, precision="bf16"))[0]
    assert half.dtype == torch.float32
    assert (half - full).norm() < 0.25 * full.norm()  # 8 bits of mantissa, through 20 layers


@pytest.mark.parametrize("precision", ["full", "bf16"])
@pytest.mark.parametrize("way", ["together", "apart"])
def test_text_is_the_same_to_the_bit_each_time(way: str, precision: str) -> None:
    """Characters come many times each: what they add up to must not depend on who comes first."""
    torch.manual_seed(0)
    torch.compiler.reset()
    texts = [torch.randint(0, 9, (20, 64)) for _ in range(NODES)]
    data = [(text, text.roll(-1, -1)) for text in texts]
    model = Transformer(9, 64, width=32, heads=4, layers=2)
    made = ModuleProblem(model, data, batch=16, device="cuda", way=way, precision=precision)
    drawn = made.sample(
        Sampler(torch.tensor([1], device="cuda"), torch.arange(NODES).cuda()), range(1)
    )
    x = made.start().expand(1, NODES, -1).contiguous()
    first, *others = (made.compiled_gradient(x, drawn[0], slice(0, NODES)) for _ in range(6))
    assert made._steady
    assert all(torch.equal(first, other) for other in others)
    plain, *others = (made.gradient(x, drawn[0], slice(0, NODES)) for _ in range(6))
    assert all(torch.equal(plain, other) for other in others)
    assert (first - plain).norm() < (1e-4 if precision == "full" else 0.05) * plain.norm()


def test_the_faster_way_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, before = gradient(problem("cnn", way="auto"))[0], autotune._load_choices()
    assert next(iter(before.values())) in ("together", "apart")

    def never(way: Any) -> float:
        raise AssertionError("measured again")

    monkeypatch.setattr(autotune, "_seconds", never)
    assert torch.equal(gradient(problem("cnn", way="auto"))[0], one)


def test_what_cannot_be_recorded_is_never_faster() -> None:
    def talks() -> torch.Tensor:
        return torch.ones(1, device="cuda") * (2 * torch.ones(1, device="cuda")).item()

    kinds = {"together": lambda: torch.ones(1, device="cuda") * 2, "apart": talks}
    assert autotune.choose_fastest("a test", kinds, torch.equal) == "together"
