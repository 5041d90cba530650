"""Modules that draw random numbers of their own are refused by name; warnings point at the user."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from digrad.base.counters import Sampler
from digrad.base.errors import DigradError
from digrad.problems import ModuleProblem
from digrad.problems.flat_module import FlatModule
from problems.test_flat_module import With

INPUTS = torch.randn(6, 8, 8, generator=torch.manual_seed(3))


def problem(module: nn.Module) -> ModuleProblem:
    return ModuleProblem(module, [(INPUTS, torch.arange(6) % 3)] * 4, batch=3)


@pytest.mark.parametrize(
    ("module", "who", "hint"),
    [
        (
            With(lambda self, x: functional.dropout(x, 0.5, self.training)),
            "the module",
            "use nn.Dropout modules",
        ),
        (With(lambda self, x: x + torch.randn_like(x)), "the module", "use nn.Dropout modules"),
        (With(lambda self, x: self.noise(x), noise=nn.RReLU()), "RReLU 'noise'", "take another"),
        (
            With(lambda self, x: self.drop(x), drop=nn.AlphaDropout(0.5)),
            "AlphaDropout 'drop'",
            "take another layer",
        ),
        (
            With(lambda self, x: self.read(x[:, None])[0][:, 0], read=nn.GRU(3, 3, 2, dropout=0.5)),
            "GRU 'read'",
            "set module.get_submodule('read').dropout = 0;",
        ),
        (
            With(
                lambda self, x: self.block(x[:, None])[:, 0], block=nn.TransformerEncoderLayer(3, 1)
            ),
            "MultiheadAttention 'block.self_attn'",
            "set module.get_submodule('block.self_attn').dropout = 0;",
        ),
    ],
)
def test_random_numbers_of_its_own_are_refused(module: nn.Module, who: str, hint: str) -> None:
    state = torch.random.get_rng_state()
    with pytest.raises(DigradError) as error:
        FlatModule.of(module, INPUTS)
    assert f"{who} draws random numbers of its own in training" in str(error.value)
    assert "(seed, node, step)" in str(error.value)
    assert f"hint: {hint}" in str(error.value)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_transformer_layer_is_taken_once_its_attention_draws_nothing() -> None:
    block = nn.TransformerEncoderLayer(3, 1, 4, batch_first=True)
    block.self_attn.dropout = 0.0
    module = With(lambda self, x: self.block(x[:, None])[:, 0], block=block)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of rows computed one by one
        made = problem(module)
        sample = made.sample(Sampler(torch.tensor(0), torch.arange(4)), range(1))[0]
        x = made.start().expand(4, -1)
        assert made.gradient(x, sample, slice(None)).isfinite().all()
    assert set(made._rows.words) == {"block.dropout", "block.dropout1", "block.dropout2"}


def test_several_that_draw_are_named() -> None:
    noisy = nn.Sequential(nn.Flatten(), nn.RReLU(), nn.Linear(64, 3), nn.RReLU())
    with pytest.raises(DigradError, match=r"RReLU '1', RReLU '3' draw random numbers of their own"):
        FlatModule.of(noisy, INPUTS)


def test_a_lazy_layer_is_called_by_its_name() -> None:
    module = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(
        DigradError, match=r"LazyLinear '1' is a lazy layer.*\n  hint: call the mod"
    ):
        FlatModule.of(module, INPUTS)
    module(INPUTS)
    assert FlatModule.of(module, INPUTS).dim == 65 * 3


def test_warnings_point_at_the_users_line_without_pytorchs_advice() -> None:
    module = With(lambda self, x: x if x.sum() > 0 else -x)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        problem(module)
    assert {Path(w.filename).name for w in seen} == {Path(__file__).name}
    assert "one after the other" in str(seen[0].message)
    assert "please" not in str(seen[0].message)
