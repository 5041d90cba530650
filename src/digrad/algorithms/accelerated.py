"""Momentum in the models' own recursion: heavy ball and Nesterov on AB, and quasi-global.

The recursions of ABm, ABN and the accelerated push-pull method, and of DSGT-HB, are written
from memory of their papers; what was verified of them is in docs/methods.md.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    Algorithm,
    Mixer,
    Needs,
    Scale,
    Verb,
    add_changes,
    early_rows,
)
from digrad.algorithms.inner import inverse, update_trackers
from digrad.base.checks import real
from digrad.base.errors import ParameterError


class AcceleratedState(NamedTuple):
    """State of AB with momentum, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    s: Tensor | None = None  # X + ν(X - X₋), where gradients are taken; X itself at ν = 0
    last: Tensor | None = None  # X₋, the models of the step before; not kept at β = 0
    y: Tensor | None = None  # trackers, Σᵢ yᵢ = Σᵢ gᵢ; none before the first gradient
    g: Tensor | None = None  # the gradients last seen


class _Accelerated(Algorithm[AcceleratedState]):
    """X⁺ = AS - γY + β(X - X₋), S⁺ = X⁺ + ν(X⁺ - X), Y⁺ = BY + G(S⁺) - G(S)."""

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH | Needs.STRONGLY_CONNECTED
    exact: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ("y",)
    root_weighted: ClassVar[bool] = True
    moves_by_n_pi: ClassVar[bool] = True
    y_verb: ClassVar[Verb] = "push"

    beta: float = 0.0
    nu: float = 0.0

    def __post_init__(self) -> None:
        if self.beta < 0 or self.nu < 0 or not self.beta + self.nu < 1:
            what = f"beta and nu must be at least 0 and together less than 1, got {self.beta} + "
            raise ParameterError(f"{what}{self.nu}", hint="try 0.5 for one of them")

    @property
    def speed(self) -> float:
        return 1 / (1 - self.beta - self.nu)

    def init(self, x: Tensor) -> AcceleratedState:
        return AcceleratedState(x)

    def step(self, s: AcceleratedState, g: Tensor, net: Mixer, lr: Scale) -> AcceleratedState:
        y = update_trackers(s.y, s.g, g, getattr(net, self.y_verb), "cta")
        x = add_changes(net.pull(self.point(s), of="x"), [(-lr, y)])
        if s.last is not None:
            x = x.add_(s.x, alpha=self.beta).add_(s.last, alpha=-self.beta)
        ahead = torch.add(x, x - s.x, alpha=self.nu) if self.nu else None
        return AcceleratedState(x, ahead, s.x if self.beta else None, y, g)

    def early(self, s: AcceleratedState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows(("cta", self.y_verb, s.y), ("cta", "pull", self.point(s)))

    def point(self, s: AcceleratedState) -> Tensor:
        return s.x if s.s is None else s.s

    def answer(self, s: AcceleratedState) -> Tensor:
        return s.x

    def tracker(self, s: AcceleratedState) -> Tensor | None:
        return s.y


@dataclass(frozen=True)
class AcceleratedPushPull(_Accelerated):
    """AB with both: X⁺ = RS - γY + β(X - X₋), S⁺ = X⁺ + ν(X⁺ - X), Y⁺ = CY + G(S⁺) - G(S).

    Args:
        beta: β, heavy ball.
        nu: ν, Nesterov; β + ν is less than 1, and a step counts 1/(1 - β - ν)-fold.

    References:
        Nguyen, Nguyen, Nedić, Accelerated AB/Push-Pull Methods for Distributed Optimization
        over Time-Varying Directed Networks, 2023.
    """

    beta: float = 0.2
    nu: float = 0.3


@dataclass(frozen=True)
class ABm(_Accelerated):
    """AB with heavy ball: X⁺ = RX - γY + β(X - X₋), Y⁺ = CY + G⁺ - G.

    The memory of X works against agreement too: β = 0.5 can diverge on a lopsided digraph.
    Momentum on the tracker (``push-pull`` with ``momentum``) bears 0.9.

    References:
        Xin & Khan, Distributed Heavy-Ball: A Generalization and Acceleration of First-Order
        Methods With Gradient Tracking, IEEE Transactions on Automatic Control 2020.
    """

    beta: float = 0.3


@dataclass(frozen=True)
class ABN(_Accelerated):
    """AB with Nesterov: X⁺ = RS - γY, S⁺ = X⁺ + ν(X⁺ - X), Y⁺ = CY + G(S⁺) - G(S).

    References:
        Xin, Jakovetić, Khan, Distributed Nesterov Gradient Methods over Arbitrary Graphs,
        IEEE Signal Processing Letters 2019.
    """

    nu: float = 0.5


@dataclass(frozen=True)
class DSGTHB(_Accelerated):
    """DSGT with heavy ball: X⁺ = WX - γY + β(X - X₋), Y⁺ = WY + G⁺ - G, W = R.

    References:
        Sun, Hu, Xia, Li, Frontiers of Information Technology & Electronic Engineering 2021.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC
    root_weighted: ClassVar[bool] = False
    moves_by_n_pi: ClassVar[bool] = False
    y_verb: ClassVar[Verb] = "pull"

    beta: float = 0.3


class QuasiGlobalState(NamedTuple):
    """State of QG-DSGDm, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    m: Tensor | None = None  # where the models really went, per unit of step size


@dataclass(frozen=True)
class QGDSGDm(Algorithm[QuasiGlobalState]):
    """Quasi-global momentum: X⁺ = W(X - γ(βM + G)), M⁺ = μM + (1 - μ)(X - X⁺)/γ, M⁰ = 0.

    The buffer follows what the model did, its neighbours' pull included.

    Args:
        beta: β, how much of the buffer a step takes.
        mu: μ, how slowly the buffer changes; the paper takes μ = β.

    References:
        Lin, Karimireddy, Stich, Jaggi, Quasi-Global Momentum: Accelerating Decentralized Deep
        Learning on Heterogeneous Data, ICML 2021.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC

    beta: float = 0.9
    mu: float = 0.9

    def __post_init__(self) -> None:
        for name, value in (("beta", self.beta), ("mu", self.mu)):
            real(value, name, least=0, below=1, hint="try 0.9")

    @property
    def speed(self) -> float:
        return 1 / (1 - self.beta)

    def init(self, x: Tensor) -> QuasiGlobalState:
        return QuasiGlobalState(x)

    def step(self, s: QuasiGlobalState, g: Tensor, net: Mixer, lr: Scale) -> QuasiGlobalState:
        d = g if s.m is None else torch.add(g, s.m, alpha=self.beta)
        x = net.pull(s.x, (-lr, d), of="x")
        if not self.beta:
            return QuasiGlobalState(x)
        m = torch.zeros_like(x) if s.m is None else s.m
        moved = inverse(lr) * (s.x - x)
        stood = torch.as_tensor(lr, device=x.device) == 0  # then there is nothing to learn
        return QuasiGlobalState(x, torch.where(stood, m, moved.lerp(m, self.mu)))
