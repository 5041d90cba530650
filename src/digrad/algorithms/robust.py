"""Asynchronous gradient tracking: R-FAST, ASY-SONATA and APPG.

Trackers travel as shares of a column-stochastic C, models are averaged with R. R-FAST sends
running sums, so a lost message only postpones its share; APPG sends the shares themselves.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous, Inbox, OwnWeights
from digrad.algorithms.contract import Needs, Scale


class RFastState(NamedTuple):
    """State of R-FAST."""

    x: Tensor  # models; between give and take v = x - γz, which neighbours average
    z: Tensor  # trackers: the shares kept
    g: Tensor  # the gradients last seen
    rho: Tensor  # Σ of all trackers before they were shared out


class RFastParcel(NamedTuple):
    """What R-FAST sends."""

    v: Tensor
    rho: Tensor


@dataclass(frozen=True)
class RFast(Asynchronous[RFastState, RFastParcel]):
    """R-FAST: ẑᵢ = zᵢ + Σⱼ C[i,j] Δρⱼ + g⁺ - g, zᵢ⁺ = C[i,i] ẑᵢ, xᵢ⁺ = Σⱼ R[i,j] (xⱼ - γzⱼ⁺).

    ρⱼ is the running sum of all ẑⱼ, of which a receiver uses the growth Δρⱼ since it looked
    last: lost, late and reordered messages only postpone. With synchronous nodes it is
    push-pull (atc, cta) with steps γC[i,i]. Zhu, Tian, Huang, Xu, He, IEEE Trans. Signal and
    Information Processing over Networks 2024.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH
    exact: ClassVar[bool] = True
    sums: ClassVar[tuple[str, ...]] = ("rho",)

    def init(self, x: Tensor) -> RFastState:
        none = torch.zeros_like(x)
        return RFastState(x, none, none, none)

    def parcel(self, s: RFastState) -> RFastParcel:
        return RFastParcel(s.x, s.rho)

    def give(
        self, s: RFastState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[RFastState, RFastParcel]:
        whole = torch.sub(g, s.g).add_(s.z).add_(inbox.pushed("rho"))
        z, rho = inbox.kept * whole, s.rho + whole
        v = torch.addcmul(s.x, z, lr, value=-1) if isinstance(lr, Tensor) else s.x - lr * z
        return RFastState(v, z, g, rho), RFastParcel(v, rho)

    def take(self, s: RFastState, inbox: Inbox) -> RFastState:
        return s._replace(x=torch.addcmul(inbox.pulled("v"), inbox.own, s.x))

    def tracker(self, s: RFastState) -> Tensor:
        return s.z

    def conserved(self, s: RFastState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"rho": (s.z, s.g)}


@dataclass(frozen=True)
class AsySonata(RFast):
    """ASY-SONATA, linear surrogate: the recursion of R-FAST on strongly connected graphs.

    Tian, Sun, Scutari, IEEE Transactions on Automatic Control 2020.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH | Needs.STRONGLY_CONNECTED


class APPGState(NamedTuple):
    """State of APPG."""

    x: Tensor  # models
    y: Tensor  # trackers, before they are shared out
    d: Tensor  # γy, by which the next take moves
    g: Tensor  # the gradients last seen


class APPGParcel(NamedTuple):
    """What APPG sends."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class APPG(Asynchronous[APPGState, APPGParcel]):
    """APPG: yᵢ⁺ = C[i,i] yᵢ + Σⱼ C[i,j] yⱼ + g⁺ - g, xᵢ⁺ = Σⱼ R[i,j] xⱼ - γyᵢ⁺.

    The sum is over all shares that have arrived since; none may be lost. With synchronous
    nodes it is ab-cta. Zhang & You, arXiv 1901.08215, but for the buffer of models, of which
    the newest from each neighbour is averaged here.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH
    exact: ClassVar[bool] = True
    adds: ClassVar[tuple[str, ...]] = ("y",)

    def init(self, x: Tensor) -> APPGState:
        none = torch.zeros_like(x)
        return APPGState(x, none, none, none)

    def parcel(self, s: APPGState) -> APPGParcel:
        return APPGParcel(s.x, s.y)

    def give(
        self, s: APPGState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[APPGState, APPGParcel]:
        y = inbox.pushed("y") + inbox.kept * s.y + g - s.g
        return APPGState(s.x, y, lr * y, g), APPGParcel(s.x, y)

    def take(self, s: APPGState, inbox: Inbox) -> APPGState:
        return s._replace(x=inbox.pulled("x") + inbox.own * s.x - s.d)

    def tracker(self, s: APPGState) -> Tensor:
        return s.y

    def conserved(self, s: APPGState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"y": (inbox.kept * s.y, s.g)}
