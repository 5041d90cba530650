"""Push-Pull and its relatives: models are pulled with R, gradient trackers pushed with C.

All of them are X⁺ = R(X - γY) or RX - γY together with Y⁺ = C(Y + G⁺ - G) or CY + G⁺ - G,
from Y⁰ = G⁰. Step t is handed Gᵗ, so it first makes Yᵗ and then Xᵗ⁺¹.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    FORMS,
    Algorithm,
    Form,
    Mixer,
    Needs,
    Scale,
    Verb,
    early_rows,
)
from digrad.algorithms.inner import TrackingMomentum
from digrad.base.errors import lookup


class TrackingState(NamedTuple):
    """State of gradient-tracking methods, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    y: Tensor | None = None  # trackers, Σᵢ yᵢ = Σᵢ gᵢ; none before the first gradient
    g: Tensor | None = None  # the gradients last seen
    m: Tensor | None = None  # momenta; none without them


@dataclass(frozen=True, kw_only=True)
class _Family(TrackingMomentum, Algorithm[TrackingState]):
    """What all of them share, momentum included: see ``TrackingMomentum``."""

    exact: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ("y", "x")
    root_weighted: ClassVar[bool] = True
    moves_by_n_pi: ClassVar[bool] = True
    y_verb: ClassVar[Verb] = "push"  # how trackers travel; models are pulled

    def __post_init__(self) -> None:
        super().__post_init__()
        for form in self.forms:
            lookup(FORMS, form, "form")

    @property
    def forms(self) -> tuple[Form, Form]:
        """How X and Y are mixed: as its parameters say, where it has these."""
        own: Any = self
        return (own.x_form, own.y_form)

    def init(self, x: Tensor) -> TrackingState:
        return self.state(TrackingState)(x)  # type: ignore[no-any-return]

    def step(self, s: TrackingState, g: Tensor, net: Mixer, lr: Scale) -> TrackingState:
        x_form, y_form = self.forms
        y, d, g_kept, kept = self.track(s, g, getattr(net, self.y_verb), y_form)
        return type(s)(FORMS[x_form](net.pull, s.x, (-lr, d), of="x"), y, g_kept, *kept)

    def early(self, s: TrackingState) -> tuple[tuple[Verb, Tensor], ...]:
        x_form, y_form = self.forms
        return early_rows((y_form, self.y_verb, s.y), (x_form, "pull", s.x))

    def tracker(self, s: TrackingState) -> Tensor | None:
        return s.y

    def handover(self, s: TrackingState) -> Tensor | None:
        # The invariant is Σ y = Σ g: it holds on if a neighbour adds y - g of a node that leaves.
        last = s.m if self.follows_momenta else s.g
        return torch.zeros_like(s.x) if s.y is None or last is None else s.y - last

    def inherit(self, s: TrackingState, owed: Tensor) -> TrackingState:
        return s if s.y is None else s._replace(y=s.y + owed)


@dataclass(frozen=True)
class PushPull(_Family):
    """Stochastic Push-Pull: X⁺ = R(X - γY), Y⁺ = C(Y + G⁺ - G)  (eq. 2).

    Needs no more than a common root. π_Rᵀ X moves by nπ times the mean gradient once the
    trackers have settled, so its fair step is γ/(nπ).

    Args:
        x_form: ``atc`` for R(X - γY), ``cta`` for RX - γY.
        y_form: ``atc`` for C(Y + G⁺ - G), which the paper analyses; ``cta`` for
            CY + G⁺ - G, whose message can leave before the new gradient is known (E-2).

    References:
        You & Pu, Stochastic Push-Pull for Decentralized Nonconvex Optimization, 2025.
    """

    x_form: Form = "atc"
    y_form: Form = "atc"


@dataclass(frozen=True)
class OriginalPushPull(_Family):
    """Push-Pull as first published: X⁺ = R(X - γY), Y⁺ = CY + G⁺ - G.

    References:
        Pu, Shi, Xu, Nedić, Push-Pull Gradient Methods for Distributed Optimization in
        Networks, IEEE Transactions on Automatic Control 2021.
    """

    forms = ("atc", "cta")


@dataclass(frozen=True)
class AB(_Family):
    """AB as first published, A = R and B = C: X⁺ = RX - γY, Y⁺ = C(Y + G⁺ - G).

    References:
        Xin & Khan, A Linear Algorithm for Optimization over Directed Graphs with Geometric
        Convergence, IEEE Control Systems Letters 2018.
    """

    forms = ("cta", "atc")


@dataclass(frozen=True)
class SAB(_Family):
    """AB with stochastic gradients, the same recursion: X⁺ = RX - γY, Y⁺ = C(Y + G⁺ - G).

    References:
        Xin, Sahu, Khan, Kar, Distributed Stochastic Optimization with Gradient Tracking
        over Strongly-Connected Networks, CDC 2019.
    """

    forms = ("cta", "atc")


@dataclass(frozen=True)
class ABCta(_Family):
    """AB as most later papers write it: X⁺ = RX - γY, Y⁺ = CY + G⁺ - G.

    Models and trackers can leave in the same round.

    References:
        Saadatniaki, Xin, Khan, Decentralized Optimization over Time-Varying Directed Graphs
        with Row and Column-Stochastic Matrices, IEEE Transactions on Automatic Control 2020.
    """

    forms = ("cta", "cta")


@dataclass(frozen=True)
class BTPP(_Family):
    """B-ary tree push-pull: X⁺ = R(X - γY), Y⁺ = CY + G⁺ - G on a zero-one tree, C = Rᵀ.

    Every node copies its parent's X - γY and hands its whole tracker up; the root's model
    is the answer, nπ = n.

    References:
        You & Pu, B-ary Tree Push-Pull Method is Provably Efficient for Decentralized
        Learning on Heterogeneous Data, NeurIPS 2024.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH | Needs.TREES | Needs.ONE_TREE

    forms = ("atc", "cta")


@dataclass(frozen=True)
class STPP(_Family):
    """Spanning-tree push-pull: X⁺ = R(X - γY), Y⁺ = CY + G⁺ - G on two zero-one trees.

    The recursion of BTPP; the tree down which models flow and the one up which trackers
    flow share their root only.

    References:
        You & Pu, Distributed Learning over Arbitrary Topology: Linear Speed-Up with
        Polynomial Transient Time, 2025.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH | Needs.TREES

    forms = ("atc", "cta")


_DSGT_FORMS: dict[str, tuple[Form, Form]] = {
    "atc": ("atc", "atc"),
    "semi-atc": ("atc", "cta"),
    "diging": ("cta", "cta"),
}


@dataclass(frozen=True)
class DSGT(_Family):
    """Distributed stochastic gradient tracking: X⁺ = W(X - γY), Y⁺ = W(Y + G⁺ - G), W = R.

    Both are pulled, so only R has to be doubly stochastic.

    Args:
        form: ``atc`` as above, which is Stochastic Push-Pull with R = C = W; ``semi-atc``
            for Y⁺ = WY + G⁺ - G, as Pu & Nedić have it; ``diging`` for X⁺ = WX - γY too.

    References:
        Pu & Nedić, Distributed Stochastic Gradient Tracking Methods, Mathematical
        Programming 2021. Nedić, Olshevsky, Shi, SIAM Journal on Optimization 2017 (DIGing).
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC
    y_verb: ClassVar[Verb] = "pull"
    root_weighted: ClassVar[bool] = False
    moves_by_n_pi: ClassVar[bool] = False

    form: Literal["atc", "semi-atc", "diging"] = "atc"

    @property
    def forms(self) -> tuple[Form, Form]:
        return lookup(_DSGT_FORMS, self.form, "form")


@dataclass(frozen=True)
class MomentumTracking(_Family):
    """Momentum Tracking: M⁺ = βM + G, X⁺ = WX - γY, Y⁺ = WY + M⁺ - M, from Y⁰ = M⁰ = G⁰.

    DIGing that tracks momenta. The paper's variables are M and c = M - Y; its code starts from
    (G - mean G)/(1 - β), which takes a sum over all nodes, here c starts at 0.

    References:
        Takezawa, Bao, Niwa, Sato, Yamada, Momentum Tracking: Momentum Acceleration for
        Decentralized Deep Learning on Heterogeneous Data, TMLR 2023.
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC
    y_verb: ClassVar[Verb] = "pull"
    root_weighted: ClassVar[bool] = False
    moves_by_n_pi: ClassVar[bool] = False

    momentum: float = 0.9
    placement: Literal["tracker", "tracked"] = "tracked"

    forms = ("cta", "cta")
