"""States with more variables than their method's own: a memory that goes along with them."""

from collections import namedtuple
from functools import lru_cache
from typing import Any

from torch import Tensor


@lru_cache(maxsize=256)
def joined(kind: Any, names: tuple[str, ...]) -> Any:
    """Return a type of states with the variables of one, and those of a memory."""
    every = (*kind._fields, *names)
    make: Any = namedtuple
    name = f"{kind.__name__}With{names[0].title()}" if names else kind.__name__
    made = make(name, every, defaults=[None] * len(every))
    made.kind, made.names = kind, names
    made.__reduce__ = lambda s: (_rebuilt, (*_history(made), tuple(s)))  # no module has its name
    return made


def own(s: Any) -> Any:
    """Return the state of the method alone."""
    return type(s).kind(*s[: len(type(s).kind._fields)])


def memory(s: Any) -> tuple[Tensor | None, ...]:
    """Return what goes along with it."""
    return tuple(s[len(type(s).kind._fields) :])


def _history(kind: Any) -> tuple[Any, tuple[tuple[str, ...], ...]]:
    """Return the type that a module has a name for, and what was joined to it, in order."""
    added: list[tuple[str, ...]] = []
    while hasattr(kind, "kind"):
        added.insert(0, kind.names)
        kind = kind.kind
    return kind, tuple(added)


def _rebuilt(
    kind: Any, added: tuple[tuple[str, ...], ...], values: tuple[Tensor | None, ...]
) -> Any:
    for names in added:
        kind = joined(kind, names)
    return kind(*values)
