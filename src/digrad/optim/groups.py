"""What parameter groups ask for: their step size, their weight decay, their inner optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from numbers import Real
from typing import Any, NamedTuple

from torch import Tensor

from digrad.algorithms import as_algorithm
from digrad.algorithms.compression.compressed import compressed
from digrad.algorithms.contract import Algorithm, method_name
from digrad.algorithms.estimators import EstimatedMethod
from digrad.algorithms.inner import Momentum
from digrad.algorithms.inner_kinds import as_inner
from digrad.algorithms.rules import SGD, Inner
from digrad.base.errors import ParameterError, lookup

# What PyTorch and its schedulers write into groups.
WRITTEN = ("params", "param_names", "initial_lr", "max_lr", "min_lr", "swa_lr")
WRITTEN_TOO = ("base_momentum", "max_momentum")


class GroupOptions(NamedTuple):
    """What a parameter group asks for in one step."""

    algorithm: Algorithm[Any]
    lr: float
    weight_decay: float  # that is added to the gradients


def prepare_method(
    algorithm: Algorithm[Any] | str, inner: Any, options: Mapping[str, Any], compress: Any
) -> Any:
    """Return the algorithm with its inner optimizer and its compression."""
    method: Any = as_algorithm(algorithm)
    if isinstance(method, EstimatedMethod):
        what = f"{method_name(method)} wants gradients of single samples, which"
        hint = f"use {method.method!r} here; digrad run and digrad train take both"
        raise ParameterError(f"{what} backward does not leave", hint=hint)
    method = _with_inner(method, inner, options)
    return method if compress is None else compressed(method, compress)


def _with_inner(algorithm: Algorithm[Any], inner: Any, options: Mapping[str, Any]) -> Any:
    if inner is None and not options:
        return algorithm
    name = method_name(algorithm)
    if not isinstance(algorithm, Momentum):
        lookup({**SGD().options, "betas": 0, "eps": 0}, next(iter(options), "momentum"), "argument")
        what = f"{name} takes no inner optimizer: what it corrects is counted in plain steps"
        raise ParameterError(what, hint="push-pull, dsgt, sgp and dsgd take one")
    if algorithm.rule is not None:
        what = f"{algorithm!r} has momentum already, beside {inner or dict(options)}"
        raise ParameterError(what, hint="give it in one place")
    rule = as_inner("sgd" if inner is None else inner, **options)
    return replace(algorithm, inner=rule)


class Groups:
    """The options of parameter groups, and the algorithm that each comes to.

    Every group has the algorithm with an inner optimizer of its own; all remember the same
    variables, so that the state has one form.
    """

    def __init__(self, algorithm: Algorithm[Any], lr: float, weight_decay: float | None) -> None:
        self.algorithm = algorithm
        rule = algorithm.rule if isinstance(algorithm, Momentum) else None
        self._rule: Any = rule
        if isinstance(algorithm, Momentum) and rule is None:
            self._rule = SGD()
        own = 0.0 if self._rule is None else self._rule.weight_decay
        self.defaults = {"lr": lr, "weight_decay": own if weight_decay is None else weight_decay}
        self.defaults |= self._rule.options if self._rule else {}

    @property
    def decoupled(self) -> bool:
        """Whether weight decay passes by the gradients."""
        return self._rule is not None and self._rule.decoupled

    def check(self, groups: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """Refuse what no group can ask for; return step sizes and decays."""
        known = dict.fromkeys((*self.defaults, *WRITTEN, *WRITTEN_TOO))
        for k, group in enumerate(groups):
            for key in group:
                lookup(known, key, f"key in parameter group {k}")
        full = [{**self.defaults, **group} for group in groups]
        self.keep(full)
        for k, setting in enumerate(self.settings(full, 1.0)):
            self._check_memory(k, setting.algorithm)
        return [[float(one["lr"]), float(one["weight_decay"])] for one in full]

    def _check_memory(self, k: int, algorithm: Any) -> None:
        """Refuse options that make a class of PyTorch's remember something else."""
        if self._rule is None or isinstance(self._rule, SGD):
            return
        own, others = algorithm.rule.names, self._rule.names
        if own != others:
            what = (
                f"parameter group {k} remembers {len(own)} variables, the optimizer {len(others)}"
            )
            hint = "give the inner optimizer the option too: inner=partial(..., momentum=0.9)"
            raise ParameterError(what, hint=hint)

    def keep(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Remember momenta from now on if a group asks for some, as a scheduler may make it."""
        if isinstance(self._rule, SGD) and any(float(group["momentum"]) for group in groups):
            self.keep_momenta()

    def keep_momenta(self) -> None:
        """Remember momenta, whatever the groups ask for now; each has its own β."""
        if isinstance(self._rule, SGD) and not self._rule.momentum:
            self._rule = replace(self._rule, momentum=0.9)
            self.algorithm = replace(_any(self.algorithm), inner=self._rule)

    def settings(self, groups: Sequence[Mapping[str, Any]], per_lr: float) -> list[GroupOptions]:
        """Return what each group asks for now."""
        return [self._group_options(group, per_lr) for group in groups]

    def _group_options(self, group: Mapping[str, Any], per_lr: float) -> GroupOptions:
        check_numbers(lr=group["lr"], weight_decay=group["weight_decay"])
        lr, decay = float(group["lr"]) * per_lr, float(group["weight_decay"])
        if self._rule is None:
            return GroupOptions(self.algorithm, lr, decay)
        options = tuple((key, _plain(group[key])) for key in self._rule.options)
        inside = (("weight_decay", decay if self.decoupled else 0.0),)
        algorithm = _with_options(self.algorithm, self._rule, options + inside)
        return GroupOptions(algorithm, lr, 0.0 if self.decoupled else decay)


@lru_cache(maxsize=64)  # the same at every step, unless a scheduler changes it
def _with_options(
    algorithm: Any, rule: Any, options: tuple[tuple[str, Any], ...]
) -> Algorithm[Any]:
    wanted: Inner = rule.having(dict(options))
    if algorithm.rule is None and not wanted.names:
        plain: Algorithm[Any] = algorithm
        return plain
    made: Algorithm[Any] = replace(algorithm, momentum=0.0, nesterov=False, inner=wanted)
    return made


def _any(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """Return an option as it can be compared: a list, or a tensor, as numbers."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, Tensor) else value


def check_numbers(**given: Any) -> None:
    """Refuse what is no number that a step can be multiplied by."""
    for name, value in given.items():
        if not isinstance(value, Real | Tensor) or not 0 <= float(value) < inf:
            raise ParameterError(
                f"{name} must be finite and at least 0, got {value}", hint="try 0.01"
            )
