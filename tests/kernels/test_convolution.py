"""Convolution of groups, max-pooling and dropout masks, against the library's own layers."""

import os
import subprocess
import sys
from importlib.util import find_spec
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from digrad.kernels import layers
from digrad.kernels.convolution import convolve, convolve_backward

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def as_ours(layer: nn.Module, kind: type[nn.Module]) -> nn.Module:
    assert kind.fits(layer)  # type: ignore[attr-defined]
    layer.__class__ = kind
    return layer


@st.composite
def windows(draw: st.DrawFn) -> dict[str, object]:
    """Settings of a convolution and images that its patches fit into, with some room to spare."""
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, stride, dilation = draw(pair), draw(pair), draw(pair)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    reach = [g * (k - 1) + 1 - 2 * p for g, k, p in zip(dilation, kernel, padding, strict=True)]
    size = [max(1, r) + draw(st.integers(0, 4)) for r in reach]
    return {
        "images": (draw(st.integers(1, 3)), draw(st.integers(1, 3)), *size),
        "channels": draw(st.integers(1, 4)),
        "window": {"kernel_size": kernel, "stride": stride, "dilation": dilation},
        "padding": draw(st.sampled_from([padding, padding[0]]))
        if len({*padding}) == 1
        else padding,
        "bias": draw(st.booleans()),
    }


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The outputs, and the gradients of a sum of them with uneven weights."""
    x = x.clone().requires_grad_()
    out = layer(x)
    back = torch.arange(out.numel(), dtype=out.dtype).view(out.shape).cos()
    return [out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], back)]


@given(windows())
def test_the_layer_is_the_librarys(case) -> None:
    x = normal(*case["images"])
    torch.manual_seed(1)
    settings = {**case["window"], "padding": case["padding"], "bias": case["bias"]}
    layer = nn.Conv2d(x.shape[1], case["channels"], **settings, dtype=torch.float64)
    wanted = gradients(layer, x)
    for got, want in zip(gradients(as_ours(layer, layers.Conv2d), x), wanted, strict=True):
        torch.testing.assert_close(got, want, **EXACT)


@given(windows(), st.sampled_from([(0, 0), (None, 0), (0, None), (1, 2), (4, 0)]))
def test_rows_of_weights_and_images_in_one_call(case, axes) -> None:
    """Each row as if it were alone; what has no axis of rows is shared by all of them."""
    rows, (_, inputs, *size), weights = 3, case["images"], case["window"]["kernel_size"]
    stride, dilation = case["window"]["stride"], case["window"]["dilation"]
    padding = torch.tensor(case["padding"]).expand(2).tolist()
    x, w = normal(2, 1, inputs, *size), normal(2, case["channels"], inputs, *weights, seed=1)
    x, w = (
        t if axis is None else torch.stack([t * (k + 1) + k for k in range(rows)], dim=axis)
        for t, axis in zip((x, w), axes, strict=True)
    )
    x.requires_grad_()
    w.requires_grad_()
    got = vmap(lambda a, b: convolve(a, b, None, stride, padding, dilation), in_dims=axes)(x, w)
    alone = [
        [t if axis is None else t.select(axis, k) for t, axis in zip((x, w), axes, strict=True)]
        for k in range(rows)
    ]
    wanted = torch.stack(
        [
            torch.stack(
                [
                    functional.conv2d(c, d, None, stride, padding, dilation)
                    for c, d in zip(a, b, strict=True)
                ]
            )
            for a, b in alone
        ]
    )
    torch.testing.assert_close(got, wanted, **EXACT)
    back = normal(*got.shape, seed=2)
    for a, b in zip(
        torch.autograd.grad(got, (x, w), back),
        torch.autograd.grad(wanted, (x, w), back),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_operators_keep_the_librarys_contract() -> None:
    """Schema, fake tensors, autograd and ahead-of-time tracing, as the library checks them."""
    x, w = normal(2, 3, 2, 6, 7), normal(2, 4, 2, 3, 2, seed=1)
    window = [1, 2], [1, 0], [2, 1]
    bias = normal(2, 4, seed=3)
    grad = normal(*convolve(x, w, bias, *window).shape, seed=2)
    wanted = convolve(x, w, None, *window) + bias[:, None, :, None, None]
    torch.testing.assert_close(convolve(x, w, bias, *window), wanted, **EXACT)
    for operator, args in (
        (convolve, (*(t.clone().requires_grad_() for t in (x, w, bias)), *window)),
        (convolve, (x.clone().requires_grad_(), w, None, *window)),
        (convolve_backward, (grad, x, w, *window, True, False)),
        (convolve_backward, (grad, x, w, *window, False, True)),
    ):
        torch.library.opcheck(operator, args)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3)),
    ],
)
def test_other_convolutions_stay_what_they_are(layer: nn.Conv2d) -> None:
    assert not layers.Conv2d.fits(layer)


def test_max_pooling_is_the_librarys() -> None:
    for size, shape in (
        (2, (3, 2, 6, 8)),
        (2, (1, 1, 7, 5)),
        ((3, 2), (2, 2, 9, 7)),
        (1, (1, 1, 2, 2)),
    ):
        x, layer = normal(*shape), nn.MaxPool2d(size)
        wanted = gradients(layer, x)
        got = gradients(as_ours(layer, layers.MaxPool2d), x)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_ties_give_their_gradient_to_the_first_pixel(layout: torch.memory_format) -> None:
    """Whole numbers of few values, and zeros such as a ReLU leaves, tie in most windows."""
    x = torch.randint(0, 3, (4, 3, 6, 6), generator=torch.manual_seed(0)).double()
    x = x.to(memory_format=layout)
    layer = nn.MaxPool2d(2)
    wanted = gradients(layer, x)
    got = gradients(as_ours(layer, layers.MaxPool2d), x)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    (first,) = gradients(layer, torch.zeros(1, 1, 2, 2, dtype=torch.float64))[1:]
    assert first.flatten().tolist() == [1, 0, 0, 0]


@pytest.fixture(params=[False, True], ids=["eager", "as compiled"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """Max-pooling, and the form of it that compiled code takes, run without a compiler."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: request.param)
    return as_ours(nn.MaxPool2d((2, 3)), layers.MaxPool2d)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_does_not_vanish(pool: nn.Module, place: int, wrong: float) -> None:
    x = normal(2, 1, 4, 6)
    x[1, 0, 2 + place // 3, place % 3] = wrong
    wanted = functional.max_pool2d(x, (2, 3))
    torch.testing.assert_close(pool(x), wanted, equal_nan=True, rtol=0, atol=0)


def test_both_forms_of_max_pooling_in_many_rows(pool: nn.Module) -> None:
    x = torch.randint(0, 4, (3, 2, 2, 5, 7), generator=torch.manual_seed(1)).double()
    for axis in (0, 2):
        many = x.movedim(0, axis).clone().requires_grad_()
        out = vmap(pool, in_dims=axis)(many)
        back = normal(*out.shape)
        (got,) = torch.autograd.grad(out, many, back)
        flat = x.flatten(0, 1).requires_grad_()
        wanted = functional.max_pool2d(flat, (2, 3))
        assert torch.equal(out.flatten(0, 1), wanted)
        (want,) = torch.autograd.grad(wanted, flat, back.flatten(0, 1))
        assert torch.equal(got.movedim(axis, 0).flatten(0, 1), want)


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(3, stride=2),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, return_indices=True),
        nn.MaxPool2d(4),
    ],
)
def test_other_poolings_stay_what_they_are(layer: nn.MaxPool2d) -> None:
    assert not layers.MaxPool2d.fits(layer)


# What the library's dropouts of channels take for a batch of so many axes, and what they zero.
MASKS = [
    (nn.Dropout(0.5), (4, 3, 2), (4, 3, 2)),
    (nn.Dropout1d(0.5), (4, 3, 2), (4, 3, 1)),
    (nn.Dropout2d(0.5), (4, 3, 2, 5), (4, 3, 1, 1)),
    (nn.Dropout2d(0.5), (4, 3, 2), (4, 3, 1)),
    (nn.Dropout3d(0.5), (4, 3, 2, 2, 2), (4, 3, 1, 1, 1)),
    (nn.Dropout3d(0.5), (4, 3, 2, 2), (4, 1, 1, 1)),
]


@pytest.mark.parametrize(("layer", "shape", "mask"), MASKS, ids=lambda v: str(v))
@pytest.mark.filterwarnings("ignore:dropout2d")
def test_masks_cover_what_the_librarys_do(layer: nn.Module, shape, mask) -> None:
    ours, (batch, *rest) = layers.Dropout(layer), shape
    assert ours.shape(torch.ones(shape)) == mask
    torch.manual_seed(0)
    zero = layer(torch.ones(64 * batch, *rest)) == 0  # so many that no two differ by chance
    for axis, length in enumerate(mask):
        same = torch.equal(zero, zero.narrow(axis, 0, 1).expand_as(zero))
        assert same == (length == 1)


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])
def test_dropout_keeps_by_words(p: float) -> None:
    layer, x = layers.Dropout(nn.Dropout(p)), normal(2, 4)
    edge = round(p * 2**32)
    words = torch.tensor([0, edge - 1, edge, 2**32 - 1] * 2).clamp(0, 2**32 - 1)
    kept = (words >= edge).view(2, 4)
    wanted = torch.where(kept, x / (1 - p), 0) if p < 1 else torch.zeros_like(x)
    got = functional_call(layer, {"words": words}, (x,))
    torch.testing.assert_close(got, wanted)
    assert torch.equal(functional_call(layer.eval(), {"words": words}, (x,)), x)


KERNELS = """
import torch
from torch.nn import functional
from digrad.kernels import convolution_tiles, layer_kernels, shapes

for G, S, C, H, W, O, h, w, stride, padding, dilation in [
    (2, 3, 1, 8, 8, 10, 5, 5, (1, 1), (0, 0), (1, 1)),
    (1, 2, 3, 10, 11, 7, 3, 2, (2, 1), (1, 0), (1, 2)),
    (2, 1, 17, 7, 7, 70, 3, 3, (2, 2), (1, 1), (1, 1)),
    (2, 2, 18, 5, 6, 17, 3, 3, (1, 1), (1, 1), (1, 1)),  # channels of one place at a time
    (2, 2, 18, 5, 6, 3, 3, 2, (1, 1), (3, 2), (1, 2)),  # more padding than a patch reaches
    (1, 5, 2, 9, 9, 3, 2, 2, (1, 1), (0, 0), (1, 1)),  # more pixels than one program sums up
]:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(G, S, C, H, W), torch.randn(G, O, C, h, w), torch.randn(G, O)
    x.requires_grad_(), weight.requires_grad_()
    rows, window = zip(x, weight, bias), (list(stride), list(padding), list(dilation))
    wanted = torch.stack([functional.conv2d(*row, *window) for row in rows])
    back = torch.randn_like(wanted)
    dx, dw = torch.autograd.grad(wanted, (x, weight), back)
    x, weight = x.detach(), weight.detach()
    shapes.MOST = 2**31 if G == 1 else 1  # or indices of 64 bits
    both = torch.cat([dw.flatten(1), back.sum((1, 3, 4))], dim=1)
    for got, want in (
        (convolution_tiles.forward(x, weight, bias, *window), wanted),
        (
            convolution_tiles.forward(x, weight, None, *window),
            wanted - bias[:, None, :, None, None],
        ),
        (convolution_tiles.inputs(back, weight, x, *window), dx),
        (convolution_tiles.weights(back, x, weight, *window), dw.flatten(1)),
        (convolution_tiles.weights(back, x, weight, *window, biased=True), both),
    ):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
for G, S, C, size, groups in [
    (2, 3, 16, (5, 6), 8),
    (1, 2, 6, (4,), 3),
    (3, 1, 8, (2, 2), 1),
    (2, 2, 64, (3, 3), 8),
]:
    x, weight, bias = (torch.randn(*s).requires_grad_() for s in [(G, S, C, *size), (G, C), (G, C)])
    wanted = torch.stack([functional.group_norm(a, groups, *r) for a, *r in zip(x, weight, bias)])
    back = torch.randn_like(wanted)
    grads = torch.autograd.grad(wanted, (x, weight, bias), back)
    turned = x.detach().movedim(2, -1).contiguous().movedim(-1, 2)  # channels innermost
    for given in ((x.detach(), weight.detach()), (turned, weight.detach())):
        got, kept = layer_kernels.norm(*given, bias.detach(), groups, 1e-5)
        found = layer_kernels.norm_backward(back, *given, kept, groups)
        for got, want in zip((got, *found), (wanted, *grads)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
for G, T, V, D in [(2, 300, 7, 5), (1, 129, 1000, 130), (3, 1, 4, 8)]:  # rows of tables
    grad, numbers = torch.randn(G, T, D), torch.randint(0, V, (G, T))
    wanted = torch.stack([torch.zeros(V, D).index_add_(0, *row) for row in zip(numbers, grad)])
    got = layer_kernels.table_gradient(grad, numbers, V)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
for shape, size in [((2, 3, 4, 6), (2, 2)), ((1, 2, 2, 7, 8), (3, 2)), ((1, 40, 33), (2, 3))]:
    x = torch.randn(shape).round().requires_grad_()  # with ties
    wanted = functional.max_pool2d(x.flatten(0, -3), size)
    wanted = wanted.view(*shape[:-2], *wanted.shape[-2:])
    back = torch.randn_like(wanted)
    got, winner = layer_kernels.pool(x.detach(), *size)
    assert torch.equal(got, wanted)
    (dx,) = torch.autograd.grad(wanted, x, back)
    assert torch.equal(layer_kernels.unpool(back, winner, *size, x.shape), dx)
x = torch.tensor([[[1.0, torch.nan, 2.0, 1.0], [3.0, 0.0, 0.0, 0.0]]])
got, _ = layer_kernels.pool(x, 2, 2)
assert got[0, 0, 0].isnan() and got[0, 0, 1] == 2
print("equal")
"""


PARTS = """
import torch
from torch.nn import functional
from digrad.kernels import convolution_tiles, shapes, split_convolution

split_convolution.LEAST = 1
shapes._exact = lambda device: "tf32x3"  # as on a GPU that knows it
for G, S, C, H, W, O, h, w, stride, padding in [
    (2, 2, 18, 5, 6, 17, 3, 3, (1, 1), (1, 1)),
    (2, 3, 3, 8, 8, 33, 3, 3, (2, 2), (1, 1)),
    (1, 2, 16, 7, 7, 16, 1, 1, (2, 2), (0, 0)),  # pixels that nobody reads
    (2, 1, 20, 9, 8, 70, 5, 3, (3, 2), (2, 0)),
    (1, 3, 40, 6, 6, 32, 2, 2, (1, 1), (0, 0)),
    (2, 2, 16, 4, 4, 20, 3, 3, (1, 1), (3, 2)),  # more padding than a patch reaches
    (1, 2, 4, 1, 3, 5, 1, 1, (4, 4), (1, 1)),  # patches of nothing but padding
]:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(G, S, C, H, W), torch.randn(G, O, C, h, w), torch.randn(G, O)
    points = [t.double().requires_grad_() for t in (x, weight)]
    window = list(stride), list(padding), [1, 1]
    wanted = torch.stack([functional.conv2d(*row, *window) for row in zip(*points, bias.double())])
    back = torch.randn(wanted.shape)
    dx, dw = torch.autograd.grad(wanted, points, back.double())
    both = torch.cat([dw.flatten(1), back.double().sum((1, 3, 4))], dim=1)
    assert split_convolution.suit(shapes.Shape.of(x, weight, *window))
    for turn in (lambda t: t, lambda t: t.movedim(2, -1).contiguous().movedim(-1, 2)):
        out = convolution_tiles.forward(turn(x), weight, bias, *window)
        found = convolution_tiles.backward(
            turn(back), turn(x), weight, *window, to_x=True, to_bias=True
        )
        for got, want in zip((out, *found), (wanted, dx, both)):
            assert (got.double() - want).norm() <= 1e-6 * want.norm()
        for got, like in zip((out, found[0]), convolution_tiles.outputs(x, weight, *window)):
            assert got.stride() == like.stride()
print("equal")
"""


WHOLE = """
import torch
from importlib import import_module
from digrad.base.counters import Sampler
from digrad.problems.models import CNN, ResNet
from digrad.problems import ModuleProblem
from digrad.kernels import convolution
from digrad.kernels import layers

used = []
def kernels_for(x, module="convolution_tiles"):
    used.append(module)
    return import_module(f"digrad.kernels.{module}")

for model, size in ((CNN((2, 16, 16)), 16), (ResNet((2, 4, 4), width=4, stages=2), 4)):
    torch.manual_seed(0)
    data = [(torch.randn(4, 2, size, size), torch.randint(0, 10, (4,))) for _ in range(2)]
    found = []
    for kernels in (None, kernels_for):
        if kernels is not None:
            convolution.kernels_for = layers.kernels_for = kernels
        made = ModuleProblem(model, data, batch=2)
        drawn = made.sample(Sampler(torch.tensor([1]), torch.arange(2)), range(1))[0]
        x = made.start().expand(1, 2, -1).contiguous()
        found.append(made.gradient(x, drawn, slice(0, 2)))
    convolution.kernels_for = layers.kernels_for = lambda *_, **__: None
    assert (found[0] - found[1]).norm() < 1e-5 * found[0].norm()
assert {*used} == {"convolution_tiles", "layer_kernels"}
print("equal")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
@pytest.mark.slow
@pytest.mark.parametrize(
    "code", [KERNELS, PARTS, WHOLE], ids=["kernels", "parts", "whole gradients"]
)
def test_the_kernels_in_tritons_interpreter(code: str) -> None:
    """What runs on a GPU, here in slow motion; a process of its own, as it is chosen on import."""
    work = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert work.stdout == "equal\n", work.stderr


def test_a_patch_may_fill_its_image() -> None:
    x, w = normal(1, 2, 3, 4, 5), normal(1, 2, 3, 4, 5, seed=1)
    got = convolve(x, w, None, [1, 1], [0, 0], [1, 1])
    assert got.shape == (1, 2, 2, 1, 1)
    assert prod(got.shape) == 4
    torch.testing.assert_close(got[0, :, :, 0, 0], x[0].flatten(1) @ w[0].flatten(1).T, **EXACT)
