"""A method around another: it steps otherwise, and answers as the one in it does."""

from typing import Any

from torch import Tensor

from digrad.algorithms.contract import Algorithm, Scale
from digrad.algorithms.states import without


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
