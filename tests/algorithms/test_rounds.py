"""Steps at home: what they compute, and that they send nothing."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from algorithms.test_momentum import DIGRAPH, RING, A, B, reached, rows
from digrad.algorithms import DSGD, DSGT, KGT, SGP, KStepPushPull, LocalSGP, OriginalPushPull
from digrad.algorithms.conformance import check_algorithm
from digrad.algorithms.contract import take_local_steps
from digrad.base.errors import ParameterError
from mixers import NETWORKS, Dense, Quadratics, common_start, decaying, states

EVERY = [LocalSGP(every=3), KStepPushPull(every=3), KGT(every=3), LocalSGP(momentum=0.5, every=2)]


def test_local_sgp_reference() -> None:
    s = reached(LocalSGP(every=2), DIGRAPH)
    wanted = (
        "0.423515002298 -0.515086090287; 0.272371675279 0.106832611419; "
        "0.041970933513 0.221041820179; 0.001515775241 -0.306581677295"
    )
    torch.testing.assert_close(s.x, rows(wanted), rtol=0, atol=2e-12)
    weights = rows("0.842592592593; 0.606481481481; 1.287037037037; 1.263888888889")
    torch.testing.assert_close(s.w, weights, rtol=0, atol=2e-12)


ROUNDS = {
    "k-step push-pull": (
        KStepPushPull(every=2),
        DIGRAPH,
        "0.248346052083 -0.455664399306; 0.501342091797 -0.456954504449; "
        "0.433172876881 -0.352765769459; 0.172767738498 -0.233434826823",
        "1.313500449219 1.151738043981; -1.034116679688 2.137272634910; "
        "-3.459660260417 0.238957198712; 3.180276490885 -3.527967877604",
    ),
    "k-gt": (
        KGT(every=2),
        RING,
        "0.328508063079 -0.319491949074; 0.281297056134 -0.278456335648; "
        "0.282799524884 -0.310023303241; 0.305824349826 -0.337256377315",
        "1.124172635995 0.235232453704; -0.072487505787 1.661377800926; "
        "-3.169849979745 0.817707222222; 2.118164849537 -2.714317476852",
    ),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_reference_rounds(name: str) -> None:
    algorithm, net, models, corrections = ROUNDS[name]
    s = reached(algorithm, net, lr=0.05)
    torch.testing.assert_close(s.x, rows(models), rtol=0, atol=2e-12)
    torch.testing.assert_close(s.c, rows(corrections), rtol=0, atol=2e-12)


def run(algorithm: Any, net: Any, steps: int = 25) -> list[Any]:
    gradient = Quadratics.draw(net.n).torch
    return states(algorithm, Dense(net), gradient, common_start(net.n), decaying, steps)


ONE = [
    (LocalSGP(every=1), SGP(), "own-weights", True),
    (KStepPushPull(every=1), OriginalPushPull(), "common-root", False),
    (KGT(every=1), DSGT("semi-atc"), "doubly", False),
]


@pytest.mark.parametrize(("one", "plain", "network", "exactly"), ONE, ids=str)
def test_rounds_of_one_gradient(one: Any, plain: Any, network: str, exactly: bool) -> None:
    """To the bit where it is the same arithmetic, to rounding where it is other variables."""
    net, constant = NETWORKS[network], lambda t: 0.05
    gradient, x = Quadratics.draw(net.n).torch, common_start(net.n)
    pairs = [states(a, Dense(net), gradient, x, constant, 25) for a in (one, plain)]
    for s, r in zip(*pairs, strict=True):
        if exactly:
            assert torch.equal(one.point(s), plain.point(r))
        torch.testing.assert_close(one.point(s), plain.point(r), rtol=1e-11, atol=1e-11)


def test_local_sgp_on_a_balanced_graph_is_local_dsgd() -> None:
    net, quadratics = NETWORKS["exponential"], Quadratics.draw(6)
    x, W, dsgd = common_start(6), Dense(net), DSGD()
    for t, s in enumerate(run(LocalSGP(every=3), net)):
        torch.testing.assert_close(LocalSGP().point(s), x, rtol=1e-11, atol=1e-11)
        for k in range(2):
            x = x - decaying(t) * quadratics.torch(3 * t + k, x)
        x = dsgd.step(dsgd.init(x), quadratics.torch(3 * t + 2, x), W, decaying(t)).x


@pytest.mark.parametrize("algorithm", [KStepPushPull(every=3), KGT(every=3)], ids=str)
def test_corrections_sum_to_zero(algorithm: Any) -> None:
    for s in run(algorithm, NETWORKS["doubly"])[1:]:
        assert s.c.sum(0).abs().max() < 1e-11


@pytest.mark.parametrize("every", [2, 5, 10])
def test_exact_for_any_number_of_steps(every: int) -> None:
    """And each correction comes to the gradient that it undoes."""
    algorithm, best = KStepPushPull(every), (A * B).sum(0) / A.sum(0)
    s = reached(algorithm, DIGRAPH, 1500, 0.1 / every)
    torch.testing.assert_close(s.x, best.expand(4, 2), rtol=0, atol=1e-10)
    torch.testing.assert_close(s.c, -A * (best - B), rtol=0, atol=1e-9)


def test_the_error_of_local_sgp_grows_with_the_steps_and_falls_with_their_size() -> None:
    best = (A * B).sum(0) / A.sum(0)

    def error(every: int, lr: float) -> float:
        s = reached(LocalSGP(every=every), DIGRAPH, int(12 / lr / every), lr)
        return float((s.x.mean(0) - best).abs().max())

    assert error(1, 0.01) < error(5, 0.01) / 2
    assert error(5, 0.002) < error(5, 0.01) / 3


def test_mean_moves_by_every_gradient() -> None:
    """The mean of SGP's numerators, at home as on the way."""
    algorithm, net = LocalSGP(every=3), NETWORKS["own-weights"]
    quadratics = Quadratics.draw(7)
    for t, (before, after) in enumerate(pairwise(run(algorithm, net))):
        seen = []

        def gradient(k: int, x: Any, t: int = t, seen: list[Any] = seen) -> Any:
            seen.append(quadratics.torch(3 * t + k, x))
            return seen[-1]

        s = take_local_steps(algorithm, before, gradient, decaying(t))
        gradient(2, algorithm.point(s))
        move = after.x.mean(0) - before.x.mean(0)
        wanted = -decaying(t) * sum(g.mean(0) for g in seen)
        torch.testing.assert_close(move, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", EVERY, ids=str)
def test_the_contract_is_kept(algorithm: Any) -> None:
    assert algorithm.samples == algorithm.local_steps + 1 == algorithm.every
    assert not [v for v in check_algorithm(algorithm) if v.failure]


@pytest.mark.parametrize("make", [LocalSGP, KGT, KStepPushPull])
def test_what_is_refused(make: Any) -> None:
    with pytest.raises(ParameterError, match="every must be a whole number from 1 on, got 0"):
        make(every=0)


def test_outer_steps_are_checked() -> None:
    with pytest.raises(
        ParameterError, match=r"outer must be a finite number, above 0, at most 1, got 2"
    ):
        KGT(outer=2)
