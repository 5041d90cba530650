"""Inner optimizers by name, as objects, and any class of ``torch.optim``."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any

import torch

from digrad.algorithms.rules import SGD, Adam, AdamW, Inner
from digrad.algorithms.torch_rules import HOW, TorchRule
from digrad.base.errors import ParameterError, lookup, short_repr
from digrad.base.own_code import is_own, load_object

INNERS: dict[str, Callable[..., Inner]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}

_OURS: dict[type, Callable[..., Inner]] = {
    torch.optim.SGD: SGD,
    torch.optim.Adam: Adam,
    torch.optim.AdamW: AdamW,
}


def as_inner(given: Any, **options: Any) -> Inner:
    """Return an inner optimizer as it is, or make one.

    Args:
        given: an inner optimizer; ``sgd``, ``adam`` or ``adamw``; the name of another class of
            ``torch.optim``, or of one of your own as ``mine.py:Lion``; such a class, or a
            ``functools.partial`` of one; or a table with any of these names as its ``kind``.
        options: its options, such as ``momentum`` or ``betas``.

    >>> from functools import partial
    >>> as_inner(partial(torch.optim.AdamW, betas=(0.9, 0.95)))
    AdamW(betas=(0.9, 0.95), eps=1e-08, weight_decay=0.01)
    >>> as_inner("sgd", momentum=0.9) == as_inner({"kind": "sgd", "momentum": 0.9})
    True
    """
    if isinstance(given, Mapping):
        table = {**given, **options}
        kind = table.pop("kind", None)
        if kind is None:
            hint = 'as in { kind = "adamw", betas = [0.9, 0.95] }'
            raise ParameterError("the inner optimizer has no kind", hint=hint)
        return as_inner(kind, **table)
    if isinstance(given, partial):
        if given.args:
            what = f"the partial of {_name(given.func)} has {len(given.args)} arguments by place"
            raise ParameterError(what, hint="give them by name: momentum=0.9")
        return as_inner(given.func, **{**given.keywords, **options})
    if isinstance(given, str):
        return as_inner(_found(given), **options)
    if isinstance(given, type) and issubclass(given, torch.optim.Optimizer):
        return _of_torch(given, options)
    if given in INNERS.values():
        return _made(given, options)
    if isinstance(given, type) or not hasattr(given, "having"):
        hint = 'pass "adamw", torch.optim.AdamW, or partial(torch.optim.AdamW, betas=...)'
        if isinstance(given, torch.optim.Optimizer):
            hint = f"pass the class: partial(torch.optim.{_name(type(given))}, ...)"
        what = f"the inner optimizer is {short_repr(given)}"
        raise ParameterError(what, hint=hint)
    made: Inner = given
    return made if not options else made.having({**made.options, **options})


def written(inner: Inner) -> dict[str, Any]:
    """Return an inner optimizer as a table of plain values, if a file can hold it.

    >>> written(SGD(0.9))
    {'kind': 'sgd', 'momentum': 0.9, 'nesterov': False, 'weight_decay': 0.0}
    """
    kinds = {make: kind for kind, make in INNERS.items()}
    make: Any = type(inner)
    if make not in kinds:
        return {}
    options = inner.options | {"weight_decay": inner.weight_decay}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    return {"kind": kinds[make], **plain}


def _name(made: Any) -> str:
    return getattr(made, "__name__", type(made).__name__)


def _found(name: str) -> Any:
    if is_own(name):
        return load_object(name)
    of_torch = {
        key: value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    return lookup({**of_torch, **INNERS}, name, "inner optimizer")


def _made(make: Callable[..., Any], options: Mapping[str, Any]) -> Inner:
    known: Any = make
    takes = dict.fromkeys(f.name for f in fields(known))
    for key in options:
        lookup(takes, key, f"option of {_name(make)}")
    made: Inner = make(**options)
    return made


def _of_torch(cls: type[torch.optim.Optimizer], options: dict[str, Any]) -> Inner:
    """Return the rule that a class of PyTorch's follows: ours where it is the same."""
    takes = signature(cls).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for key in options if not free else ():
        lookup({k: 0 for k in takes if k != "params"}, key, f"option of {cls.__name__}")
    if "lr" in options:
        what = f"lr = {short_repr(options['lr'])} is given to the inner optimizer {cls.__name__}"
        raise ParameterError(what, hint="give it to the whole: Decentralized(..., lr=0.1)")
    said = {key: value for key, value in options.items() if key not in HOW}
    ours = _OURS.get(cls)
    if ours is not None:
        plain = {k for k in said if k in takes and takes[k].default == said[k]}
        unknown = {key for key in said if key not in {f.name for f in fields(_any(ours))}}
        if unknown <= plain:
            return _made(ours, {key: value for key, value in said.items() if key not in unknown})
    return TorchRule.of(cls, said)


def _any(value: Any) -> Any:
    return value
