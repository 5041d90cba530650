"""Rounds of K gradients at home and one exchange, exact all the same.

Each node corrects its gradients by cᵢ, Σᵢ cᵢ = 0, which comes to -∇fᵢ(x*): with it all nodes
head for the same point. A round from X is

    K times x⁺ = x - γ(G(x) + c);   Z = (X - x)/(Kγ);   c⁺ = c - Z + CZ;   X⁺ = R(X - σKγZ)

so that Z⁺ = CZ + Ḡ⁺ - Ḡ tracks the mean gradient Ḡ of a round.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import Algorithm, Mixer, Needs, Scale, Verb
from digrad.algorithms.inner import inverse
from digrad.base.checks import real, whole


class RoundState(NamedTuple):
    """State of methods with corrected steps at home, each of shape (..., nodes, dim)."""

    x: Tensor  # models, within a round
    begun: Tensor  # X, the models when the round began
    c: Tensor | None = None  # corrections, Σᵢ cᵢ = 0; none before the first exchange


class _Rounds(Algorithm[RoundState]):
    exact: ClassVar[bool] = True
    verb: ClassVar[Verb] = "push"  # how Z travels

    every: int
    outer: float

    def __post_init__(self) -> None:
        whole(self.every, "every", least=1, hint="4 exchanges after every fourth gradient")
        real(self.outer, "outer", above=0, most=1, hint="1 takes the whole of what a round found")

    @property
    def local_steps(self) -> int:
        return self.every - 1

    def init(self, x: Tensor) -> RoundState:
        return RoundState(x, x)

    def local(self, s: RoundState, g: Tensor, lr: Scale) -> RoundState:
        return RoundState(s.x - lr * (g if s.c is None else g + s.c), s.begun, s.c)

    def step(self, s: RoundState, g: Tensor, net: Mixer, lr: Scale) -> RoundState:
        moved = s.begun - self.local(s, g, lr).x  # KγZ
        z = inverse(lr) / self.every * moved
        z_mixed = getattr(net, self.verb)(z, of="c")
        c = z_mixed - z if s.c is None else z_mixed - z + s.c
        x = net.pull(s.begun, (-self.outer, moved), of="x")
        return RoundState(x, x, c)


@dataclass(frozen=True)
class KStepPushPull(_Rounds):
    """Push-Pull with K gradients a round: Z is pushed with C, X - KγZ pulled with R.

    K = 1 is ``push-pull-original``. K-GT on a pair of matrices, derived from it here; not
    claimed to be anybody's published method. γ/(nπ) is the fair step of what a round adds up to;
    the steps at home take the same.

    Args:
        every: K, gradients from one exchange to the next.
        outer: σ, how much of what a round found is taken; at most 1.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH
    root_weighted: ClassVar[bool] = True
    moves_by_n_pi: ClassVar[bool] = True

    every: int = 4
    outer: float = 1.0


@dataclass(frozen=True)
class KGT(_Rounds):
    """K-GT: gradient tracking with K steps at home: c⁺ = c - Z + WZ, X⁺ = W(X - σKγZ), W = R.

    Corrections start at 0; the paper starts from mean G - G.

    Args:
        every: K, gradients from one exchange to the next.
        outer: σ, how much of what a round found is taken; at most 1.

    References:
        Liu, Lin, Koloskova, Stich, Decentralized Gradient Tracking with Local Steps,
        Optimization Methods and Software 2024.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC
    verb: ClassVar[Verb] = "pull"

    every: int = 4
    outer: float = 1.0
