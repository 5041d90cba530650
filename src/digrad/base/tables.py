"""Tables of options: checked against a dataclass or a signature, and typed."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from digrad.base.checks import real
from digrad.base.errors import DigradError, lookup, short_repr

BESIDE = {"beside": True}  # metadata of a field that takes all keys which name no field
WORDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


class TableError(DigradError, ValueError):
    """A table with a key that is missing, or with a value of another type than is wanted."""


def read_table(
    cls: type,
    table: Any,
    where: str = "",
    *,
    whole: str = "the table",
    hints: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Make an object of a dataclass from a table; unknown keys are errors with a suggestion.

    Args:
        cls: the dataclass; fields that do not count in comparisons are no keys.
        table: key and value, nested as the dataclass is.
        where: the place of the table in a larger one, as in ``networks[0]``.
        whole: what the largest table is called.
        hints: how to write keys that may be missing.
        more: further fields.
    """
    if not isinstance(table, Mapping):
        raise TableError(f"{where or whole} must be a table, got {short_repr(table)}")
    types, known = get_type_hints(cls), {f.name: f for f in fields(cls) if f.compare}
    rest = next((f.name for f in known.values() if f.metadata == BESIDE), "")
    values: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    for key, value in table.items():
        if rest and key not in known:
            beside[key] = value
            continue
        lookup(known, key, f"key {f'in {where}' if where else f'of {whole}'}")
        values[key] = typed(value, types[key], f"{where}.{key}" if where else key, hints=hints)
    if beside:
        values[rest] = {**values.get(rest, {}), **beside}
    for name, spec in known.items():
        required = spec.default is MISSING and spec.default_factory is MISSING
        if required and name not in values:
            raise TableError(f"{where or whole} lacks {name}", hint=(hints or {}).get(name, ""))
    return cls(**values, **more)


def arguments(
    function: Any, params: Mapping[str, Any], where: str, given: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Check a table of parameters against a function's signature and return it, typed.

    >>> arguments(lambda dim, sigma=1.0: ..., {"dim": 3}, "problem")
    {'dim': 3}
    """
    types = get_type_hints(function)
    accepts = {
        name: p
        for name, p in signature(function).parameters.items()
        if name not in given and p.kind is not Parameter.VAR_KEYWORD
    }
    found = {}
    for key, value in params.items():
        lookup(accepts, key, f"key in {where}")
        found[key] = typed(value, types.get(key, Any), f"{where}.{key}")
    missing = [k for k, p in accepts.items() if p.default is Parameter.empty and k not in found]
    if missing:
        raise TableError(f"{where} lacks {', '.join(missing)}")
    return found


def typed(value: Any, kind: Any, where: str, *, hints: Mapping[str, str] | None = None) -> Any:
    """Return a value as the type that is wanted, or say what was expected.

    >>> typed(1, float, "sigma"), typed([1, 2], tuple[int, ...], "seeds")
    (1.0, (1, 2))
    >>> typed("fast", float | None, "lr")
    Traceback (most recent call last):
        ...
    digrad.base.tables.TableError: lr must be a number, got 'fast'
    """
    origin, options = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise TableError(f"{where} must be a table, got {short_repr(value)}")
        return {k: typed(v, options[1], f"{where}.{k}", hints=hints) for k, v in value.items()}
    if origin is tuple:
        if not isinstance(value, list | tuple):
            if options[0] is int:  # seeds = 3 may mean three seeds, or the seed 3
                what, one = (
                    f"{where} must be a list, got {short_repr(value)}",
                    f"[{short_repr(value)}]",
                )
                hint = f"write {one} for that one, or [0, 1, 2]"
                raise TableError(what, hint=hint)
            value = [value]
        items = enumerate(value)
        return tuple(typed(v, options[0], f"{where}[{k}]", hints=hints) for k, v in items)
    if hasattr(kind, "__dataclass_fields__"):
        return read_table(kind, value, where, hints=hints)
    if origin is Literal:
        return value if value in options else lookup(dict.fromkeys(options), value, where)
    if origin in (UnionType, Union):
        return _any_of(value, options, where, hints)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return real(value, where)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TableError(f"{where} must be {WORDS.get(kind, kind)}, got {short_repr(value)}")
    return value


def _any_of(
    value: Any, options: tuple[Any, ...], where: str, hints: Mapping[str, str] | None
) -> Any:
    several = [option for option in options if option is not NoneType]
    for option in several:
        try:
            return typed(value, option, where, hints=hints)
        except DigradError:
            if len(several) == 1:
                raise
    names = ", ".join(getattr(option, "__name__", repr(option)) for option in several)
    raise TableError(f"{where} must be one of: {names}; got {short_repr(value)}")
