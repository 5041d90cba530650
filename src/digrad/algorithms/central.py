"""What a server would do: the yardstick for linear speedup."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import Algorithm, Mixer, Needs, Scale


class CentralState(NamedTuple):
    """State of centralized SGD."""

    x: Tensor  # the one model, in every row of (..., nodes, dim)


@dataclass(frozen=True)
class Centralized(Algorithm[CentralState]):
    """Stochastic gradient descent on the mean of all gradients: X⁺ = X - γ(1/n)11ᵀG.

    Nothing travels over the network's links, so its traffic is 0.
    """

    needs: ClassVar[Needs] = Needs.MEAN
    exact: ClassVar[bool] = True

    def init(self, x: Tensor) -> CentralState:
        return CentralState(x)

    def step(self, s: CentralState, g: Tensor, net: Mixer, lr: Scale) -> CentralState:
        return CentralState(s.x - lr * net.mean(g))
