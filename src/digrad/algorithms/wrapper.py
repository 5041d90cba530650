"""A method around another, and types of states with more variables than a method has by itself.

What an inner optimizer or an estimator remembers, and the buffers of a module, stand behind the
variables of the method, so that they are stored, resumed and cut into rows like these.
"""

from collections import namedtuple
from functools import lru_cache
from typing import Any

from torch import Tensor

from digrad.algorithms.contract import Algorithm, Scale


@lru_cache(maxsize=256)
def join_state(kind: Any, names: tuple[str, ...]) -> Any:
    """Return a type of states with the variables of one, and more.

    >>> from digrad.algorithms.doubly import ModelState
    >>> join_state(ModelState, ("k",))._fields
    ('x', 'm', 'k')
    """
    if not names:
        return kind
    every = (*kind._fields, *names)
    make: Any = namedtuple
    made = make(f"{kind.__name__}With{names[0].title()}", every, defaults=[None] * len(every))
    base, before = getattr(kind, "lineage", (kind, ()))
    made.kind, made.lineage = kind, (base, (*before, names))
    made.__reduce__ = lambda s: (_rebuilt, (*made.lineage, tuple(s)))  # no module has its name
    return made


def _rebuilt(base: Any, lineage: tuple[tuple[str, ...], ...], values: tuple[Any, ...]) -> Any:
    for names in lineage:
        base = join_state(base, names)
    return base(*values)


def without(s: Any) -> Any:
    """Return a state of a joined type without what was joined to it last."""
    kind = type(s).kind
    return kind(*s[: len(kind._fields)])


class Wrapper(Algorithm[Any]):
    """Its state is that of the method in it, then a memory."""

    method: Algorithm[Any]

    def inside(self, s: Any) -> Any:
        """Return the state of the method in it."""
        return without(s)

    def point(self, s: Any) -> Tensor:
        return self.method.point(self.inside(s))

    def answer(self, s: Any) -> Tensor:
        return self.method.answer(self.inside(s))

    def tracker(self, s: Any) -> Tensor | None:
        return self.method.tracker(self.inside(s))

    def row_bits(self, dim: int, each: int) -> int:
        return self.method.row_bits(dim, each)

    @property
    def samples(self) -> int:
        return self.method.samples

    @property
    def local_steps(self) -> int:
        return self.method.local_steps

    def local(self, s: Any, g: Tensor, lr: Scale) -> Any:
        own = self.inside(s)  # the memory stays as it is
        return type(s)(*self.method.local(own, g, lr), *s[len(own) :])

    @property
    def speed(self) -> float:
        return self.method.speed

    @property
    def linear(self) -> bool:
        return self.method.linear

    @property
    def traceable(self) -> bool:
        return self.method.traceable
