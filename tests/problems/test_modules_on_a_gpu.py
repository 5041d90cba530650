"""Modules on CUDA: the kernels, compiled code, recorded steps; skipped where there is none."""

from dataclasses import replace

import pytest
import torch
from torch.func import vmap
from torch.nn import functional

from digrad.algorithms import PushPull
from digrad.base.counters import Sampler
from digrad.engines.simulator import Simulator
from digrad.kernels import layers
from digrad.kernels.convolution import convolve
from digrad.networks import erdos_renyi, weigh
from digrad.problems import ModuleProblem
from digrad.problems.models import CNN, ResNet
from digrad.runs.recursion import Recursion, StepMode, Trials

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"),
    # The compiler's own imports warn that parts of PyTorch are deprecated; it also advises TF32.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

SHAPES = [  # groups, samples, C, H, W, O, h, w, stride, padding, dilation
    (2, 3, 1, 12, 12, 10, 5, 5, (1, 1), (0, 0), (1, 1)),
    (3, 2, 10, 12, 12, 20, 5, 5, (1, 1), (0, 0), (1, 1)),
    (1, 2, 3, 10, 11, 7, 3, 2, (2, 1), (0, 1), (1, 2)),
    (2, 1, 17, 7, 7, 70, 3, 3, (2, 2), (1, 1), (1, 1)),
    (2, 3, 64, 9, 7, 130, 3, 3, (1, 1), (1, 1), (1, 1)),
    (2, 3, 32, 8, 8, 64, 1, 1, (2, 2), (0, 0), (1, 1)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_are_the_librarys_convolution(shape) -> None:
    G, S, C, H, W, O, h, w, *window = shape  # noqa: E741
    torch.manual_seed(0)
    x = torch.randn(G, S, C, H, W, device="cuda", requires_grad=True)
    weight = torch.randn(G, O, C, h, w, device="cuda", requires_grad=True)
    bias = torch.randn(G, O, device="cuda", requires_grad=True)
    exact = [
        functional.conv2d(*(t.double() for t in row), *window)
        for row in zip(x, weight, bias, strict=True)
    ]
    wanted = torch.stack(exact)
    back = torch.randn_like(wanted)
    wanted_grads = torch.autograd.grad(wanted, (x, weight, bias), back)
    out = convolve(x, weight, bias, *window)
    grads = torch.autograd.grad(out, (x, weight, bias), back.float())
    torch.testing.assert_close(out, wanted.float(), rtol=1e-4, atol=1e-4)
    for got, want in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


LAYERS = [  # of the networks that are trained here: C, size, O, window, stride, padding
    *((1, 28, 10, 5, 1, 0), (10, 12, 20, 5, 1, 0)),
    *((3, 32, 16, 3, 1, 1), (16, 32, 16, 3, 1, 1), (16, 32, 32, 3, 2, 1), (16, 32, 32, 1, 2, 0)),
    *((32, 16, 32, 3, 1, 1), (32, 16, 64, 3, 2, 1), (32, 16, 64, 1, 2, 0), (64, 8, 64, 3, 1, 1)),
    *((3, 32, 64, 3, 1, 1), (64, 32, 64, 3, 1, 1), (64, 32, 128, 3, 2, 1), (128, 16, 128, 3, 1, 1)),
    *(
        (128, 16, 256, 1, 2, 0),
        (256, 8, 256, 3, 1, 1),
        (256, 8, 512, 3, 2, 1),
        (512, 4, 512, 3, 1, 1),
    ),
    *((80, 9, 70, 3, 2, 1), (64, 10, 64, 5, 3, 2), (100, 28, 64, 3, 1, 1)),
]
ERRORS = {"full": 1e-6, "tf32": 2e-3, "bf16": 5e-3}


@pytest.mark.parametrize("precision", ERRORS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_layer_is_as_exact_as_is_said(layer, precision: str) -> None:
    """Whole stretches of pixels, at the sizes that compilers see: constants change their code."""
    C, size, O, window, stride, padding = layer  # noqa: E741
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    torch.manual_seed(0)
    x = torch.randn(3, 16, C, size, size, device="cuda").to(kind)
    weight = torch.randn(3, O, C, window, window, device="cuda").to(kind)
    points = [t.double().requires_grad_() for t in (x, weight)]
    how = [stride] * 2, [padding] * 2, [1, 1]
    rows = [functional.conv2d(*row, None, *how) for row in zip(*points, strict=True)]
    wanted = torch.stack(rows)
    back = torch.randn_like(wanted).to(kind)
    wanted = [wanted, *torch.autograd.grad(wanted, points, back.double())]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        given = [t.clone().requires_grad_() for t in (x, weight)]
        out = convolve(*given, None, *how)
        found = [out, *torch.autograd.grad(out, given, back)]
    finally:
        torch.set_float32_matmul_precision(before)
    for got, want in zip(found, wanted, strict=True):
        assert (got.double() - want).norm() < ERRORS[precision] * want.norm()


def problem(device: str, dtype: torch.dtype = torch.float32, model=None) -> ModuleProblem:
    torch.manual_seed(0)
    model = CNN() if model is None else model
    shape = (3, 16, 16) if isinstance(model, ResNet) else (1, 28, 28)
    data = [(torch.randn(30, *shape), torch.randint(0, 10, (30,))) for _ in range(5)]
    return ModuleProblem(model, data, test=data[0], device=device, dtype=dtype)


@pytest.mark.parametrize("model", [None, "resnet"])
def test_compiled_eager_and_cpu_gradients_agree(model) -> None:
    def made(device: str, dtype: torch.dtype) -> ModuleProblem:
        torch.manual_seed(1)
        return problem(device, dtype, ResNet((3, 16, 16)) if model else None)

    slow, fast = made("cpu", torch.float64), made("cuda", torch.float32)
    drawn = slow.sample(Sampler(torch.tensor([1, 2]), torch.arange(5)), range(1))[0]
    x = slow.start() + 0.01 * torch.randn(2, 5, slow.dim, dtype=torch.float64)
    wanted = slow.gradient(x, drawn, slice(0, 5))
    for gradient in (fast.gradient, fast.compiled_gradient):
        got = gradient(x.float().cuda(), drawn.cuda(), slice(0, 5)).cpu().double()
        assert (got - wanted).norm() < 1e-4 * wanted.norm()


@pytest.mark.parametrize("compiled", [False, True])
def test_recorded_steps_are_repeatable_and_agree_with_single_ones(compiled) -> None:
    net, trials = weigh(erdos_renyi(5, 0.5)), Trials([0, 1], [0.01, 0.02])
    setup = (PushPull(), Simulator(net, device="cuda"), problem("cuda"), trials, lambda t: 1.0)
    work = Recursion(*setup, StepMode("recorded", "compiled" if compiled else "plain"))
    whole = work.advance(work.start(), 60)
    first = work.advance(work.start(), 24)
    kept = first.state.x.clone()
    again = work.advance(first, 60)
    assert torch.equal(kept, first.state.x)  # what was handed out stays as it is
    odd = work.advance(work.advance(first, 29), 60)  # single steps are recorded as well
    kept_apart = zip(whole.state, again.state, odd.state, strict=True)
    for a, b, c in (values for values in kept_apart if values[0] is not None):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_points_together_and_one_by_one() -> None:
    made = problem("cuda")
    x = made.start() + 0.05 * torch.randn(2, 5, made.dim, device="cuda")
    together = made.measure(x[:, 0], x, made.default_metrics)
    made._evaluation = replace(made._evaluation, points=1, at_once=7)
    for name, value in made.measure(x[:, 0], x, made.default_metrics).items():
        torch.testing.assert_close(value, together[name], rtol=1e-4, atol=1e-4)


def test_pooling_is_the_librarys() -> None:
    """With ties, which go to the first pixel; and with edges that no window covers."""
    layer = layers.MaxPool2d((2, 3)).train()
    x = torch.randn(4, 3, 2, 9, 11, device="cuda").round().requires_grad_()
    got = vmap(layer)(x)
    wanted = functional.max_pool2d(x.flatten(0, 1), (2, 3)).view(got.shape)
    assert torch.equal(got, wanted)
    back = torch.randn_like(got)
    (dx,), (dy,) = (torch.autograd.grad(y, x, back) for y in (got, wanted))
    assert torch.equal(dx, dy)


def test_single_steps_agree_with_recorded_ones() -> None:
    net, trials = weigh(erdos_renyi(5, 0.5)), Trials([0, 1], [0.01, 0.02])
    setup = (PushPull(), Simulator(net, device="cuda"), problem("cuda"), trials, lambda t: 1.0)
    work = Recursion(*setup, StepMode("recorded"))
    whole = work.advance(work.start(), 60)
    plain = Recursion(*setup)
    single = plain.advance(plain.start(), 60).state.x
    torch.testing.assert_close(whole.state.x, single, rtol=1e-3, atol=1e-4)
