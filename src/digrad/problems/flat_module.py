"""Any module as a pure function of one flat row of parameters.

    rows = FlatModule.of(module, inputs)
    outputs = functional_call(rows.training, rows.named(row, words), inputs)

A module is refused, with the reason, where it is no such function: buffers that change in a
forward pass (batch norm's running means), or random numbers of its own.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from digrad.base.errors import ParameterError, message
from digrad.problems.layers import Conv2d, Dropout, MaxPool2d


@dataclass(frozen=True, eq=False)
class FlatModule:
    """A module whose parameters come as flat rows.

    Args:
        plain: the module as it was given, for evaluation.
        training: the same with layers that are fast for many rows, and dropout by words.
        words: how many random words each dropout wants, by its name.
    """

    plain: nn.Module
    training: nn.Module
    words: dict[str, int]

    @classmethod
    def of(cls, module: nn.Module, inputs: Tensor) -> "FlatModule":
        """Prepare a module for batches such as ``inputs``; the module itself stays untouched."""
        plain = deepcopy(module).eval()
        training = _swapped(deepcopy(module)).train()
        if not any(p.requires_grad for p in module.parameters()):
            raise ParameterError(
                message("the module has no parameters to train", hint="set requires_grad")
            )
        with torch.random.fork_rng():  # the user's own random numbers stay as they are
            _refuse_inputs(plain, inputs)
            _refuse_changing_buffers(training, inputs)
            words = _words(training, inputs)
            _refuse_randomness(training, inputs)
        made = cls(plain, training, words)
        if made._refused(inputs):  # perhaps because results lie as they come
            for layer in training.modules():
                if isinstance(layer, Conv2d | MaxPool2d):
                    layer.packed = True
        if reason := made._refused(inputs):
            raise ParameterError(
                message(
                    "the module cannot be computed for many nodes at once",
                    reason,
                    hint="recurrent layers and branches on computed values do not work",
                )
            )
        return made

    def _refused(self, inputs: Tensor) -> str:
        """Say why two rows cannot be taken together; nothing if they can."""
        rows, batches = self.start().expand(2, -1), torch.stack([inputs, inputs])

        def outputs(row: Tensor, batch: Tensor) -> Any:
            return functional_call(self.training, self.named(row), (batch,))

        try:
            with torch.no_grad():
                vmap(outputs)(rows, batches)
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        return ""

    @cached_property
    def many(self) -> nn.Module:
        """The training module without dropout, to evaluate many rows at once."""
        return deepcopy(self.training).eval()

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """The parameters in the order in which they lie in a row; a shared one lies there once."""
        return {name: p.shape for name, p in self.plain.named_parameters() if p.requires_grad}

    @property
    def dim(self) -> int:
        """The length of a row."""
        return sum(shape.numel() for shape in self.shapes.values())

    def start(self) -> Tensor:
        """Return the module's own parameters as a row."""
        own = dict(self.plain.named_parameters())
        return torch.cat([own[name].detach().flatten() for name in self.shapes])

    def named(self, row: Tensor, words: Tensor | None = None) -> dict[str, Tensor]:
        """Return a row's parameters by name, and the words of each dropout."""
        found = torch.split(row, [shape.numel() for shape in self.shapes.values()])
        views = zip(self.shapes.items(), found, strict=True)
        named = {name: part.view(shape) for (name, shape), part in views}
        if words is not None and self.words:
            parts = torch.split(words, list(self.words.values()))
            named |= {f"{name}.words": part for name, part in zip(self.words, parts, strict=True)}
        return named

    def kept(self, inputs: Tensor) -> int:
        """Count the numbers that a forward pass of one row keeps for its way back, roughly."""
        count = 0

        def add(layer: nn.Module, args: Any, output: Any) -> None:
            nonlocal count
            if isinstance(output, Tensor):
                patches = (
                    args[0][0].numel() * prod(layer.kernel_size) if isinstance(layer, Conv2d) else 0
                )
                count += output.numel() + len(output) * patches

        hooks = [layer.register_forward_hook(add) for layer in self.training.modules()]
        try:
            with torch.no_grad():
                self.training(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return max(count, self.dim)

    def load(self, row: Tensor) -> nn.Module:
        """Return a copy of the module with a row's parameters."""
        module = deepcopy(self.plain)
        module.load_state_dict(self.named(row), strict=False)
        return module


def _swapped(module: nn.Module) -> nn.Module:
    """Replace the layers that have a faster or a repeatable form; parameters keep their names."""
    for name, layer in list(module._modules.items()):  # with every mention of a shared one
        if isinstance(layer, nn.Conv2d) and Conv2d.fits(layer):
            layer.__class__ = Conv2d  # the same parameters and settings, computed otherwise
        elif isinstance(layer, nn.MaxPool2d) and MaxPool2d.fits(layer):
            layer.__class__ = MaxPool2d
        elif layer is not None and Dropout.fits(layer):
            setattr(module, name, Dropout(layer))
        elif layer is not None:
            _swapped(layer)
    return module


def _words(module: nn.Module, inputs: Tensor) -> dict[str, int]:
    """Run once to see how many random numbers each dropout wants for such a batch."""
    wanted: dict[str, int] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def hook(layer: nn.Module, args: tuple[Tensor]) -> None:
            assert isinstance(layer, Dropout)
            if name in wanted:
                raise ParameterError(
                    message(
                        f"the dropout {name!r} is called twice in one forward pass",
                        hint="give each call its own nn.Dropout",
                    )
                )
            wanted[name] = prod(layer.shape(args[0]))

        return hook

    drops = [(name, m) for name, m in module.named_modules() if isinstance(m, Dropout) and m.p]
    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in drops]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return wanted


def _refuse_inputs(module: nn.Module, inputs: Tensor) -> None:
    try:
        with torch.no_grad():
            module(inputs)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        what = f"the module does not take inputs {tuple(inputs.shape)} of {inputs.dtype}: {error}"
        raise ParameterError(message(what, hint="the first axis is the batch")) from error


def _refuse_changing_buffers(module: nn.Module, inputs: Tensor) -> None:
    copy = deepcopy(module)
    before = {name: b.clone() for name, b in copy.named_buffers()}
    with torch.no_grad():
        copy(inputs)
    for name, after in copy.named_buffers():
        if name in before and not torch.equal(before[name], after):
            raise ParameterError(
                message(
                    f"the buffer {name!r} changes in a forward pass, as batch norm's means do",
                    "no algorithm averages buffers, so the nodes' models would drift apart unseen",
                    hint="use nn.GroupNorm, or batch norm with track_running_stats=False",
                )
            )


def _refuse_randomness(module: nn.Module, inputs: Tensor) -> None:
    outputs = []
    with torch.no_grad():
        for seed in (1, 2):
            torch.manual_seed(seed)
            outputs.append(functional_call(module, {}, (inputs,)))
    if not isinstance(outputs[0], Tensor):
        what = f"the module returns a {type(outputs[0]).__name__}, not a tensor"
        raise ParameterError(message(what, hint="wrap it in one that returns its outputs alone"))
    if not torch.allclose(outputs[0], outputs[1], rtol=0, atol=0, equal_nan=True):
        raise ParameterError(
            message(
                "the module draws random numbers of its own in training",
                "a run could not be repeated, as these do not depend on (seed, node, step) alone",
                hint="use nn.Dropout modules instead of functions that draw, such as "
                "torch.nn.functional.dropout and torch.randn",
            )
        )
