"""Where two methods, or two ways to write one, are the same."""

import numpy as np
import pytest
import torch

from digrad.algorithms import (
    AB,
    BTPP,
    D2,
    DSGD,
    DSGT,
    NIDS,
    SAB,
    SGP,
    STPP,
    ABCta,
    AddOpt,
    Centralized,
    Diffusion,
    ExactDiffusion,
    Extra,
    GradientPush,
    MGPushDiging,
    OriginalPushPull,
    PushDiging,
    PushDigingATC,
    PushPull,
    Sonata,
    rounds_for,
)
from digrad.base.errors import DigradError, ParameterError
from digrad.networks import Network, build
from digrad.theory.certificates import digraph_metrics
from digrad.theory.eigenvectors import perron
from mixers import NETWORKS, Dense, Quadratics, common_start, decaying, states

STEPS = 25


def run(algorithm, net, lr=decaying):
    gradient = Quadratics.draw(net.n).torch
    return states(algorithm, Dense(net), gradient, common_start(net.n), lr, STEPS)


def points(algorithm, net, lr=decaying):
    return torch.stack([algorithm.point(s) for s in run(algorithm, net, lr)])


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def different(a, b):
    assert (a - b).abs().max() > 1e-3


def doubly(W):
    return Network(W, W)


SAME = {
    "original push-pull": (OriginalPushPull(), PushPull("atc", "cta"), "common-root"),
    "ab": (AB(), PushPull("cta", "atc"), "own-weights"),
    "sab": (SAB(), AB(), "own-weights"),
    "ab-cta": (ABCta(), PushPull("cta", "cta"), "own-weights"),
    "btpp": (BTPP(), OriginalPushPull(), "binary-tree"),
    "stpp": (STPP(), OriginalPushPull(), "two-trees"),
    "dsgt": (DSGT(), PushPull(), "doubly"),
    "dsgt semi-atc": (DSGT("semi-atc"), OriginalPushPull(), "doubly"),
    "dsgt diging": (DSGT("diging"), ABCta(), "doubly"),
    "sgp": (SGP(), DSGD(), "exponential"),
    "sonata": (Sonata(), PushDiging(), "own-weights"),
    "add-opt": (AddOpt(), PushDiging("cta", "cta"), "own-weights"),
    "push-diging-atc": (PushDigingATC(), PushDiging("atc", "atc"), "own-weights"),
    "one round": (MGPushDiging(1), PushDiging(), "own-weights"),
    "diffusion": (Diffusion(), DSGD(), "doubly"),
    "gradient-push": (GradientPush(), SGP(), "exponential"),  # C1 = 1: nothing to undo
    "push-diging": (PushDiging(), DSGT("semi-atc"), "doubly"),
}


@pytest.mark.parametrize(("one", "other", "network"), SAME.values(), ids=SAME)
def test_same_points(one, other, network):
    same(points(one, NETWORKS[network]), points(other, NETWORKS[network]))


DIFFERENT = [
    (PushPull(), OriginalPushPull(), "common-root"),
    (PushPull(), AB(), "own-weights"),
    (AB(), ABCta(), "own-weights"),
    (SGP(), GradientPush(), "own-weights"),
    (PushDiging(), PushDigingATC(), "own-weights"),
    (PushDiging(), AddOpt(), "own-weights"),
    (ExactDiffusion(), NIDS(), "lazy-ring"),
    (ExactDiffusion(), D2(), "lazy-ring"),
    (ExactDiffusion(), Extra(), "lazy-ring"),
    (DSGD(), DSGD("cta"), "doubly"),
]


@pytest.mark.parametrize(("one", "other", "network"), DIFFERENT, ids=str)
def test_names_of_their_own_are_deserved(one, other, network):
    different(points(one, NETWORKS[network]), points(other, NETWORKS[network]))


@pytest.mark.parametrize("algorithm", [DSGD(), DSGT(), PushPull(), SGP(), PushDigingATC()], ids=str)
def test_perfect_averaging_is_centralized(algorithm):
    """With R = C = 11ᵀ/n every node has the mean after each step."""
    net = build("complete", 5)
    same(points(algorithm, net), points(Centralized(), net))


def test_sonata_keeps_what_push_diging_keeps():
    """u = φX, and φY is Push-DIGing's tracker."""
    net = NETWORKS["own-weights"]
    for s, r in zip(run(Sonata(), net), run(PushDiging(), net), strict=True):
        same(Sonata().answer(s), r.u)
        same(s.phi, r.v)
        if s.z is not None:
            same(s.z, Dense(net).push(r.y))


def test_push_diging_in_normalised_form():
    """X⁺ = Rₖ(X - γH), H⁺ = RₖH + (1/v⁺)(G⁺ - G), Rₖ = diag(1/v⁺) C diag(v)."""
    net, quadratics = NETWORKS["own-weights"], Quadratics.draw(7)
    C, v, X = net.C.toarray(), np.ones(7), common_start(7).numpy()
    G = quadratics.numpy(0, X)
    H = G
    for t, mine in enumerate(points(PushDiging(), net)):
        same(mine, torch.from_numpy(X))
        R_k, v = np.diag(1 / (C @ v)) @ C @ np.diag(v), C @ v
        np.testing.assert_allclose(R_k.sum(axis=1), 1)
        X = R_k @ (X - decaying(t) * H)
        G_new = quadratics.numpy(t + 1, X)
        H = R_k @ H + (G_new - G) / v[:, None]
        G = G_new


def test_gradient_push_is_sgp_after_one_push():
    net, gradient = NETWORKS["own-weights"], Quadratics.draw(7).torch
    mixer, x = Dense(net), common_start(7)
    s = SGP().init(x)._replace(x=mixer.push(x), w=mixer.push(torch.ones(7, 1, dtype=x.dtype)))
    for t, mine in enumerate(points(GradientPush(), net)):
        same(mine, SGP().point(s))
        s = SGP().step(s, gradient(t, SGP().point(s)), mixer, decaying(t))


def test_many_rounds_are_a_power_of_the_weights():
    net = NETWORKS["own-weights"]
    power = Network(net.R, np.linalg.matrix_power(net.C.toarray(), 3))
    same(points(MGPushDiging(3), net), points(PushDiging(), power))


@pytest.mark.parametrize("network", ["own-weights", "star", "lazy-ring"])
def test_rounds_that_nearly_average(network):
    """Cᴷ[i, j] is between 1 - 1/(nκ) and 1 + 1/(nκ) times π_C[i]."""
    net = NETWORKS[network]
    p = perron(net)
    metrics = digraph_metrics(net.C.T.tocsr(), p.pi_C)
    K = rounds_for(net.n, metrics.beta_pi, metrics.kappa_pi)
    power = np.linalg.matrix_power(net.C.toarray(), K)
    assert np.abs(power / p.pi_C[:, None] - 1).max() <= 1 / (net.n * metrics.kappa_pi)


def test_rounds_for():
    assert rounds_for(1, 0.0, 1.0) == 1
    assert rounds_for(8, 0.5, 1.0) == 9  # 4 ln 8 = 8.3
    assert rounds_for(8, 0.5, 2.0) == 12  # 4 ln 16 = 11.1
    with pytest.raises(ParameterError, match="below 1, got 1"):
        rounds_for(8, 1.0, 2.0)


def test_diffusion_in_the_other_order():
    """Φ = RX, X⁺ = Φ - γG(Φ): gradients at the same points, the same answer."""
    net, quadratics = NETWORKS["common-root"], Quadratics.draw(6)
    R, X, pi_R = net.R.toarray(), common_start(6).numpy(), perron(net).pi_R
    cta = Diffusion("cta")
    for t, (atc, state) in enumerate(zip(points(Diffusion(), net), run(cta, net), strict=True)):
        Phi = R @ X
        same(atc, torch.from_numpy(Phi))
        same(cta.point(state), torch.from_numpy(Phi))
        same(cta.answer(state), torch.from_numpy(X))
        np.testing.assert_allclose(pi_R @ atc.numpy(), pi_R @ X, atol=1e-12)
        X = Phi - decaying(t) * quadratics.numpy(t, Phi)


def test_d2_is_exact_diffusion_on_averaged_weights():
    """Exact diffusion mixes with ½(I + W), D² with W itself."""
    W = NETWORKS["metropolis"].R.toarray()
    half = doubly((np.eye(len(W)) + W) / 2)
    same(points(D2(), half), points(ExactDiffusion(), doubly(W)))


def test_exact_diffusion_in_two_steps():
    """Xₖ₊₁ = W̄(2Xₖ - Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁)), X₁ = W̄(X₀ - γ₀G₀)."""
    net, quadratics = NETWORKS["metropolis"], Quadratics.draw(6)
    W = (np.eye(6) + net.R.toarray()) / 2
    X = points(ExactDiffusion(), net).numpy()
    step = [decaying(t) * quadratics.numpy(t, X[t]) for t in range(STEPS)]
    np.testing.assert_allclose(X[1], W @ (X[0] - step[0]), atol=1e-12)
    for k in range(1, STEPS):
        mine = W @ (2 * X[k] - X[k - 1] - (step[k] - step[k - 1]))
        np.testing.assert_allclose(X[k + 1], mine, atol=1e-12)


def test_extra_summed_up():
    """Xₖ₊₁ = WXₖ - γₖGₖ + Σₛ<ₖ (W - W̃)Xₛ, W̃ = ½(I + W): corrected decentralized descent."""
    net, quadratics = NETWORKS["metropolis"], Quadratics.draw(6)
    W = net.R.toarray()
    correction = (W - np.eye(6)) / 2
    X = points(Extra(), net).numpy()
    for k in range(STEPS):
        step = decaying(k) * quadratics.numpy(k, X[k])
        mine = W @ X[k] - step + correction @ X[:k].sum(axis=0)
        np.testing.assert_allclose(X[k + 1], mine, atol=1e-11)


def test_push_pull_in_closed_form():
    """Xᵗ and Yᵗ as sums over RᵏCˡ of what the gradients changed by, γ constant."""
    net, quadratics, lr = NETWORKS["common-root"], Quadratics.draw(6), 0.1
    made = run(PushPull(), net, lambda t: lr)
    R, C = ([np.linalg.matrix_power(W.toarray(), k) for k in range(12)] for W in (net.R, net.C))
    X = [s.x.numpy() for s in made]
    G = [quadratics.numpy(t, X[t]) for t in range(12)]
    for t in range(1, 12):
        start = sum(R[k] @ C[t - k] @ G[0] for k in range(1, t + 1))
        later = sum(
            R[k] @ C[t - j - k] @ (G[j + 1] - G[j]) for j in range(t - 1) for k in range(1, t - j)
        )
        np.testing.assert_allclose(X[t], R[t] @ X[0] - lr * (start + later), atol=1e-12)
        Y = C[t] @ G[0] + sum(C[t - j] @ (G[j + 1] - G[j]) for j in range(t))
        np.testing.assert_allclose(made[t + 1].y.numpy(), Y, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: PushPull("at"), "did you mean 'atc'"),
        (lambda: PushPull(y_form="at"), "did you mean 'atc'"),
        (lambda: PushDiging(y_form="ct"), "did you mean 'cta'"),
        (lambda: DSGT("semi"), "did you mean 'semi-atc'"),
        (lambda: DSGD("cat"), "did you mean"),
        (lambda: MGPushDiging(2, "xyz"), "one of: atc, cta"),
        (lambda: MGPushDiging(0), "a whole number from 1 on, got 0"),
    ],
)
def test_forms_that_do_not_exist(make, hint):
    with pytest.raises(DigradError, match=hint):
        make()
