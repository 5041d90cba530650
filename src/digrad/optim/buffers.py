"""Buffers of modules at a consensus: batch norm's means and variances, counters, and others.

No algorithm moves buffers: each node's follow its own data. The one model that a run has found
needs one set of them, which is made when it is asked for.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from digrad.base.errors import ParameterError, message
from digrad.base.norms import variances_of
from digrad.optim.bucket_mixer import Link

DIGIT = 1 << 20  # whole numbers travel as two digits, each exact in single precision


class Buffers:
    """Buffers of the own nodes' modules.

    Means and variances that belong together (``running_mean`` and ``running_var`` of one layer)
    become those of all nodes' data taken together: μ = mean μᵢ, σ² = mean (σᵢ² + (μᵢ - μ)²).
    Whole numbers become their mean, rounded; all others their mean.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules
        named = [dict(module.named_buffers()) for module in modules]
        self.names = list(named[0]) if named else []
        self._check_alike(named)
        self._variances = variances_of(modules[0]) if modules else {}

    def summary(self) -> str:
        """Say in a line what all ranks must have in common."""
        shapes = [tuple(b.shape) for b in self._named(0).values()] if self._modules else []
        return f"{len(shapes)} buffers, {sum(torch.Size(s).numel() for s in shapes)} numbers"

    def _check_alike(self, named: Sequence[dict[str, Tensor]]) -> None:
        for k, one in enumerate(named[1:], 1):
            if [b.shape for b in one.values()] != [b.shape for b in named[0].values()]:
                what = f"the buffers of own node {k} differ from those of own node 0"
                raise ParameterError(message(what, hint="all nodes train the same model"))

    def _named(self, row: int) -> dict[str, Tensor]:
        return dict(self._modules[row].named_buffers())

    @contextmanager
    def common(self, link: Link, n: int, like: Tensor) -> Iterator[None]:
        """Put what all nodes have in common in place of each node's own, while it lasts."""
        if not self.names:
            yield
            return
        before = [
            {name: b.clone() for name, b in self._named(row).items()}
            for row in range(len(self._modules))
        ]
        self._put([self._average(link, n, like)] * len(self._modules))
        try:
            yield
        finally:
            self._put(before)

    @torch.no_grad()
    def _put(self, values: Sequence[dict[str, Tensor]]) -> None:
        for row, given in enumerate(values):
            for name, buffer in self._named(row).items():
                buffer.copy_(given[name])

    @torch.no_grad()
    def _average(self, link: Link, n: int, like: Tensor) -> dict[str, Tensor]:
        own = [self._named(row) for row in range(len(self._modules))]
        even = torch.full((n,), 1 / n, dtype=torch.float64)

        def mean(parts: list[Tensor]) -> Tensor:
            return link.weighted(torch.stack(parts).to(like), even)

        flat = mean([_flat(named.values()) for named in own])
        found = dict(zip(self.names, _cut(flat, own[0].values()), strict=True))
        spread = [self._spread(named, found) for named in own]
        if self._variances:
            apart = mean([torch.cat(parts) for parts in spread])
            sizes = [own[0][name].numel() for name in self._variances]
            for name, part in zip(self._variances, torch.split(apart, sizes), strict=True):
                found[name] = found[name] + part.view_as(found[name])
        return found

    def _spread(self, named: dict[str, Tensor], mean: dict[str, Tensor]) -> list[Tensor]:
        """(μᵢ - μ)² of every layer with a variance."""
        return [
            (named[of].double() - mean[of].to(named[of].device)).square().flatten()
            for of in self._variances.values()
        ]


def _is_whole(buffer: Tensor) -> bool:
    return not buffer.is_floating_point()


def _flat(buffers: Iterable[Tensor]) -> Tensor:
    parts: list[Tensor] = []
    for buffer in buffers:
        flat = buffer.flatten()
        if _is_whole(buffer):
            whole = flat.long()
            parts += [(whole % DIGIT).double(), (whole // DIGIT).double()]
        else:
            parts.append(flat.double())
    return torch.cat(parts)


def _cut(flat: Tensor, like: Iterable[Tensor]) -> list[Tensor]:
    made, start = [], 0
    for buffer in like:
        size = buffer.numel()
        value = flat[start : start + size]
        start += size
        if _is_whole(buffer):
            value = (value + DIGIT * flat[start : start + size]).round()
            start += size
        made.append(value.view(buffer.shape))
    return made
