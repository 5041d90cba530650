"""States with a memory beside them: the variables of a method, then those of who wraps it."""

from collections import namedtuple
from functools import lru_cache
from typing import Any

from torch import Tensor


@lru_cache(maxsize=64)
def joined(kind: Any, names: tuple[str, ...]) -> Any:
    """Return a type of states with the variables of one, and those of a memory."""
    every = (*kind._fields, *names)
    make: Any = namedtuple
    made = make(f"{kind.__name__}With{names[0].title()}", every, defaults=[None] * len(every))
    made.kind = kind
    made.__reduce__ = lambda s: (_rebuilt, (kind, names, tuple(s)))  # no module has its name
    return made


def _rebuilt(kind: Any, names: tuple[str, ...], values: tuple[Tensor | None, ...]) -> Any:
    return joined(kind, names)(*values)


def own_state(s: Any) -> Any:
    """Return the state of the method alone."""
    return type(s).kind(*s[: len(type(s).kind._fields)])
