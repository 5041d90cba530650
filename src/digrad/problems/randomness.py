"""Modules that draw random numbers of their own: found by trying, and refused by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from digrad.base.errors import ParameterError

WHY = "a run could not be repeated, as these do not depend on (seed, node, step) alone"
MOST_NAMED = 3


def refuse_randomness(module: nn.Module, inputs: Tensor) -> None:
    """Refuse a module whose outputs in training depend on the state of PyTorch's generators."""
    outputs = []
    with torch.no_grad():
        for seed in (1, 2):
            torch.manual_seed(seed)
            outputs.append(deepcopy(module)(inputs))
    if not isinstance(outputs[0], Tensor):
        what = f"the module returns a {type(outputs[0]).__name__}, not a tensor"
        raise ParameterError(what, hint="wrap it in one that returns its outputs alone")
    if not torch.allclose(outputs[0], outputs[1], rtol=0, atol=0, equal_nan=True):
        found = _drawing(deepcopy(module), inputs)
        what = f"{_named(found)} in training"
        raise ParameterError(what, WHY, hint=_mended(found))


def _drawing(module: nn.Module, inputs: Tensor) -> dict[str, nn.Module]:
    """Return the modules in whose own code a generator moves on, by their names.

    Whenever a module begins or ends, what was drawn since the last such time was drawn by the
    innermost that was at work.
    """
    found: dict[str, nn.Module] = {}
    layers, working = dict(module.named_modules()), [""]
    last = _state(inputs)

    def look() -> None:
        nonlocal last
        if not torch.equal(now := _state(inputs), last):
            found[working[-1]] = layers[working[-1]]
        last = now

    def before(name: str, *_: Any) -> None:
        look()
        working.append(name)

    def after(*_: Any) -> None:
        look()
        working.pop()

    hooks = []
    for name, layer in layers.items():
        hooks.append(layer.register_forward_pre_hook(partial(before, name)))
        hooks.append(layer.register_forward_hook(after))
    with hooked(*hooks), torch.no_grad():
        module(inputs)
        look()
    return found


@contextmanager
def hooked(*hooks: RemovableHandle) -> Iterator[None]:
    """Take hooks away at the end."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _state(inputs: Tensor) -> Tensor:
    """Return the state of the generators that a module on the inputs' device draws from."""
    here = torch.random.get_rng_state()
    return torch.cat([here, torch.cuda.get_rng_state(inputs.device)]) if inputs.is_cuda else here


def _named(found: dict[str, nn.Module]) -> str:
    names = [f"{type(layer).__name__} {name!r}" for name, layer in found.items() if name]
    if not names:
        return "the module draws random numbers of its own"
    if len(names) == 1:
        return f"{names[0]} draws random numbers of its own"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more} draw random numbers of their own"


def _mended(found: dict[str, nn.Module]) -> str:
    """Say what to do: layers with a share to drop can be told to drop nothing."""
    shares = [name for name, layer in found.items() if getattr(layer, "dropout", 0)]
    if shares and len(shares) == len(found):
        more = ", and likewise the others" if shares[1:] else ""
        what = f"set module.get_submodule({shares[0]!r}).dropout = 0{more}"
        return f"{what}; nn.Dropout modules may stay, as their draws can be repeated"
    if found and "" not in found:
        return "take another layer; nn.Dropout modules may stay, as their draws can be repeated"
    return (
        "use nn.Dropout modules instead of functions that draw, such as "
        "torch.nn.functional.dropout and torch.randn"
    )


def refuse_lazy(module: nn.Module) -> None:
    """Refuse layers that do not know their size before the first batch: there is no start yet."""
    for name, layer in module.named_modules():
        own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if any(nn.parameter.is_lazy(tensor) for tensor in own):
            kind = type(layer).__name__
            what = f"{kind} {name!r} is a lazy layer: its parameters are not made yet"
            raise ParameterError(what, hint="call the module once before: module(inputs)")
