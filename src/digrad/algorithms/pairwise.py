"""Methods in which two nodes meet and average, by themselves: AD-PSGD and SwarmSGD.

Averaging a pair is symmetric, so links must go both ways. A meeting is atomic: no other node
reads or writes the two rows meanwhile.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import MessageCounts, Method, Needs, S, Scale
from digrad.base.checks import whole


class Pairwise(Method[S]):
    """A pairwise method: ``init``, ``meet``, and ``local`` for gradients in between."""

    needs: ClassVar[Needs] = Needs.PULL | Needs.STRONGLY_CONNECTED | Needs.TWO_WAY
    sending_hint: ClassVar[str] = " each way when two meet"
    every: int = 1  # gradients of a node from one meeting to the next
    waits: ClassVar[bool] = False  # whether a node that wants to meet waits for the other one

    def messages(self) -> MessageCounts:
        return MessageCounts(pull_vectors=1)

    @abstractmethod
    def meet(self, s: S, other: S, g: Tensor, lr: Scale) -> tuple[S, S]:
        """Nodes that have their gradients g, taken at ``point(s)``, meet others."""


class ADPSGDState(NamedTuple):
    """State of AD-PSGD."""

    read: Tensor  # the model as it was when the gradient was begun
    x: Tensor  # the model now


@dataclass(frozen=True)
class ADPSGD(Pairwise[ADPSGDState]):
    """AD-PSGD: xᵢ, xⱼ ← (xᵢ + xⱼ)/2 with a neighbour at random, then xᵢ ← xᵢ - γg.

    The gradient was begun at the model of that time, and others may have averaged with i since.
    Fast nodes step more often, so unequal speeds move the answer. Lian, Zhang, Zhang, Liu,
    ICML 2018.
    """

    def init(self, x: Tensor) -> ADPSGDState:
        return ADPSGDState(x, x)

    def meet(
        self, s: ADPSGDState, other: ADPSGDState, g: Tensor, lr: Scale
    ) -> tuple[ADPSGDState, ADPSGDState]:
        middle = (s.x + other.x) / 2
        x = middle - lr * g
        return ADPSGDState(x, x), other._replace(x=middle)

    def answer(self, s: ADPSGDState) -> Tensor:
        return s.x


class SwarmState(NamedTuple):
    """State of SwarmSGD."""

    x: Tensor


@dataclass(frozen=True)
class SwarmSGD(Pairwise[SwarmState]):
    """SwarmSGD, blocking: H times xᵢ ← xᵢ - γg at home, then xᵢ, xⱼ ← (xᵢ + xⱼ)/2.

    A node that has done ``every`` = H steps meets a node that waits for it, or else waits for a
    neighbour at random. Nadiradze et al., NeurIPS 2021.
    """

    every: int = 3

    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self.every, "every", least=1, hint="1 meets after every gradient")

    def init(self, x: Tensor) -> SwarmState:
        return SwarmState(x)

    def local(self, s: SwarmState, g: Tensor, lr: Scale) -> SwarmState:
        return SwarmState(s.x - lr * g)

    def meet(
        self, s: SwarmState, other: SwarmState, g: Tensor, lr: Scale
    ) -> tuple[SwarmState, SwarmState]:
        middle = SwarmState((s.x - lr * g + other.x) / 2)
        return middle, middle
