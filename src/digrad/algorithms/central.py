"""What a server would do: the yardstick for linear speedup."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import Mixer, Needs, Traffic


class CentralState(NamedTuple):
    """State of centralized SGD."""

    x: Tensor  # the one model, in every row of (..., nodes, dim)


@dataclass(frozen=True)
class Centralized:
    """Stochastic gradient descent on the mean of all gradients: X⁺ = X - γ(1/n)11ᵀG.

    Nothing travels over the network's links, so its traffic is 0.
    """

    needs: ClassVar[Needs] = Needs.MEAN
    exact: ClassVar[bool] = True
    memory: ClassVar[int] = 1
    root_weighted: ClassVar[bool] = False
    moves_by_n_pi: ClassVar[bool] = False

    @property
    def traffic(self) -> Traffic:
        return Traffic()

    @property
    def samples(self) -> int:
        return 1

    def init(self, x: Tensor) -> CentralState:
        return CentralState(x)

    def step(self, s: CentralState, g: Tensor, net: Mixer, lr: float | Tensor) -> CentralState:
        return CentralState(s.x - lr * net.mean(g))

    def point(self, s: CentralState) -> Tensor:
        return s.x

    def center(self, s: CentralState) -> Tensor:
        return s.x

    def tracker(self, s: CentralState) -> Tensor | None:
        return None
