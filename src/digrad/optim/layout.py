"""Parameters as rows: every own node's model becomes one flat row, its parameters views of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

import torch
from torch import Tensor

from digrad.base.errors import ParameterError
from digrad.optim.refusals import check_kinds, check_module, check_parameter, listed_twice

Entry: TypeAlias = Tensor | tuple[str, Tensor]
Group: TypeAlias = Mapping[str, Any]
Model: TypeAlias = torch.nn.Module | Iterable[Entry] | Iterable[Group]
Parameters: TypeAlias = Model | Iterable[Model]
Modules: TypeAlias = torch.nn.Module | Iterable[torch.nn.Module]


@dataclass(frozen=True)
class ParameterSpan:
    """Where one parameter lies in a row."""

    name: str
    group: int
    start: int
    shape: torch.Size
    stride: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The column behind its last."""
        return self.start + self.shape.numel()

    def of(self, row: Tensor) -> Tensor:
        """Return the view of a row, shape (dim,), that has the parameter's shape."""
        return row[self.start : self.stop].as_strided(self.shape, self.stride)

    def flat(self, value: Tensor) -> Tensor:
        """Return a tensor of the parameter's shape in the row's order, as a view if it can be."""
        if value.stride() == self.stride:
            return value.as_strided((value.numel(),), (1,))
        row = value.new_empty(value.numel())
        row.as_strided(self.shape, self.stride).copy_(value)
        return row


@dataclass(frozen=True, eq=False)
class Layout:
    """The trainable parameters of the own nodes, and where they lie in a node's row.

    Columns are in the order of the parameter groups, so that each group is one stretch.
    """

    slots: tuple[ParameterSpan, ...]
    models: tuple[tuple[Tensor, ...], ...]  # for each own node its parameters, slot by slot
    frozen: tuple[Tensor, ...]  # parameters that asked for no gradient
    groups: tuple[dict[str, Any], ...]  # as torch.optim.Optimizer takes them
    is_block: bool  # whether a list of models was given, though it may be of one
    modules: tuple[torch.nn.Module, ...] = ()  # the own nodes', if they were given as such

    @property
    def dim(self) -> int:
        """Length of a row."""
        return self.slots[-1].stop

    @property
    def like(self) -> Tensor:
        """A parameter: all have its dtype and device."""
        return self.models[0][0]

    def summary(self) -> str:
        """Describe the rows in a line that differs for different models."""
        parts = [(slot.group, list(slot.shape), slot.stride) for slot in self.slots]
        print_ = sha256(repr(parts).encode()).hexdigest()[:16]
        kind = str(self.like.dtype).removeprefix("torch.")
        return f"{len(parts)} tensors, {self.dim} numbers, {kind}, shapes {print_}"

    @torch.no_grad()
    def flatten(self) -> Tensor:
        """Move all parameters into one new tensor of shape (own nodes, dim)."""
        rows = self.like.new_empty(len(self.models), self.dim)
        for row, model in zip(rows, self.models, strict=True):
            for slot, parameter in zip(self.slots, model, strict=True):
                slot.of(row).copy_(parameter)
        self.show(rows)
        return rows

    def show(self, rows: Tensor) -> None:
        """Make the parameters views of the rows."""
        for row, model in zip(rows, self.models, strict=True):
            for slot, parameter in zip(self.slots, model, strict=True):
                parameter.data = slot.of(row)

    def check_in_place(self, rows: Tensor) -> None:
        """Refuse parameters that are views of these rows no longer."""
        size = rows.element_size()
        for row, model in zip(rows, self.models, strict=True):
            start = row.data_ptr()
            for slot, parameter in zip(self.slots, model, strict=True):
                if parameter.numel() and parameter.data_ptr() != start + slot.start * size:
                    what = f"{slot.name} has been given other memory since the optimizer was made"
                    hint = "call model.to(...) before making the optimizer, and change "
                    hint += "parameters in place"
                    raise ParameterError(what, hint=hint)
        for parameter in self.frozen:
            if parameter.grad is not None:
                what = f"a parameter of shape {tuple(parameter.shape)} was frozen when the "
                what += "optimizer was made, but has a gradient now"
                hint = "make a new optimizer after requires_grad_(True)"
                raise ParameterError(what, hint=hint)


def lay_out(params: Parameters, modules: Modules | None = None) -> Layout:
    """Arrange parameters in rows: one model, or a list with one model for each own node.

    Args:
        params: of the own nodes.
        modules: whose they are, where they are no modules themselves.
    """
    given, is_block = _models(params)
    models = [_groups(model) for model in given]
    first = models[0]
    slots, start = [], 0
    for g, group in enumerate(first):
        for name, parameter in _trainable(group):
            # Dense tensors keep the order of their numbers, as channels_last needs it.
            stride = torch.empty_like(parameter, device="meta").stride()
            slots.append(ParameterSpan(name, g, start, parameter.shape, stride))
            start += parameter.numel()
    if not start:
        raise ParameterError(
            "there is no parameter to train", hint="at least one must require a gradient"
        )
    for k, model in enumerate(models[1:], 1):
        _check_alike(first, model, k)
    trained = [[p for group in model for _, p in _trainable(group)] for model in models]
    check_kinds([slot.name for slot in slots], trained)
    every = [p for model in models for group in model for _, p in group.entries]
    _check_once(models)
    return Layout(
        tuple(slots),
        tuple(map(tuple, trained)),
        tuple(p for p in every if not p.requires_grad),
        tuple(_torch_group([model[g] for model in models]) for g in range(len(first))),
        is_block,
        _modules(given, models, modules),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    entries: list[tuple[str, Tensor]]
    options: dict[str, Any]
    named: bool


def _modules(
    given: Sequence[Model], models: Sequence[Sequence[_Group]], modules: Modules | None
) -> tuple[torch.nn.Module, ...]:
    """Return the own nodes' modules, checked against the parameters; none if they are unknown."""
    if modules is None:
        return tuple(model for model in given if isinstance(model, torch.nn.Module))
    several = isinstance(modules, Iterable) and not isinstance(modules, torch.nn.Module)
    known: list[Any] = list(modules) if several else [modules]  # type: ignore[arg-type]
    odd = [type(m).__name__ for m in known if not isinstance(m, torch.nn.Module)]
    if odd or len(known) != len(models):
        said = f"a {odd[0]}" if odd else f"{len(known)} modules for {len(models)} own nodes"
        hint = "pass one torch.nn.Module, or a list with one for each own node"
        raise ParameterError(f"model= is {said}", hint=hint)
    for module, groups in zip(known, models, strict=True):
        check_module(module)
        own = {id(p) for p in module.parameters()}
        for name, p in (entry for group in groups for entry in group.entries):
            if id(p) not in own:
                what = f"{name}, of shape {tuple(p.shape)}, is no parameter of model="
                hint = "take the parameters from this very model, not from a copy of it"
                raise ParameterError(what, hint=hint)
    return tuple(known)


def _models(params: Parameters) -> tuple[list[Model], bool]:
    if isinstance(params, torch.nn.Module):
        return [params], False
    if isinstance(params, torch.optim.Optimizer):
        name = type(params).__name__
        hint = f"pass model.parameters() and inner=torch.optim.{name}; digrad makes one for itself"
        raise ParameterError(f"the parameters are an optimizer, {name}", hint=hint)
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        what = f"the parameters are a {type(params).__name__}"
        hint = "pass the model, model.parameters() or model.named_parameters()"
        raise ParameterError(what, hint=hint)
    given: list[Any] = list(params)
    if not given:
        raise ParameterError("there are no parameters", hint="pass model.parameters()")
    is_one = isinstance(given[0], Tensor | tuple | Mapping)
    return ([given], False) if is_one else (given, True)


def _groups(model: Model) -> list[_Group]:
    if isinstance(model, torch.nn.Module):
        check_module(model)
        model = model.named_parameters()
    given: list[Any] = list(model)
    if not given:
        what = "a node's model has no parameters"
        hint = "give one model, or one iterable of parameters, for each own node"
        raise ParameterError(what, hint=hint)
    groups: Sequence[Any] = given if isinstance(given[0], Mapping) else [{"params": given}]
    made: list[_Group] = []
    count = 0
    for group in groups:
        made.append(_group(group, count))
        count += len(made[-1].entries)
    return made


def _group(group: Group, count: int) -> _Group:
    inside = group["params"]
    given: list[Any] = [inside] if isinstance(inside, Tensor) else list(inside)
    entries: dict[int, tuple[str, Tensor]] = {}
    for k, entry in enumerate(given, count):
        name, parameter = entry if isinstance(entry, tuple) else (f"parameter {k}", entry)
        check_parameter(name, parameter)
        if id(parameter) in entries:
            raise listed_twice(name, "its parameter group", entries[id(parameter)][0])
        entries[id(parameter)] = name, parameter
    options = {key: value for key, value in group.items() if key != "params"}
    return _Group(list(entries.values()), options, bool(given) and isinstance(given[0], tuple))


def _check_once(models: Sequence[Sequence[_Group]]) -> None:
    """Refuse parameters that are listed twice, within a node or in two of them."""
    seen: dict[int, tuple[int, int, str]] = {}
    for node, groups in enumerate(models):
        for k, (name, p) in ((k, entry) for k, g in enumerate(groups) for entry in g.entries):
            where = seen.setdefault(id(p), (node, k, name))
            if where[0] != node:
                hint = "give every node a model of its own"
                raise ParameterError("two nodes share a parameter", hint=hint)
            if where != (node, k, name):
                raise listed_twice(name, f"parameter groups {where[1]} and {k}", where[2])


def _torch_group(same: Sequence[_Group]) -> dict[str, Any]:
    """Join one group of all own nodes, as torch.optim.Optimizer takes it."""
    params: list[Any] = []
    for k, group in enumerate(same):
        prefix = f"{k}." if len(same) > 1 else ""
        params += [(prefix + name, p) if group.named else p for name, p in group.entries]
    return {**same[0].options, "params": params}


def _trainable(group: _Group) -> list[tuple[str, Tensor]]:
    return [(name, p) for name, p in group.entries if p.requires_grad]


def _check_alike(first: Sequence[_Group], other: Sequence[_Group], k: int) -> None:
    shapes = [[[tuple(p.shape) for _, p in _trainable(g)] for g in m] for m in (first, other)]
    if shapes[0] != shapes[1]:
        counts = [sum(map(len, groups)) for groups in shapes]
        what = f"the model of own node {k} differs from that of own node 0: {counts[1]} trained "
        what += f"parameters against {counts[0]}, or other shapes"
        hint = "all nodes train the same model"
        raise ParameterError(what, hint=hint)
