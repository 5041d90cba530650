"""B-CPP on a clock: a node that wakes broadcasts a small message, asynchronously."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous, Inbox, OwnWeights
from digrad.algorithms.compression.levels import Nearest
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.contract import Needs, Scale
from digrad.base.errors import ParameterError

BROADCAST = Compression(Nearest(bits=4), push_scheme="direct")


class BroadcastState(NamedTuple):
    """State of B-CPP."""

    x: Tensor  # models
    y: Tensor  # trackers
    g: Tensor  # the gradients last seen
    h: Tensor  # what neighbours remember of the model


class BroadcastParcel(NamedTuple):
    """What B-CPP sends, as receivers make it out: x̂ of q and what they remember."""

    x: Tensor
    c: Tensor


@dataclass(frozen=True)
class BroadcastCPP(Asynchronous[BroadcastState, BroadcastParcel]):
    """B-CPP: a node that wakes broadcasts q = Q(x - h) of its model and c = Q(y) of its tracker.

    yⱼ⁺ = yⱼ + g⁺ - g, of which it keeps all but ζ(1 - C[j,j]) c; then xⱼ⁺ = xⱼ - γyⱼ⁺ and
    x̂ⱼ = hⱼ + q, hⱼ⁺ = hⱼ + aq. A receiver does xᵢ⁺ = xᵢ + ζR[i,j] (x̂ⱼ - xᵢ), with the newest of
    each neighbour that was heard of since, and yᵢ⁺ = yᵢ + ζC[i,j] c, with each. No message may be
    lost. With synchronous nodes and plain messages it is ``push-pull``. Our reading of the
    broadcast form of CPP's paper, whose text was not at hand.

    Args:
        compress: Q, ζ and a; Q must not draw.
    """

    compress: Compression = BROADCAST

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH
    exact: ClassVar[bool] = True
    adds: ClassVar[tuple[str, ...]] = ("c",)

    def __post_init__(self) -> None:
        own = self.compress
        if own.compressor.random:
            what = f"{own.compressor!r} draws random numbers for steps, and nodes that wake by "
            what += "themselves have none in common"
            raise ParameterError(what, hint='use "nearest", "top-k", "sign" or "bf16"')
        if (own.scheme, own.scheme_of("push"), own.decay) != ("difference", "direct", 1.0):
            what = "B-CPP sends differences of models and trackers as they are, without a decay"
            raise ParameterError(what, hint="drop scheme, push_scheme and decay")

    def init(self, x: Tensor) -> BroadcastState:
        self.compress.check(x.shape[-1])
        none = torch.zeros_like(x)
        return BroadcastState(x, none, none, x if self.compress.start == "common" else none)

    def parcel(self, s: BroadcastState) -> BroadcastParcel:
        return BroadcastParcel(s.h, torch.zeros_like(s.x))

    def give(
        self, s: BroadcastState, g: Tensor, inbox: Inbox, lr: Scale
    ) -> tuple[BroadcastState, BroadcastParcel]:
        s, c = self.share_tracker(s, g, inbox)
        s, x = self.move(self.receive(s, inbox), lr)
        return s, BroadcastParcel(x, c)

    def share_tracker(
        self, s: BroadcastState, g: Tensor, own: OwnWeights
    ) -> tuple[BroadcastState, Tensor]:
        """Track the new gradient, and cut off what is broadcast of the tracker."""
        y = s.y + g - s.g
        c = self.compress.zeta(y.shape[-1]) * self._small(y)
        return s._replace(y=y - (1 - own.kept) * c, g=g), c

    def receive(self, s: BroadcastState, inbox: Inbox) -> BroadcastState:
        """Add what has come in since."""
        x, share = inbox.news("x")
        zeta = self.compress.zeta(s.x.shape[-1])
        return s._replace(x=s.x + zeta * (x - share * s.x), y=s.y + inbox.pushed("c"))

    def move(self, s: BroadcastState, lr: Scale) -> tuple[BroadcastState, Tensor]:
        """Take a step, and return what is broadcast of the model."""
        x = s.x - lr * s.y
        q = self._small(x - s.h)
        return s._replace(x=x, h=s.h + self.compress.gain(x.shape[-1]) * q), s.h + q

    def _small(self, rows: Tensor) -> Tensor:
        compressor = self.compress.compressor
        return compressor.dense(compressor.parts(rows, None), rows, None)

    def take(self, s: BroadcastState, inbox: Inbox) -> BroadcastState:
        return s  # give has received, so that the model leaves before the gradient is computed

    def tracker(self, s: BroadcastState) -> Tensor:
        return s.y

    def row_bits(self, dim: int, each: int) -> int:
        return self.compress.compressor.row_bits(dim, each)

    def conserved(self, s: BroadcastState, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        return {"c": (s.y, s.g)}
