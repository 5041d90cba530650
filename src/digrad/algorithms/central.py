"""What a server would do: the yardstick for linear speedup."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import Algorithm, Mixer, Needs, Scale
from digrad.algorithms.inner import Momentum


class CentralState(NamedTuple):
    """State of centralized SGD."""

    x: Tensor  # the one model, in every row of (..., nodes, dim)
    m: Tensor | None = None  # its momentum; none without it


@dataclass(frozen=True)
class Centralized(Momentum, Algorithm[CentralState]):
    """Stochastic gradient descent on the mean of all gradients: X⁺ = X - γ(1/n)11ᵀG.

    Nothing travels over the network's links, so its traffic is 0.
    """

    needs: ClassVar[Needs] = Needs.MEAN
    exact: ClassVar[bool] = True

    def init(self, x: Tensor) -> CentralState:
        made: CentralState = self.state(CentralState)(x)
        return made

    def step(self, s: CentralState, g: Tensor, net: Mixer, lr: Scale) -> CentralState:
        d, kept = self.update(s, self.regularized(net.mean(g), s, self.point), self.point)
        return type(s)(s.x - lr * d, *kept)
