"""Methods of one weight matrix, W = R, which is only pulled.

Diffusion takes any R; the others need it doubly stochastic, the corrected ones (EXTRA, exact
diffusion, D², NIDS) symmetric too. These keep γG, not G, from the step before: with
γₖGₖ - γₖ₋₁Gₖ₋₁ they stay exact when the step size changes, with γₖ(Gₖ - Gₖ₋₁) they do not.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
from digrad.algorithms.inner import Momentum
from digrad.base.errors import lookup


class ModelState(NamedTuple):
    """State of methods without memory."""

    x: Tensor  # models, (..., nodes, dim)
    m: Tensor | None = None  # momenta; none without them


class DiffusionState(NamedTuple):
    """State of diffusion, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    phi: Tensor | None = None  # RX, where gradients are taken; none in the form atc
    m: Tensor | None = None  # momenta; none without them


class ExtraState(NamedTuple):
    """State of EXTRA, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    h: Tensor  # ½(I + W)X - γG of the step before; X⁰ before the first step


class PsiState(NamedTuple):
    """State of exact diffusion, D² and NIDS, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    psi: Tensor | None = None  # X - γG of the step before; none before the first step


_CORRECTED = Needs.PULL | Needs.DOUBLY_STOCHASTIC | Needs.SYMMETRIC


@dataclass(frozen=True)
class DSGD(Momentum, Algorithm[ModelState]):
    """Decentralized stochastic gradient descent: X⁺ = W(X - γG).

    With a constant step it stops near the optimum, at a distance that grows with γ and with
    the differences between the nodes' data.

    Args:
        form: ``atc`` as above; ``cta`` for X⁺ = WX - γG, which is D-PSGD and can send while
            the gradient is computed.

    References:
        Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?,
        NeurIPS 2017 (``cta``).
    """

    needs: ClassVar[Needs] = Needs.PULL | Needs.DOUBLY_STOCHASTIC
    overwrites: ClassVar[tuple[str, ...]] = ("x",)

    form: Form = "atc"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(FORMS, self.form, "form")

    def init(self, x: Tensor) -> ModelState:
        return self.state(ModelState)(x)  # type: ignore[no-any-return]

    def step(self, s: ModelState, g: Tensor, net: Mixer, lr: Scale) -> ModelState:
        d, kept = self.direction(s, g)
        return type(s)(FORMS[self.form](net.pull, s.x, (-lr, d), of="x"), *kept)

    def early(self, s: ModelState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows((self.form, "pull", s.x))


@dataclass(frozen=True)
class Diffusion(Momentum, Algorithm[DiffusionState]):
    """Diffusion with row-stochastic weights: X⁺ = R(X - γG).

    The same step as DSGD, without asking for column sums of 1. π_Rᵀ X then moves by
    γπ_Rᵀ G: it goes towards the Pareto point that minimises Σᵢ π_R[i] fᵢ, not the mean of
    the fᵢ.

    Args:
        form: ``atc`` as above; ``cta`` for Φ = RX, X⁺ = Φ - γG(Φ), gradients at Φ. From a
            common start both take the same gradients at the same points and have the same
            π_Rᵀ X; they differ in each node's own answer, which ``cta`` reads before mixing.

    References:
        Chen & Sayed, Diffusion Adaptation Strategies for Distributed Optimization and
        Learning over Networks, IEEE Transactions on Signal Processing 2012.
    """

    needs: ClassVar[Needs] = Needs.PULL
    overwrites: ClassVar[tuple[str, ...]] = ("x", "phi")
    root_weighted: ClassVar[bool] = True

    form: Form = "atc"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(FORMS, self.form, "form")

    def init(self, x: Tensor) -> DiffusionState:
        return self.state(DiffusionState)(x, x if self.form == "cta" else None)  # type: ignore[no-any-return]

    def step(self, s: DiffusionState, g: Tensor, net: Mixer, lr: Scale) -> DiffusionState:
        d, kept = self.direction(s, g)
        x = self.point(s) - lr * d
        if self.form == "cta":
            return type(s)(x, net.pull(x, of="phi"), *kept)
        return type(s)(net.pull(x, of="x"), None, *kept)

    def point(self, s: DiffusionState) -> Tensor:
        return s.x if s.phi is None else s.phi

    def answer(self, s: DiffusionState) -> Tensor:
        return s.x


@dataclass(frozen=True)
class Extra(Algorithm[ExtraState]):
    """EXTRA: Xₖ₊₁ = (I + W)Xₖ - ½(I + W)Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁), X₁ = WX₀ - γ₀G₀.

    WX is kept from the step before inside H = ½(I + W)X - γG, so that X travels once:
    X⁺ = X + WX - γG - H.

    References:
        Shi, Ling, Wu, Yin, EXTRA: An Exact First-Order Algorithm for Decentralized Consensus
        Optimization, SIAM Journal on Optimization 2015.
    """

    needs: ClassVar[Needs] = _CORRECTED
    exact: ClassVar[bool] = True

    def init(self, x: Tensor) -> ExtraState:
        return ExtraState(x, h=x)

    def step(self, s: ExtraState, g: Tensor, net: Mixer, lr: Scale) -> ExtraState:
        wx, change = net.pull(s.x, of="x"), lr * g
        return ExtraState((s.x - s.h) + wx - change, 0.5 * (s.x + wx) - change)

    def early(self, s: ExtraState) -> tuple[tuple[Verb, Tensor], ...]:
        return early_rows(("cta", "pull", s.x))


def _corrected(s: PsiState, psi: Tensor) -> Tensor:
    """Ψ⁺ + X - Ψ, with Ψ⁰ = X⁰."""
    return psi if s.psi is None else psi + (s.x - s.psi)


class _Diffusion(Algorithm[PsiState]):
    """What keeps the last Ψ, and corrects by it."""

    needs: ClassVar[Needs] = _CORRECTED
    exact: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ("x",)

    def init(self, x: Tensor) -> PsiState:
        return PsiState(x)


@dataclass(frozen=True)
class ExactDiffusion(_Diffusion):
    """Exact diffusion: Ψ⁺ = X - γG, X⁺ = ½(I + W)(Ψ⁺ + X - Ψ), Ψ⁰ = X⁰.

    In two-step form Xₖ₊₁ = ½(I + W)(2Xₖ - Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁)).

    References:
        Yuan, Ying, Zhao, Sayed, Exact Diffusion for Distributed Optimization and Learning,
        IEEE Transactions on Signal Processing 2019.
    """

    def step(self, s: PsiState, g: Tensor, net: Mixer, lr: Scale) -> PsiState:
        psi = s.x - lr * g
        phi = _corrected(s, psi)
        return PsiState(0.5 * (phi + net.pull(phi, of="x")), psi)


@dataclass(frozen=True)
class D2(_Diffusion):
    """D²: Ψ⁺ = X - γG, X⁺ = W(Ψ⁺ + X - Ψ), Ψ⁰ = X⁰; all eigenvalues of W above -1/3.

    Exact diffusion with W in place of ½(I + W), hence faster where W allows it.

    References:
        Tang, Lian, Yan, Zhang, Liu, D²: Decentralized Training over Decentralized Data,
        ICML 2018.
    """

    needs: ClassVar[Needs] = _CORRECTED | Needs.ABOVE_MINUS_THIRD

    def step(self, s: PsiState, g: Tensor, net: Mixer, lr: Scale) -> PsiState:
        psi = s.x - lr * g
        return PsiState(net.pull(_corrected(s, psi), of="x"), psi)


@dataclass(frozen=True)
class NIDS(_Diffusion):
    """NIDS: Ψ⁺ = X - γG, X⁺ = ½(I + W)(Ψ⁺ + X - Ψ), but X¹ = Ψ¹ without mixing.

    Its parameter c is 1/(2γ), so that I - γc(I - W) = ½(I + W); from a common start it
    differs from exact diffusion in the first step only.

    References:
        Li, Shi, Yan, A Decentralized Proximal-Gradient Method with Network Independent
        Step-Sizes and Separated Convergence Rates, IEEE Transactions on Signal Processing
        2019.
    """

    def step(self, s: PsiState, g: Tensor, net: Mixer, lr: Scale) -> PsiState:
        psi = s.x - lr * g
        phi = _corrected(s, psi)
        return PsiState(phi if s.psi is None else 0.5 * (phi + net.pull(phi, of="x")), psi)


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
        return self.state(CentralState)(x)  # type: ignore[no-any-return]

    def step(self, s: CentralState, g: Tensor, net: Mixer, lr: Scale) -> CentralState:
        d, kept = self.direction(s, net.mean(g))
        return type(s)(s.x - lr * d, *kept)
