"""Any module as a pure function of one flat row of parameters.

    rows = FlatModule.of(module, inputs)
    outputs = functional_call(rows.training, rows.named(row, words), inputs)

Buffers that change in a forward pass (batch norm's running means) come as a second row, and go
out as one. A module that draws random numbers of its own is refused, with the reason; one that
cannot be computed for many rows at once is computed row by row.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from digrad.base.errors import ParameterError
from digrad.base.norms import variances_of
from digrad.base.notices import notice
from digrad.kernels import Conv2d, Dropout, Embedding, GroupNorm, MaxPool2d
from digrad.problems.randomness import hooked, refuse_lazy, refuse_randomness


@dataclass(frozen=True, eq=False)
class FlatModule:
    """A module whose parameters come as flat rows.

    Args:
        plain: the module as it was given, for evaluation.
        training: the same with layers that are fast for many rows, and dropout by words.
        words: how many random words each dropout wants, by its name.
        changing: the buffers that a forward pass changes, as they begin.
        apart: why rows are computed one by one; empty if they can be taken together.
    """

    plain: nn.Module
    training: nn.Module
    words: dict[str, int]
    changing: dict[str, Tensor] = field(default_factory=dict)
    apart: str = ""

    @classmethod
    def of(cls, module: nn.Module, inputs: Tensor) -> "FlatModule":
        """Prepare a module for batches such as ``inputs``; the module itself stays untouched."""
        refuse_lazy(module)
        plain = deepcopy(module).eval()
        training = _replace_layers(deepcopy(module)).train()
        if not any(p.requires_grad for p in module.parameters()):
            raise ParameterError("the module has no parameters to train", hint="set requires_grad")
        with torch.random.fork_rng():  # the user's own random numbers stay as they are
            try:
                with torch.no_grad():
                    plain(inputs)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                what = f"the module does not take inputs {tuple(inputs.shape)} of {inputs.dtype}"
                hint = "the first axis is the batch"
                raise ParameterError(f"{what}: {error}", hint=hint) from error
            changing = _changing_buffers(training, inputs)
            words = _words(deepcopy(training), inputs)
            refuse_randomness(training, inputs)
        made = cls(plain, training, words, changing)
        if made._refused(inputs):  # perhaps because results lie as they come
            for layer in training.modules():
                if isinstance(layer, Conv2d | MaxPool2d):
                    layer.packed = True
        if reason := made._refused(inputs):
            notice(
                f"the nodes' {type(module).__name__} are computed one after the other, which is "
                f"slower: {reason}"
            )
            return replace(made, apart=reason)
        return made

    def _refused(self, inputs: Tensor) -> str:
        """Say why two rows cannot be taken together; nothing if they can."""
        rows, batches = self.start().expand(2, -1), torch.stack([inputs, inputs])
        kept = self.buffers().expand(2, -1)

        def outputs(row: Tensor, batch: Tensor, buffers: Tensor) -> Any:
            named = self.named(row) | self.named_buffers(buffers)
            return functional_call(self.training, named, (batch,))

        try:
            with torch.no_grad():
                map_rows(outputs, rows, batches, kept)
        except RuntimeError as error:
            return re.split(r"\.\s", str(error))[0]  # PyTorch's advice is to those who write it
        return ""

    @cached_property
    def alone(self) -> nn.Module:
        """The module for training one row at a time, by the library's own layers."""
        return _replace_layers(deepcopy(self.plain), fast=False).train()

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

    def distance(self, rows: Tensor, wanted: Tensor) -> float:
        """Return by how much rows differ, as a share of the parameter in which they do so most.

        A parameter that is next to nothing, less than a thousandth of all, counts as so much.
        """
        norm = partial(torch.linalg.vector_norm, dtype=torch.float64)
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = (torch.split(t.flatten(0, -2), sizes, dim=-1) for t in (rows, wanted))
        least = 1e-3 * norm(wanted) + torch.finfo(torch.float64).tiny
        shares = [norm(a - b) / norm(b).clamp(min=least) for a, b in zip(*parts, strict=True)]
        return float(torch.stack(shares).nan_to_num(float("inf")).max())

    def summary(self) -> str:
        """Describe the module in a line that differs for different ones."""
        text = repr(self.plain) + repr(list(self.shapes.items()))
        return sha256(text.encode()).hexdigest()[:16]

    def buffers(self) -> Tensor:
        """Return the changing buffers as a row, whole numbers among the others."""
        like = self.start()
        return torch.cat([like[:0], *(b.to(like).flatten() for b in self.changing.values())])

    def named_buffers(self, row: Tensor) -> dict[str, Tensor]:
        """Return the changing buffers of a row by name, as tensors of their own."""
        if not self.changing:
            return {}
        parts = torch.split(row, [b.numel() for b in self.changing.values()])
        pairs = zip(self.changing.items(), parts, strict=True)
        return {name: part.clone().view(b.shape).to(b.dtype) for (name, b), part in pairs}

    def packed_buffers(self, named: dict[str, Tensor], like: Tensor) -> Tensor:
        """Return the changing buffers as a row again."""
        parts = [named[name].detach().to(like.dtype).flatten() for name in self.changing]
        return torch.cat(parts) if parts else like

    def common(self, rows: Tensor) -> Tensor:
        """Return the buffers of all nodes' data taken together: (..., nodes, numbers) to one row.

        μ = mean μᵢ and σ² = mean (σᵢ² + (μᵢ - μ)²); whole numbers are rounded.
        """
        sizes = [b.numel() for b in self.changing.values()]
        own = dict(zip(self.changing, torch.split(rows.double(), sizes, dim=-1), strict=True))
        mean = {name: part.mean(-2) for name, part in own.items()}
        for variance, of in variances_of(self.plain).items():
            if variance in mean:
                apart = own[of] - mean[of].unsqueeze(-2)
                mean[variance] = mean[variance] + apart.square().mean(-2)
        for name, buffer in self.changing.items():
            if not buffer.is_floating_point():
                mean[name] = mean[name].round()
        return torch.cat([mean[name] for name in self.changing], dim=-1).to(rows)

    def kept(self, inputs: Tensor) -> int:
        """Count the numbers that a forward pass of one row keeps for its way back, roughly.

        And the most that a convolution's way back takes besides, for a while: its patches.
        """
        count = most = 0

        def add(layer: nn.Module, args: Any, output: Any) -> None:
            nonlocal count, most
            if isinstance(output, Tensor):
                count += output.numel()
            if isinstance(layer, Conv2d):
                most = max(most, args[0].numel() * prod(layer.kernel_size))

        hooks = [layer.register_forward_hook(add) for layer in self.training.modules()]
        with hooked(*hooks), torch.no_grad():
            self.training(inputs)
        return max(count + most, self.dim)

    def load(self, row: Tensor) -> nn.Module:
        """Return a copy of the module with a row's parameters, and buffers if they follow."""
        module = deepcopy(self.plain)
        named = self.named(row[: self.dim])
        if len(row) > self.dim:
            named |= self.named_buffers(row[self.dim :])
        module.load_state_dict(named, strict=False)
        return module


def _replace_layers(module: nn.Module, *, fast: bool = True) -> nn.Module:
    """Replace the layers that have a faster or a repeatable form; parameters keep their names."""
    for name, layer in list(module._modules.items()):  # with every mention of a shared one
        kinds: Any = (Conv2d, MaxPool2d, GroupNorm, Embedding) if fast else (Embedding,)
        kind = next((k for k in kinds if isinstance(layer, k.__base__) and k.fits(layer)), None)
        if kind is not None:
            layer.__class__ = kind  # the same parameters and settings, computed otherwise
        elif layer is not None and Dropout.fits(layer):
            setattr(module, name, Dropout(layer))
        elif layer is not None:
            _replace_layers(layer, fast=fast)
    return module


def _words(module: nn.Module, inputs: Tensor) -> dict[str, int]:
    """Run once to see how many random numbers each dropout wants for such a batch."""
    wanted: dict[str, int] = {}

    def note(name: str, layer: Dropout, args: tuple[Tensor]) -> None:
        if name in wanted:
            what = f"the dropout {name!r} is called twice in one forward pass"
            raise ParameterError(what, hint="give each call its own nn.Dropout")
        wanted[name] = prod(layer.shape(args[0]))

    drops = [(name, m) for name, m in module.named_modules() if isinstance(m, Dropout) and m.p]
    hooks = [layer.register_forward_pre_hook(partial(note, name)) for name, layer in drops]
    with hooked(*hooks), torch.no_grad():
        module(inputs)
    return wanted


def _changing_buffers(module: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Return the buffers that a forward pass changes, as they were before it."""
    copy = deepcopy(module)
    before = {name: b.clone() for name, b in copy.named_buffers()}
    with torch.no_grad():
        copy(inputs)
    after = dict(copy.named_buffers())
    changed = {
        name: b for name, b in before.items() if name in after and not torch.equal(b, after[name])
    }
    norms = variances_of(module)
    known = {*norms, *norms.values()} | {
        name.replace("running_var", "num_batches_tracked") for name in norms
    }
    others = [name for name in changed if name not in known]
    for name in others:
        if after[name].shape != changed[name].shape:
            what = f"the buffer {name!r} changes its shape in a forward pass"
            raise ParameterError(what, hint="keep buffers of one shape")
    if others:
        notice(
            f"the buffers {', '.join(others)} of {type(module).__name__} change in a forward pass: "
            "each node keeps its own, and answers are judged with their mean"
        )
    return changed


def map_rows(function: Callable[..., Any], rows: Tensor, *columns: Tensor) -> Any:
    """Return what a function gives for every row with what belongs to it.

    On a CPU, attention is plain products: PyTorch's fused form would be called row by row.
    """
    if rows.is_cuda:
        return vmap(function)(rows, *columns)
    with sdpa_kernel(SDPBackend.MATH):
        return vmap(function)(rows, *columns)
