"""What stands between the direction a method has found and the step it takes.

A method finds a direction for each node: its tracker, or its gradient. An inner optimizer makes
the update of it and remembers what it needs, as fields of the method's state, so that it is
stored, resumed and cut into buckets like everything else. What it remembers never travels.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from digrad.algorithms.contract import Scale
from digrad.base.errors import ParameterError, message


class Kept(NamedTuple):
    """What an inner optimizer remembers; states have fields of these names."""

    m: Tensor | None = None  # a decaying sum of directions; none before the first


class Inner(Protocol):
    """A rule from directions to updates: row by row, and pure."""

    @property
    def speed(self) -> float:
        """How many times as far as a plain step it moves in the long run."""
        ...

    def __call__(
        self, kept: Kept, direction: Tensor, point: Tensor, lr: Scale
    ) -> tuple[Tensor, Kept]:
        """Return D, for a step X - γD, and what is to be remembered."""
        ...


@dataclass(frozen=True)
class HeavyBall:
    """M⁺ = βM + Y; D = M⁺, or Y + βM⁺ after Nesterov: ``torch.optim.SGD(momentum=β)``.

    Polyak, USSR Computational Mathematics 1964; Sutskever et al., ICML 2013.
    """

    beta: float
    nesterov: bool = False

    @property
    def speed(self) -> float:
        return 1 / (1 - self.beta)

    def __call__(
        self, kept: Kept, direction: Tensor, point: Tensor, lr: Scale
    ) -> tuple[Tensor, Kept]:
        m = decayed(kept.m, direction, self.beta)
        return (torch.add(direction, m, alpha=self.beta) if self.nesterov else m), Kept(m)


def decayed(m: Tensor | None, new: Tensor, beta: float) -> Tensor:
    """βM + N; N where there is no M yet.

    >>> decayed(torch.ones(1), torch.ones(1), 0.5)
    tensor([1.5000])
    """
    return new if m is None else torch.add(new, m, alpha=beta)


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Gives a method momentum on what it steps along; none of it at β = 0.

    Args:
        momentum: β, from 0 to less than 1. In the long run a step counts 1/(1 - β)-fold, which a
            fair step size is divided by.
        nesterov: whether to look ahead: Y + βM instead of M.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            what = f"momentum must lie in [0, 1), got {self.momentum}"
            raise ParameterError(message(what, hint="try 0.9"))
        if self.nesterov and not self.momentum:
            raise ParameterError(message("nesterov needs a momentum", hint="set momentum = 0.9"))

    def __init_subclass__(cls) -> None:
        """Keep dataclasses from writing a repr of their own: see ``__repr__``."""
        cls.__repr__ = Momentum.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Name the class and its parameters, momentum where there is any.

        A plain method is called what it was before it could have momentum, as stored runs say.
        """
        plain = {one.name: one.default for one in fields(Momentum)} | {"placement": "tracker"}
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        said = [f"{key}={value!r}" for key, value in own.items() if plain.get(key) != value]
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def inner(self) -> Inner | None:
        """What stands between direction and step; nothing in the plain method."""
        return HeavyBall(self.momentum, self.nesterov) if self.momentum else None

    @property
    def speed(self) -> float:
        """How many times as far as a plain step it moves in the long run."""
        return self.inner.speed if self.inner else 1.0

    def update(
        self, m: Tensor | None, direction: Tensor, point: Tensor, lr: Scale
    ) -> tuple[Tensor, Kept]:
        """Return D, for a step X - γD, and what is to be remembered."""
        if self.inner is None:
            return direction, Kept()
        return self.inner(Kept(m), direction, point, lr)


def inverse(lr: Scale) -> Scale:
    """1/γ, and 0 where γ is 0: who has not moved has learned nothing from it."""
    if isinstance(lr, Tensor):
        return torch.where(lr == 0, 0, 1 / lr)
    return 1 / lr if lr else 0.0
