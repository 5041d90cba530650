"""The constants of our rate for the other three forms of S-PP (docs/rate.md)."""

from math import inf
from typing import Literal

import numpy as np

from digrad.base.errors import lookup
from digrad.networks.network import Network
from digrad.theory.bracket import Bracket
from digrad.theory.certified import RateConstants
from digrad.theory.eigenvectors import Perron, perron
from digrad.theory.large import LargeMixing
from digrad.theory.lifted import NORMS, SQUARES, Lifted
from digrad.theory.network_constants import MATRIX_N, _pull_sums, _push_sums

Form = Literal["atc", "cta"]
MIXED = {"atc": 1, "cta": 0}  # whether what is new is mixed with the rest


def form_constants(
    net: Network,
    x_form: Form = "atc",
    y_form: Form = "atc",
    *,
    rtol: float = 1e-9,
    effort: float = 1.0,
) -> RateConstants:
    """Return the constants of our rate for one of the four forms of S-PP.

    X⁺ = R(X - γY) or RX - γY, Y⁺ = C(Y + G⁺ - G) or CY + G⁺ - G: the second ones have a power of
    R or of C less in every term; where gradients are not mixed with the trackers,
    the first ones are like all others and the start-up noise is gone.

    >>> from digrad.networks import exponential, weigh
    >>> net = weigh(exponential(8))
    >>> form_constants(net, "cta", "cta").V > form_constants(net).V
    True
    """
    a, b = (lookup(MIXED, form, "form") for form in (x_form, y_form))
    p = perron(net)
    mixing = LargeMixing(net, p)
    vectors = _push_sums(mixing, rtol, effort) | _pull_sums(mixing, rtol, effort)
    values = _vectors(net, p, a, b, vectors)
    values |= _matrices(mixing, a, b, vectors, rtol, effort)
    if not b:
        values["V_R"] = 0.0
    first = float(p.pi_R @ p.pi_R) if b else net.n * p.pi**2
    return RateConstants(net.n, p.pi, **values, first=first)


def _vectors(
    net: Network, p: Perron, a: int, b: int, known: dict[str, Bracket]
) -> dict[str, float]:
    """N1, N1', N2, N2' and N3, from those of the form with a power more."""
    found = {name: known[name].high for name in ("N1", "N1p", "N2", "N2p", "N3")}
    v0, v1 = p.pi_R - p.pi, net.C.T @ p.pi_R - p.pi
    if not b:
        sizes = [float(np.linalg.norm(v)) for v in (v0, v1, v1 - v0)]
        found["N1"] += sizes[0]
        found["N1p"] += sizes[0] - sizes[1] + sizes[2]
        found["N2p"] = found["N2"]
    if not a:
        found["N3"] += float(np.linalg.norm(p.pi_C - p.pi))
    return found


def _matrices(
    mixing: LargeMixing, a: int, b: int, vectors: dict[str, Bracket], rtol: float, effort: float
) -> dict[str, float]:
    """N5, N6, N8, N9, V and V_R."""
    n, names = mixing.net.n, [name for name in (*NORMS, *SQUARES) if name != "N7"]
    if n == 1:
        return dict.fromkeys(names, 0.0)
    if n > MATRIX_N:
        bounds = mixing.bounds(vectors, a, b)
        return {name: bounds.get(name, inf) for name in names}
    lifted = Lifted.of(mixing.net, mixing.p, a, b)
    sums = lifted.norms(rtol, effort) | lifted.squares(rtol)
    return {name: sums[name].high for name in names}
