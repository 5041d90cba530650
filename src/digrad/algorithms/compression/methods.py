"""Methods with small messages that the literature has names for: methods we have, compressed.

Each has a compression of its own that lets it run as it is; ``compress`` replaces it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from digrad.algorithms.compression.broadcast import BROADCAST
from digrad.algorithms.compression.compressed import CompressingMethod
from digrad.algorithms.compression.kept import TopK
from digrad.algorithms.compression.levels import Dither, Nearest
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.compression.single import Rounding
from digrad.algorithms.contract import Algorithm, Mixer, Needs, Scale
from digrad.algorithms.doubly import DSGD
from digrad.algorithms.inner import inverse
from digrad.algorithms.push_pull import DSGT, OriginalPushPull, PushPull
from digrad.algorithms.push_sum import SGP


@dataclass(frozen=True)
class _NamedCompression(CompressingMethod):
    """A method and a compression under a name of their own."""

    def __post_init__(self) -> None:
        self._say()

    def __init_subclass__(cls) -> None:
        """Say as a class what all of them have in common, for tables."""
        super().__init_subclass__()
        method = cls.__dict__.get("method")
        if isinstance(method, Algorithm):
            cls.needs = method.needs | cls.more_needs
            cls.exact, cls.root_weighted = method.exact, method.root_weighted
            cls.moves_by_n_pi = method.moves_by_n_pi


FOUR_DITHERED = Compression(Dither(bits=4))
FOUR_NEAREST = Compression(Nearest(bits=4))
TWO_DITHERED = Compression(Dither(bits=2))
TENTH = Compression(TopK(share=0.1))
FALLING = Compression(Rounding(bits=8), decay=0.995)
FED_BACK = Compression(Nearest(bits=4), scheme="feedback", mixing=0.3)


@dataclass(frozen=True)
class CPP(_NamedCompression):
    """CPP, compressed Push-Pull: X⁺ = mix_R(X - γY), Y⁺ = mix_C(Y) + G⁺ - G.

    ``push-pull-original`` with both verbs compressed by the scheme ``difference``.

    References:
        Song, Shi, Pu, Yan, Compressed Gradient Tracking for Decentralized Optimization Over
        General Directed Networks, IEEE Transactions on Signal Processing 2022.
    """

    method = OriginalPushPull()
    compress: Compression = FOUR_DITHERED


@dataclass(frozen=True)
class RCPP(_NamedCompression):
    """RCPP, robust compressed Push-Pull: CPP with sQ(v/s), s falling slowly.

    That makes room for compressors that are off by as much near zero as elsewhere: rounding.

    References:
        Liao, Li, Pu, A Robust Compressed Push-Pull Method for Decentralized Nonconvex
        Optimization, arXiv 2408.01727.
    """

    method = OriginalPushPull()
    compress: Compression = FALLING


@dataclass(frozen=True)
class BCPP(_NamedCompression):
    """B-CPP when all nodes wake at once: X⁺ = mix_R(X - γY), Y⁺ = mix_C(Y + G⁺ - G).

    Models are compressed by ``difference``, trackers as they are (``direct``): without noise they
    go to zero. Our reading of the broadcast form of RCPP's paper.
    """

    method = PushPull()
    compress: Compression = BROADCAST


@dataclass(frozen=True)
class QuantizedPushSum(_NamedCompression):
    """Quantized push-sum: X⁺ = mix_C(X - γG), w⁺ = w + ζ(Cw - w); gradients at Z = X/w.

    ``sgp`` with its numerators compressed by the scheme ``difference``; ζ < 1 is our addition.

    References:
        Taheri, Mokhtari, Hassani, Pedarsani, Quantized Decentralized Stochastic Learning over
        Directed Graphs, ICML 2020.
    """

    method = SGP()
    compress: Compression = FOUR_DITHERED


@dataclass(frozen=True)
class ChocoSGD(_NamedCompression):
    """CHOCO-SGD: X⁺ = mix_W(X - γG), W = R. ``dsgd`` compressed by the scheme ``difference``.

    References:
        Koloskova, Stich, Jaggi, Decentralized Stochastic Optimization and Gossip Algorithms with
        Compressed Communication, ICML 2019.
    """

    method = DSGD()
    compress: Compression = TENTH


@dataclass(frozen=True)
class CGT(_NamedCompression):
    """C-GT, compressed gradient tracking: X⁺ = mix_W(X) - γY, Y⁺ = mix_W(Y) + G⁺ - G, W = R.

    ``dsgt`` compressed by the scheme ``difference``.

    Args:
        form: ``diging`` as above, ``semi-atc`` for X⁺ = mix_W(X - γY), ``atc`` for both so.

    References:
        Liao, Li, Huang, Pu, A Compressed Gradient Tracking Method for Decentralized Optimization
        with Linear Convergence, IEEE Transactions on Automatic Control 2022.
    """

    needs: ClassVar[Needs] = DSGT.needs
    exact: ClassVar[bool] = True

    form: Literal["atc", "semi-atc", "diging"] = "diging"
    compress: Compression = FOUR_NEAREST

    @property
    def method(self) -> Algorithm[Any]:  # type: ignore[override]
        return DSGT(form=self.form)


@dataclass(frozen=True)
class DeepSqueeze(_NamedCompression):
    """DeepSqueeze: ``dsgd`` compressed by the scheme ``feedback``; wants a small ζ.

    References:
        Tang, Lian, Qiu, Yuan, Zhang, Zhang, Liu, DeepSqueeze: Decentralization Meets
        Error-Compensated Compression, arXiv 1907.07346.
    """

    more_needs: ClassVar[Needs] = Needs.SYMMETRIC

    method = DSGD()
    compress: Compression = FED_BACK


class LeadState(NamedTuple):
    """State of LEAD, each of shape (..., nodes, dim)."""

    x: Tensor  # models
    d: Tensor | None = None  # dual variables, Σᵢ dᵢ = 0; none before the first step


@dataclass(frozen=True)
class _PrimalDual(Algorithm[LeadState]):
    """V = X - γG - γD, D⁺ = D + (V - WV)/(2γ), X⁺ = (V + WV)/2: exact diffusion with a dual."""

    needs: ClassVar[Needs] = DSGD.needs | Needs.SYMMETRIC
    exact: ClassVar[bool] = True

    def init(self, x: Tensor) -> LeadState:
        return LeadState(x)

    def step(self, s: LeadState, g: Tensor, net: Mixer, lr: Scale) -> LeadState:
        v = s.x - lr * (g if s.d is None else g + s.d)
        mixed = net.pull(v, of="x")
        moved = inverse(lr) * (v - mixed) / 2
        return LeadState((v + mixed) / 2, moved if s.d is None else s.d + moved)


@dataclass(frozen=True)
class Lead(_NamedCompression):
    """LEAD: V = X - γG - γD, D⁺ = D + ζ/(2γ)(V̂ - WV̂), X⁺ = X - γG - γD⁺, W = R.

    V̂ by the scheme ``difference``. With messages as they are and ζ = 1 it is exact diffusion.
    The paper takes a gradient step first, which is not compressed.

    References:
        Liu, Li, Wang, Tang, Yan, Linear Convergent Decentralized Optimization with Compression,
        ICLR 2021.
    """

    method = _PrimalDual()
    compress: Compression = TWO_DITHERED
