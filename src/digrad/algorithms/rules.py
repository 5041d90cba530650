"""Inner optimizers: rules from directions to updates, as SGD and AdamW have them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import log
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from digrad.base.checks import real
from digrad.base.errors import ParameterError, short_repr

Kept = tuple[Tensor | None, ...]  # by name in ``Inner.names``; none before the first step


class Inner(Protocol):
    """A rule from directions to updates: row by row, pure, and the same whatever the step size."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it remembers; the first is called m, as the methods' states have it."""
        ...

    @property
    def linear(self) -> bool:
        """Whether twice the direction gives twice the update."""
        ...

    @property
    def weight_decay(self) -> float:
        """λ; the method adds λX to the gradients, or to the update if ``decoupled``."""
        ...

    @property
    def decoupled(self) -> bool:
        """Whether weight decay passes by what is tracked and remembered."""
        ...

    @property
    def traceable(self) -> bool:
        """Whether it is operations on tensors alone, which can be compiled and recorded."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """What a parameter group may set, weight decay aside."""
        ...

    def having(self, options: Mapping[str, Any]) -> "Inner":
        """Return the same with other options."""
        ...

    def __call__(self, kept: Kept, direction: Tensor) -> tuple[Tensor, Kept]:
        """Return D, for a step X - γD, and what is to be remembered."""
        ...


class _Rule:
    """What the rules written here have in common."""

    traceable: ClassVar[bool] = True
    weight_decay: float

    @property
    def options(self) -> dict[str, Any]:
        own: Any = self
        return {f.name: getattr(self, f.name) for f in fields(own) if f.name != "weight_decay"}

    def having(self, options: Mapping[str, Any]) -> "Inner":
        make: Any = type(self)
        made: Inner = make(**{"weight_decay": self.weight_decay, **options})
        return made


@dataclass(frozen=True)
class SGD(_Rule):
    """M⁺ = βM + Y; D = M⁺, or Y + βM⁺ after Nesterov: ``torch.optim.SGD(momentum=β)``.

    Polyak, USSR Computational Mathematics 1964; Sutskever et al., ICML 2013.

    Args:
        momentum: β, from 0 to less than 1.
        nesterov: whether to look ahead.
        weight_decay: λ; λX is added to the gradients.
    """

    linear: ClassVar[bool] = True
    decoupled: ClassVar[bool] = False

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        real(self.momentum, "momentum", least=0, below=1, hint="try 0.9")
        real(self.weight_decay, "weight_decay", least=0, hint="try 1e-4")
        if self.nesterov and not self.momentum:
            raise ParameterError("nesterov needs a momentum", hint="set momentum = 0.9")

    @property
    def names(self) -> tuple[str, ...]:
        return ("m",) if self.momentum else ()

    def __call__(self, kept: Kept, direction: Tensor) -> tuple[Tensor, Kept]:
        if not self.momentum:
            return direction, kept  # what was remembered stays, as PyTorch has it
        m = accumulate_momentum(kept[0] if kept else None, direction, self.momentum)
        return (torch.add(direction, m, alpha=self.momentum) if self.nesterov else m), (m,)


@dataclass(frozen=True)
class AdamW(_Rule):
    """M⁺ = β₁M + (1 - β₁)Y, Q⁺ = β₂Q + (1 - β₂)Y²; D = M⁺/(1 - β₁ᵏ) / (√(Q⁺/(1 - β₂ᵏ)) + ε).

    Each node divides by its own Q, so behind a tracker it is a heuristic: points where the
    trackers vanish stay where they are, but no proof says that they are reached. Loshchilov &
    Hutter, ICLR 2019; Kingma & Ba, ICLR 2015.

    Args:
        betas: β₁ and β₂, each from 0 to less than 1.
        eps: ε, more than 0.
        weight_decay: λ; λX is added to D.
    """

    linear: ClassVar[bool] = False
    decoupled: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("m", "q", "k")

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        betas: Any = self.betas
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            hint = "try (0.9, 0.999)"
            what = f"betas must be two numbers, got {short_repr(betas)}"
            raise ParameterError(what, hint=hint)
        for k, beta in enumerate(betas):
            real(beta, f"betas[{k}]", least=0, below=1, hint="try 0.9")
        object.__setattr__(self, "betas", tuple(map(float, betas)))  # a file gives a list
        real(self.eps, "eps", above=0, hint="try 1e-8")
        real(self.weight_decay, "weight_decay", least=0, hint="try 1e-4")

    def __call__(self, kept: Kept, direction: Tensor) -> tuple[Tensor, Kept]:
        m, q, k = kept if kept else (None, None, None)
        if m is None or q is None or k is None:
            m, q, k = *(torch.zeros_like(direction) for _ in range(2)), _counter(direction)
        (one, two), k = self.betas, k + 1
        m = torch.lerp(direction, m, one)
        q = torch.addcmul(two * q, direction, direction, value=1 - two)
        root = (q / _filled(two, k, q)).sqrt_().add_(self.eps)
        return (m / _filled(one, k, m)).div_(root), (m, q, k)


@dataclass(frozen=True)
class Adam(AdamW):
    """``adamw`` whose weight decay is added to the gradients: ``torch.optim.Adam``."""

    decoupled: ClassVar[bool] = False

    weight_decay: float = 0.0


def _counter(rows: Tensor) -> Tensor:
    """Return zeros, one for each node, in a type that can count to many millions."""
    kind = rows.dtype if rows.dtype == torch.float64 else torch.float32
    return torch.zeros_like(rows[..., :1], dtype=kind)


def _filled(beta: float, k: Tensor, like: Tensor) -> Tensor:
    """1 - βᵏ, which a mean that began at 0 has of its weight; exact where βᵏ is nearly 1."""
    if not beta:
        return torch.ones_like(k, dtype=like.dtype)
    return torch.expm1(k * log(beta)).neg().to(like)


def accumulate_momentum(m: Tensor | None, new: Tensor, beta: float) -> Tensor:
    """βM + N; N where there is no M yet.

    >>> accumulate_momentum(torch.ones(1), torch.ones(1), 0.5)
    tensor([1.5000])
    """
    return new if m is None else torch.add(new, m, alpha=beta)
