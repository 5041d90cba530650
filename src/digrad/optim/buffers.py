"""Buffers of modules: batch norm's means and variances, counters, and others.

No algorithm moves buffers: each node's follow its own data, and are stored with its state. The one
model that a run has found needs one set of them, which is made when it is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from warnings import warn

import torch
from torch import Tensor, nn

from digrad.base.errors import ParameterError, message
from digrad.base.norms import variances_of
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.rows import Rows
from digrad.optim.state import CheckpointError

PREFIX = "buffer."  # of their names among the variables of a node
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
        self._aside: list[dict[str, Tensor]] = []  # the own ones, while others are in their place
        passing = _non_persistent(modules[0]) if modules else set()
        self._stored = {_plain(name): name for name in self.names if name not in passing}

    @classmethod
    def of(cls, modules: Sequence[nn.Module], count: int) -> "Buffers":
        """Return the buffers of modules that are given for so many own nodes."""
        if len(modules) != count:
            what = f"{len(modules)} models are given for {count} own nodes"
            raise ParameterError(what, hint="give one module for each own node")
        return cls(modules)

    def summary(self) -> str:
        """Say in a line what all ranks must have in common."""
        shapes = [tuple(b.shape) for b in self._named(0).values()] if self._modules else []
        return f"{len(shapes)} buffers, {sum(torch.Size(s).numel() for s in shapes)} numbers"

    def _check_alike(self, named: Sequence[dict[str, Tensor]]) -> None:
        for k, one in enumerate(named[1:], 1):
            if [b.shape for b in one.values()] != [b.shape for b in named[0].values()]:
                what = f"the buffers of own node {k} differ from those of own node 0"
                raise ParameterError(what, hint="all nodes train the same model")

    def _named(self, row: int) -> dict[str, Tensor]:
        """Return one node's buffers, complex numbers as pairs of real ones."""
        named = self._modules[row].named_buffers()
        return {name: torch.view_as_real(b) if b.is_complex() else b for name, b in named}

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Bring each node's own buffers back in the end; until then they are stored as they are."""
        if self._aside:  # they are aside already
            yield
            return
        self._aside = [
            {name: b.clone() for name, b in self._named(row).items()}
            for row in range(len(self._modules))
        ]
        try:
            yield
        finally:
            own, self._aside = self._aside, []
            self._put(own)

    @contextmanager
    def common(self, link: OptimizerEngine, n: int, like: Tensor) -> Iterator[None]:
        """Put what all nodes have in common in place of each node's own, while it lasts."""
        if not self.names:
            yield
            return
        with self.set_aside():
            self._put([self._average(link, _equal_weights(n), like)] * len(self._modules))
            yield

    def take_over(self, rows: Rows, without: Sequence[int], *, fresh: bool) -> None:
        """Give nodes that are new the others' buffers; every rank has to, fresh or not."""
        if self.names:
            found = self._average(rows.engine, _equal_weights(rows.n, without), rows.models)
            self._put([found] * len(self._modules) if fresh else [])

    def state(self, row: int) -> dict[str, list[Tensor]]:
        """Return one own node's buffers, flat, as they are stored with its variables.

        Those that a module registers as not persistent are not, as in its own ``state_dict``.
        """
        named = self._aside[row] if self._aside else self._named(row) if self._stored else {}
        return {PREFIX + said: [named[name].flatten()] for said, name in self._stored.items()}

    def stored(self, nodes: Sequence[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Find the own nodes' buffers among stored variables; none if they were not stored."""
        there = [key.removeprefix(PREFIX) for key in nodes[0] if key.startswith(PREFIX)]
        if self._stored and not there:
            warn(_no_buffers_text(list(self._stored)), stacklevel=4)
            return []
        if set(there) != set(self._stored):
            raise CheckpointError(
                _other_buffers_text(there, list(self._stored), bool(self._modules))
            )
        own = nodes if self._stored else ()
        return [self._node_buffers(row, node) for row, node in enumerate(own)]

    def _node_buffers(self, row: int, node: Mapping[str, Tensor]) -> dict[str, Tensor]:
        named, made = self._named(row), {}
        for said, name in self._stored.items():
            value, own = node.get(PREFIX + said), named[name]
            if value is None or value.numel() != own.numel() or value.dtype != own.dtype:
                found = "nothing" if value is None else f"{value.numel()} of {value.dtype}"
                what = f"the stored buffer {said} is {found}, not {own.numel()} of {own.dtype}"
                hint = "load what this very model has stored"
                raise CheckpointError(what, hint=hint)
            made[name] = value.view(own.shape)
        return made

    def restore(self, values: Sequence[dict[str, Tensor]]) -> None:
        """Put the own nodes' buffers where they belong, as ``stored`` has found them."""
        self._put(values)

    @torch.no_grad()
    def _put(self, values: Sequence[dict[str, Tensor]]) -> None:
        for row, given in enumerate(values):
            for name, buffer in self._named(row).items():
                if name in given:
                    buffer.copy_(given[name])

    @torch.no_grad()
    def _average(self, link: OptimizerEngine, weights: Tensor, like: Tensor) -> dict[str, Tensor]:
        own = [self._named(row) for row in range(len(self._modules))]

        def mean(parts: list[Tensor]) -> Tensor:
            return link.weighted(torch.stack(parts).to(like), weights)

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


def _equal_weights(n: int, without: Sequence[int] = ()) -> Tensor:
    """Return equal weights of n nodes that add up to one, some nodes' not counted."""
    weights = torch.ones(n, dtype=torch.float64)
    weights[list(without)] = 0
    return weights / weights.sum()


def _non_persistent(module: nn.Module) -> set[str]:
    """Return the names of the buffers that a module does not store."""
    return {
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        for name in part._non_persistent_buffers_set
    }


def _plain(name: str) -> str:
    """Return a buffer's name without what ``torch.compile`` puts before it."""
    return name.replace("_orig_mod.", "")


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _no_buffers_text(own: Sequence[str]) -> str:
    names = _first_names(own)
    what = f"the stored state has no buffers: {names} stay as they are, and are not resumed"
    hint = "load them yourself, or let the model see some batches in training mode"
    return message(what, hint=f"{hint}; what is stored from now on has them")


def _other_buffers_text(there: Sequence[str], own: Sequence[str], known: bool) -> str:
    if not known:
        what = f"buffers are stored, {_first_names(there)}, but the optimizer knows of no model"
        hint = "pass the model itself, Decentralized(model, ...), or model=model beside groups"
        return message(what, hint=hint)
    lacking = [name for name in own if name not in there]
    odd = [name for name in there if name not in own]
    said = [f"it has no {_first_names(lacking)}"] if lacking else []
    said += [f"it has {_first_names(odd)}, which the model has not"] if odd else []
    what = f"the stored buffers are of another model: {'; '.join(said)}"
    return message(what, hint="load what this very model has stored")


def _is_integer(buffer: Tensor) -> bool:
    return not buffer.is_floating_point()


def _flat(buffers: Iterable[Tensor]) -> Tensor:
    parts: list[Tensor] = []
    for buffer in buffers:
        flat = buffer.flatten()
        if _is_integer(buffer):
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
        if _is_integer(buffer):
            value = (value + DIGIT * flat[start : start + size]).round()
            start += size
        made.append(value.view(buffer.shape))
    return made
