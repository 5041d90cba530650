"""Asynchronous push-sum: RASGP, AsySPA, and overlap SGP on a clock.

Numerators and weights travel as shares of a column-stochastic C, and gradients are taken at
their quotients. RASGP sends running sums, the others the shares themselves.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous, Inbox, OwnWeights
from digrad.algorithms.contract import Needs, Scale
from digrad.base.checks import real, whole
from digrad.base.errors import lookup

Rule = Literal["patient", "printed"]
RULES: dict[str, bool] = {"patient": True, "printed": False}


class RASGPState(NamedTuple):
    """State of RASGP."""

    x: Tensor  # numerators
    y: Tensor  # push-sum weights, one number per node
    phi_x: Tensor  # Σ of all numerators that were shared out
    phi_y: Tensor  # Σ of all weights that were
    slot: Tensor  # of the clock, at the last give
    heard: Tensor  # whether anything has come in since the last sharing out


class RASGPParcel(NamedTuple):
    """What RASGP sends."""

    phi_x: Tensor
    phi_y: Tensor


@dataclass(frozen=True)
class RASGP(Asynchronous[RASGPState, RASGPParcel]):
    """RASGP: x̂ᵢ = xᵢ - βg, φᵢ⁺ = φᵢ + x̂ᵢ, xᵢ⁺ = C[i,i] x̂ᵢ + Σⱼ C[i,j] Δφⱼ; gradients at x/y.

    The weights y travel in the same way. β adds up the steps of all slots of the clock since
    the node acted last, so slow nodes take longer steps. With synchronous nodes it is SGP.
    Spiridonoff, Olshevsky, Paschalidis, JMLR 2020.

    A node that acts often and hears little shares its weight away until the quotient means
    nothing. ``rule`` is ``patient``, which shares out only if something has come in since the
    last time and otherwise sends the old sums again, or ``printed``, as in the paper.
    ``slot`` is in units of the clock.
    """

    rule: Rule = "patient"
    slot: float = 1.0

    needs: ClassVar[Needs] = Needs.PUSH | Needs.STRONGLY_CONNECTED
    sums: ClassVar[tuple[str, ...]] = ("phi_x", "phi_y")

    def __post_init__(self) -> None:
        lookup(RULES, self.rule, "rule")
        real(self.slot, "slot", above=0, hint="about the time of a gradient")

    def init(self, x: Tensor) -> RASGPState:
        one = torch.ones_like(x[..., :1])
        none = torch.zeros_like(one)
        fresh = torch.ones_like(one, dtype=torch.bool)  # the first give shares out
        return RASGPState(x, one, torch.zeros_like(x), none, none.long(), fresh)

    def parcel(self, s: RASGPState) -> RASGPParcel:
        return RASGPParcel(s.phi_x, s.phi_y)

    def give(
        self, s: RASGPState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[RASGPState, RASGPParcel]:
        slot = (inbox.now / self.slot).floor().long().expand_as(s.slot)
        x = s.x - inbox.steps(s.slot + 1, slot) * g
        split = s.heard if RULES[self.rule] else torch.ones_like(s.heard)
        sent = RASGPParcel(
            torch.where(split, s.phi_x + x, s.phi_x), torch.where(split, s.phi_y + s.y, s.phi_y)
        )
        left = torch.where(split, inbox.kept, torch.ones_like(inbox.kept))
        return RASGPState(left * x, left * s.y, *sent, slot, s.heard & ~split), sent

    def take(self, s: RASGPState, inbox: Inbox) -> RASGPState:
        x, y = inbox.pushed("phi_x"), inbox.pushed("phi_y")
        return s._replace(x=s.x + x, y=s.y + y, heard=s.heard | (y > 0))

    def point(self, s: RASGPState) -> Tensor:
        return s.x / s.y

    def conserved(self, s: RASGPState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"phi_y": (s.y, torch.ones_like(s.y))}


class AsySPAState(NamedTuple):
    """State of AsySPA."""

    x: Tensor  # numerators
    y: Tensor  # push-sum weights, one number per node
    next: Tensor  # l: the first step that the next gradient stands for, counted from 1
    top: Tensor  # L: the last one
    sent: Tensor  # the l that neighbours received last


class AsySPAParcel(NamedTuple):
    """What AsySPA sends."""

    x: Tensor
    y: Tensor
    next: Tensor


@dataclass(frozen=True)
class AsySPA(Asynchronous[AsySPAState, AsySPAParcel]):
    """AsySPA: x̂ᵢ = xᵢ - (γ_l + ... + γ_L)g, xᵢ⁺ = C[i,i] x̂ᵢ + Σⱼ C[i,j] x̂ⱼ; gradients at x/y.

    The weights y travel in the same way; L is the largest l heard of, and l = L + 1 after a
    gradient, so that all nodes take the same total step whatever their speed. A node that has
    heard nothing shares nothing out. No message may be lost. With synchronous nodes it is SGP;
    exact with steps that shrink. Zhang & You, IEEE Transactions on Automatic Control 2020.
    """

    needs: ClassVar[Needs] = Needs.PUSH | Needs.STRONGLY_CONNECTED
    adds: ClassVar[tuple[str, ...]] = ("x", "y")

    def init(self, x: Tensor) -> AsySPAState:
        one = torch.ones_like(x[..., :1])
        return AsySPAState(x, one, one.long(), one.long(), one.long())

    def parcel(self, s: AsySPAState) -> AsySPAParcel:
        return AsySPAParcel(torch.zeros_like(s.x), torch.zeros_like(s.y), s.sent)

    def give(
        self, s: AsySPAState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[AsySPAState, AsySPAParcel]:
        x = s.x - inbox.steps(s.next, s.top) * g
        split = (inbox.pushed("y") > 0) | (s.next == 1)  # the first give shares out
        count = s.top + 1
        sent_l, none = torch.where(split, count, s.sent), torch.zeros_like(s.y)
        sent = AsySPAParcel(torch.where(split, x, none), torch.where(split, s.y, none), sent_l)
        left = torch.where(split, inbox.kept, torch.ones_like(inbox.kept))
        return AsySPAState(left * x, left * s.y, count, count, sent_l), sent

    def take(self, s: AsySPAState, inbox: Inbox) -> AsySPAState:
        x, y = s.x + inbox.pushed("x"), s.y + inbox.pushed("y")
        return s._replace(x=x, y=y, top=torch.maximum(s.next, inbox.largest("next")))

    def point(self, s: AsySPAState) -> Tensor:
        return s.x / s.y

    def conserved(self, s: AsySPAState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"y": (s.y, torch.ones_like(s.y))}


class OverlapState(NamedTuple):
    """State of overlap SGP."""

    x: Tensor  # numerators: what a node holds, without what flies towards it
    w: Tensor  # push-sum weights of the same
    done: Tensor  # gradients so far


class OverlapParcel(NamedTuple):
    """What overlap SGP sends."""

    x: Tensor
    w: Tensor


@dataclass(frozen=True)
class OverlapSGP(Asynchronous[OverlapState, OverlapParcel]):
    """OSGP: xᵢ⁺ = xᵢ - γg; every τ gradients x̂ᵢ = xᵢ⁺ + Σⱼ C[i,j] x̂ⱼ, of which C[i,i] x̂ᵢ stays.

    The weights w travel in the same way; gradients at x/w. The sum is over all shares that have
    arrived since the last exchange. A node waits only for shares that are older than τ of its
    gradients: its m-th exchange for the (m-1)-th of its in-neighbours. No message may be lost.
    With synchronous nodes and τ = 1 it is ``osgp`` without a clock, after one local gradient.
    Assran, Loizou, Ballas, Rabbat, ICML 2019, algorithm 2.

    Args:
        every: τ, gradients from one exchange to the next.
    """

    every: int = 1

    needs: ClassVar[Needs] = Needs.PUSH | Needs.STRONGLY_CONNECTED
    adds: ClassVar[tuple[str, ...]] = ("x", "w")
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self.every, "every", least=1, hint="4 exchanges after every fourth gradient")

    def init(self, x: Tensor) -> OverlapState:
        one = torch.ones_like(x[..., :1])
        return OverlapState(x, one, torch.zeros_like(one, dtype=torch.int64))

    def parcel(self, s: OverlapState) -> OverlapParcel:
        return OverlapParcel(torch.zeros_like(s.x), torch.zeros_like(s.w))

    def give(
        self, s: OverlapState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[OverlapState, OverlapParcel]:
        done = s.done + 1
        due, none = done % self.every == 0, torch.zeros_like(s.w)
        x, w = s.x - lr * g + inbox.pushed("x"), s.w + inbox.pushed("w")
        sent = OverlapParcel(torch.where(due, x, none), torch.where(due, w, none))
        left = torch.where(due, inbox.kept, torch.ones_like(inbox.kept))
        return OverlapState(left * x, left * w, done), sent

    def take(self, s: OverlapState, inbox: Inbox) -> OverlapState:
        return s  # what has arrived was shared out again by give

    def point(self, s: OverlapState) -> Tensor:
        return s.x / s.w

    def conserved(self, s: OverlapState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"w": (s.w, torch.ones_like(s.w))}
