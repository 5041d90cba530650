"""Overlap SGP on a clock: messages fly while gradients are computed; only old ones are awaited."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous, Inbox, OwnWeights
from digrad.algorithms.contract import Needs, Scale, check_every


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
    With everybody in step and τ = 1 it is ``osgp`` without a clock, after one gradient at home.
    Assran, Loizou, Ballas, Rabbat, ICML 2019, algorithm 2.

    Args:
        every: τ, gradients from one exchange to the next.
    """

    every: int = 1

    needs: ClassVar[Needs] = Needs.PUSH | Needs.STRONGLY_CONNECTED
    adds: ClassVar[tuple[str, ...]] = ("x", "w")
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_every(self.every)

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
