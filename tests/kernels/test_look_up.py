"""Rows of tables picked by number: the library's, for one table and for many."""

from contextlib import nullcontext

import pytest
import torch
from torch.func import vmap
from torch.nn import functional

from digrad.kernels import embedding, layers
from digrad.kernels.embedding import look_up, look_up_backward


def picked() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator)
    return tables.requires_grad_(), torch.randint(0, 5, (3, 2, 6), generator=generator)


def test_every_group_has_its_own_table() -> None:
    tables, numbers = picked()
    found = look_up(tables, numbers)
    rows = zip(numbers, tables, strict=True)
    wanted = torch.stack([functional.embedding(k, table) for k, table in rows])
    assert torch.equal(found, wanted)
    back = torch.arange(found.numel(), dtype=torch.float64).view(found.shape).cos()
    got, want = (torch.autograd.grad(out, tables, back)[0] for out in (found, wanted))
    torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14)


def test_rows_are_groups() -> None:
    tables, numbers = picked()
    each = vmap(lambda table, k: look_up(table[None], k[None])[0])(tables, numbers)
    assert torch.equal(each, look_up(tables, numbers))
    shared = vmap(lambda k: look_up(tables, k), in_dims=1, out_dims=1)(numbers)
    assert torch.equal(shared, look_up(tables, numbers))


@pytest.mark.slow
def test_operators_keep_the_librarys_contract() -> None:
    tables, numbers = picked()
    torch.library.opcheck(look_up, (tables, numbers))
    grad = torch.ones(3, 2, 6, 4, dtype=torch.float64)
    torch.library.opcheck(look_up_backward, (grad, numbers, 5))


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_kernel_that_errs_is_found_by_trying(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, numbers = picked()
    grad = torch.ones(3, 2, 6, 4, dtype=torch.float64)
    wanted = look_up_backward(grad, numbers, 5)
    calls = []

    class Kernels:
        @staticmethod
        def table_gradient(grad, numbers, rows):
            calls.append(grad.shape)
            return factor * wanted

    monkeypatch.setattr(embedding, "kernels_for", lambda *_, **kw: Kernels)
    monkeypatch.setattr(embedding, "_TRIED", {})
    with nullcontext() if factor == 1 else pytest.warns(UserWarning, match="gradients of tables"):
        assert torch.equal(look_up_backward(grad, numbers, 5), wanted)
    assert torch.equal(look_up_backward(grad, numbers, 5), wanted)  # and no warning
    assert calls == [(3, 12, 4)] * 2
    assert list(embedding._TRIED.values()) == [factor == 1]


def test_the_layer_is_the_librarys() -> None:
    layer = torch.nn.Embedding(5, 4, dtype=torch.float64)
    numbers = torch.tensor([[0, 2, 2], [4, 0, 2]])
    wanted = layer(numbers)
    (want,) = torch.autograd.grad(wanted.square().sum(), layer.weight)
    assert layers.Embedding.fits(layer)
    layer.__class__ = layers.Embedding
    found = layer(numbers)
    (got,) = torch.autograd.grad(found.square().sum(), layer.weight)
    assert torch.equal(found, wanted)
    torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [{"padding_idx": 0}, {"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}],
)
def test_other_tables_stay_what_they_are(options) -> None:
    assert not layers.Embedding.fits(torch.nn.Embedding(5, 4, **options))
