"""One of several by name, with the options that go with it: one that it does not use is refused."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, TypeVar

from digrad.base.errors import ParameterError, lookup, short_repr

T = TypeVar("T")
Makers = Mapping[str, Callable[..., T]]


def choose_maker(
    table: Makers[T], name: str, what: str, options: Mapping[str, Any]
) -> Callable[..., T]:
    """Return what a name stands for, with its options; one that is None was not given.

    >>> choose_maker({"mlp": list, "cnn": lambda dropout=0.5: []}, "mlp", "model", {"dropout": 0.1})
    Traceback (most recent call last):
        ...
    digrad.base.errors.ParameterError: model = 'mlp' does not use dropout = 0.1
      hint: leave dropout out, or take another model: cnn
    """
    make = lookup(table, name, what)
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in _options(make):
            others = ", ".join(one for one in table if key in _options(table[one]))
            raise ParameterError(
                f"{what} = {name!r} does not use {key} = {short_repr(value)}",
                hint=f"leave {key} out, or take another {what}: {others}",
            )
    return partial(make, **given)


def defaults(table: Makers[Any], name: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what those options are where they are not given, of which a name uses some."""
    options = _options(table[name]) if name in table else {}
    return {key: default for key, default in options.items() if key in wanted}


def _options(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        found = signature(make).parameters.values()
    except ValueError:  # of a function that is not Python's
        return {}
    return {p.name: p.default for p in found if p.default is not p.empty}
