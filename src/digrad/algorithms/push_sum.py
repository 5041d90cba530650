"""Push-sum methods: all is pushed with C, and a column of ones pushed along undoes the bias.

The plain mean of the numerators is the answer; it moves by γ times the mean gradient.
"""

from dataclasses import dataclass
from math import ceil, log
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    FORMS,
    Algorithm,
    Change,
    Form,
    Mix,
    Mixer,
    Needs,
    Scale,
    Verb,
    add_changes,
    combine_then_adapt,
    early_rows,
)
from digrad.algorithms.inner import Momentum, TrackingMomentum
from digrad.base.checks import real, whole
from digrad.base.errors import lookup


class PushSumState(NamedTuple):
    """State of push-sum methods that track nothing."""

    x: Tensor  # numerators, (..., nodes, dim)
    w: Tensor | None = None  # push-sum weights, (..., nodes, 1); none before the first push
    m: Tensor | None = None  # momenta; none without them


class DigingState(NamedTuple):
    """State of push-sum methods that track the gradients."""

    u: Tensor  # numerators, (..., nodes, dim)
    v: Tensor  # push-sum weights, (..., nodes, 1)
    y: Tensor | None = None  # trackers, Σᵢ yᵢ = Σᵢ gᵢ; none before the first gradient
    g: Tensor | None = None  # the gradients last seen
    m: Tensor | None = None  # momenta; none without them


class SonataState(NamedTuple):
    """State of SONATA, which keeps models instead of numerators."""

    x: Tensor  # models, (..., nodes, dim)
    phi: Tensor  # push-sum weights, (..., nodes, 1)
    z: Tensor | None = None  # C diag(φ)Y: the trackers' shares that have arrived
    g: Tensor | None = None  # the gradients last seen
    m: Tensor | None = None  # momenta; none without them


def _ones(x: Tensor) -> Tensor:
    return torch.ones_like(x[..., :1])


_NEEDS = Needs.PUSH | Needs.STRONGLY_CONNECTED


@dataclass(frozen=True, kw_only=True)
class _Untracked(Momentum, Algorithm[PushSumState]):
    """What SGP and gradient-push share, momentum included; never used by itself."""

    needs: ClassVar[Needs] = _NEEDS
    overwrites: ClassVar[tuple[str, ...]] = ("x",)

    def init(self, x: Tensor) -> PushSumState:
        return self.state(PushSumState)(x)  # type: ignore[no-any-return]

    def early(self, s: PushSumState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows(("cta", "push", s.w))

    def point(self, s: PushSumState) -> Tensor:
        return s.x if s.w is None else s.x / s.w

    def answer(self, s: PushSumState) -> Tensor:
        return s.x


@dataclass(frozen=True)
class SGP(_Untracked):
    """Stochastic gradient push: X⁺ = C(X - γG), w⁺ = Cw; gradients at Z = X/w.

    Assran, Loizou, Ballas, Rabbat, ICML 2019.
    """

    def step(self, s: PushSumState, g: Tensor, net: Mixer, lr: Scale) -> PushSumState:
        w = _ones(s.x) if s.w is None else s.w
        d, kept = self.direction(s, g)
        return type(s)(net.push(s.x - lr * d, of="x"), net.push(w, of="w"), *kept)


@dataclass(frozen=True)
class LocalSGP(SGP):
    """SGP at home: K times X⁺ = X - γG, then CX and Cw; gradients at Z = X/w.

    One exchange for ``every`` = K gradients; SGP for K = 1.
    """

    every: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.every, "every", least=1, hint="4 exchanges after every fourth gradient")

    @property
    def local_steps(self) -> int:
        return self.every - 1

    def local(self, s: PushSumState, g: Tensor, lr: Scale) -> PushSumState:
        d, kept = self.direction(s, g)
        return type(s)(s.x - lr * d, s.w, *kept)


@dataclass(frozen=True)
class OSGP(_Untracked):
    """Overlap SGP, waiting for one step: X⁺ = CX - γG, w⁺ = Cw; gradients at Z = X/w.

    What a node sends is on its way while it computes its gradient. Assran, Loizou, Ballas,
    Rabbat, ICML 2019, algorithm 2 with τ = 1; X is what a node holds and what flies towards it.
    With τ gradients between two sendings it runs on a clock: ``OverlapSGP``.
    """

    def step(self, s: PushSumState, g: Tensor, net: Mixer, lr: Scale) -> PushSumState:
        w = _ones(s.x) if s.w is None else s.w
        d, kept = self.direction(s, g)
        x = combine_then_adapt(net.push, s.x, (-lr, d), of="x")
        return type(s)(x, net.push(w, of="w"), *kept)

    def early(self, s: PushSumState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows(("cta", "push", s.x), ("cta", "push", s.w))


@dataclass(frozen=True)
class GradientPush(_Untracked):
    """Gradient-push: V = CX, w⁺ = Cw, Z = V/w⁺, X⁺ = V - γG(Z).

    SGP with one push more at the start. Nedić & Olshevsky, IEEE Trans. Autom. Control 2015.
    """

    def step(self, s: PushSumState, g: Tensor, net: Mixer, lr: Scale) -> PushSumState:
        # Rows of a common start stay equal under CX/C1, so the first gradient is rightly at X.
        v, w = s.x, s.w
        d, kept = self.direction(s, g)
        if w is None:
            v, w = net.push(v, of="x"), net.push(_ones(v), of="w")
        return type(s)(net.push(v - lr * d, of="x"), net.push(w, of="w"), *kept)


@dataclass(frozen=True, kw_only=True)
class _Tracked(TrackingMomentum, Algorithm[DigingState]):
    """What Push-DIGing and its forms share, momentum included."""

    needs: ClassVar[Needs] = _NEEDS
    exact: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ("y", "u")

    def __post_init__(self) -> None:
        super().__post_init__()
        for form in self.forms:
            lookup(FORMS, form, "form")

    @property
    def forms(self) -> tuple[Form, Form]:
        """How u and Y are mixed: as its parameters say, where it has these."""
        own: Any = self
        return (own.x_form, own.y_form)

    def init(self, x: Tensor) -> DigingState:
        return self.state(DigingState)(x, _ones(x))  # type: ignore[no-any-return]

    def step(self, s: DigingState, g: Tensor, net: Mixer, lr: Scale) -> DigingState:
        return self._step(s, g, net.push, lr)

    def _step(self, s: DigingState, g: Tensor, push: Mix, lr: Scale) -> DigingState:
        u_form, y_form = self.forms
        y, d, g_kept, kept = self.track(s, g, push, y_form)
        u = FORMS[u_form](push, s.u, (-lr, d), of="u")
        return type(s)(u, push(s.v, of="v"), y, g_kept, *kept)

    def early(self, s: DigingState) -> tuple[tuple[Verb, Tensor], ...]:
        u_form, y_form = self.forms
        return early_rows((y_form, "push", s.y), (u_form, "push", s.u), ("cta", "push", s.v))

    def point(self, s: DigingState) -> Tensor:
        return s.u / s.v

    def answer(self, s: DigingState) -> Tensor:
        return s.u

    def tracker(self, s: DigingState) -> Tensor | None:
        return s.y


@dataclass(frozen=True)
class PushDiging(_Tracked):
    """Push-DIGing: u⁺ = C(u - γY), v⁺ = Cv, X⁺ = u⁺/v⁺, Y⁺ = CY + G⁺ - G.

    Nedić, Olshevsky, Shi, SIAM Journal on Optimization 2017. ``x_form`` is ``atc`` for
    C(u - γY) or ``cta`` for Cu - γY; ``y_form`` is ``cta`` as above or ``atc`` for C(Y + G⁺ - G).
    """

    x_form: Form = "atc"
    y_form: Form = "cta"


@dataclass(frozen=True)
class AddOpt(_Tracked):
    """ADD-OPT: u⁺ = Cu - γY, v⁺ = Cv, X⁺ = u⁺/v⁺, Y⁺ = CY + G⁺ - G.

    Xi, Xin, Khan, IEEE Transactions on Automatic Control 2018.
    """

    forms = ("cta", "cta")


@dataclass(frozen=True)
class PushDigingATC(_Tracked):
    """Push-DIGing, adapted twice: u⁺ = C(u - γY), v⁺ = Cv, X⁺ = u⁺/v⁺, Y⁺ = C(Y + G⁺ - G).

    Liang, Huang, Xin, Yuan, arXiv 2312.04928, 2023.
    """

    forms = ("atc", "atc")


@dataclass(frozen=True)
class MGPushDiging(_Tracked):
    """Multi-gossip Push-DIGing: u⁺ = Cᴷ(u - γY), v⁺ = Cᴷv, X⁺ = u⁺/v⁺, Y⁺ = CᴷY + G⁺ - G.

    Every gradient is the mean of K samples, so T/K steps take as many samples and pushes
    as T steps of Push-DIGing. Liang, Huang, Xin, Yuan, arXiv 2312.04928, 2023. ``rounds`` is
    K (see ``rounds_for``); ``y_form`` is ``cta`` as above or ``atc`` for Cᴷ(Y + G⁺ - G).
    """

    x_form: ClassVar[Form] = "atc"

    rounds: int = 4
    y_form: Form = "cta"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.rounds, "rounds", least=1)

    @property
    def samples(self) -> int:
        return self.rounds

    def step(self, s: DigingState, g: Tensor, net: Mixer, lr: Scale) -> DigingState:
        def push(rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
            rows = add_changes(rows, changes)
            for _ in range(self.rounds - 1):  # what comes of these replaces nothing yet
                rows = net.push(rows)
            return net.push(rows, of=of)

        return self._step(s, g, push, lr)


def rounds_for(n: int, beta_pi: float, kappa_pi: float) -> int:
    """Return K = ⌈2 (ln κ_π + ln n)/(1 - β_π)⌉, at least 1: pushes that nearly average.

    β_π and κ_π are the contraction and the skewness of C (``digraph_metrics`` of Cᵀ). Every
    Cᴷ[i, j] is then π_C[i] up to a factor 1 ± 1/(nκ_π). Liang et al. fix only the order.

    >>> rounds_for(20, beta_pi=0.8, kappa_pi=3.0)
    41
    """
    real(beta_pi, "beta_pi", least=0, below=1)
    return max(1, ceil(2 * (log(kappa_pi) + log(n)) / (1 - beta_pi)))


@dataclass(frozen=True)
class Sonata(TrackingMomentum, Algorithm[SonataState]):
    """SONATA, linear surrogate: X⁺ = (1/φ⁺) C φ(X - γY), φ⁺ = Cφ, Y⁺ = (1/φ⁺)(C φY + G⁺ - G).

    Push-DIGing with u = φX; Y tracks the mean. Scutari & Sun, Mathematical Programming 2019.
    """

    needs: ClassVar[Needs] = _NEEDS
    exact: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ("x", "z")

    def init(self, x: Tensor) -> SonataState:
        return self.state(SonataState)(x, _ones(x))  # type: ignore[no-any-return]

    def early(self, s: SonataState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows(("cta", "push", s.phi))

    def step(self, s: SonataState, g: Tensor, net: Mixer, lr: Scale) -> SonataState:
        momenta = self.follows_momenta
        new, last = self.tracked_rows(s, self.add_weight_decay(g, s))
        y = new if s.z is None or last is None else (s.z + new - last) / s.phi
        d, kept = (y, (new,)) if momenta else self.update(s, y)
        phi = net.push(s.phi, of="phi")
        x = net.push(s.phi * (s.x - lr * d), of="x") / phi
        return type(s)(x, phi, net.push(s.phi * y, of="z"), None if momenta else new, *kept)

    def answer(self, s: SonataState) -> Tensor:
        return s.phi * s.x

    def tracker(self, s: SonataState) -> Tensor | None:
        return s.z
