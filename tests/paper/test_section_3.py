"""Section 3: the constants, the supporting lemmas, the recursion and the descent lemma."""

from dataclasses import asdict
from functools import cache
from math import inf, sqrt
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from digrad.algorithms import PushPull
from digrad.networks import (
    Network,
    binary_tree,
    complete,
    directed_ring,
    equitopo,
    erdos_renyi,
    exponential,
    grid,
    hypercube,
    multi_sub_ring,
    spanning_tree,
    star,
    undirected_ring,
    weigh,
)
from digrad.theory import (
    Setting,
    constants,
    doubly_stochastic_case,
    explicit_bound,
    gamma_max,
    perron,
)
from mixers import Dense, Quadratics, common_start, states
from theory.brute_force import NAMES, any_networks, definition_sums

RUNS = {
    "ring": weigh(undirected_ring(5)),
    "flower": weigh(multi_sub_ring(7)),
    "star": weigh(star(4)),
    "erdos-renyi": weigh(erdos_renyi(5, 0.6, seed=1), push_graph="reverse"),
    "complete": weigh(complete(4)),
    "tree": binary_tree(4),
    "only R is a tree": Network(binary_tree(4).R, weigh(directed_ring(4)).C),
}
SEEDS = st.integers(0, 10**6)
norm, power = np.linalg.norm, np.linalg.matrix_power


def networks(test):
    """Named topologies, then random networks: strongly connected, only rooted, trees."""
    for net in [*RUNS.values(), spanning_tree(6, root=0), weigh(directed_ring(6))]:
        test = example(net)(test)
    return given(any_networks(7))(test)


def dense(net: Network) -> SimpleNamespace:
    """R, C, π_R, π_C, the projections and π as plain arrays."""
    p, n = perron(net), net.n
    Pi_R, Pi_C = np.eye(n) - p.pi_R, np.eye(n) - p.pi_C[:, None]
    R, C = net.R.toarray(), net.C.toarray()
    return SimpleNamespace(n=n, R=R, C=C, pi_R=p.pi_R, pi_C=p.pi_C, pi=p.pi, Pi_R=Pi_R, Pi_C=Pi_C)


def birkhoff(seed: int, n: int = 6, symmetric: bool = False) -> Network:
    """A random average of permutations: doubly stochastic, normal or not."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(5))
    W = sum(a * np.eye(n)[rng.permutation(n)] for a in shares)
    W = (W + W.T) / 2 if symmetric else 0.9 * W + 0.1 * np.eye(n)
    return Network(W, W)


# --- 3.1: influence of the directed graphs


@networks
def test_lemma_3_1_all_series_are_finite(net):
    c, partial = constants(net), definition_sums(dense(net), 12)
    for name, bracket in c.values.items():
        assert bracket.high < inf
        assert bracket.relative_width <= 1e-8
        assert partial[name] <= bracket.high * (1 + 1e-9) + 1e-12  # terms are nonnegative


LEMMA_3_2 = {
    "exponential": ("doubly stochastic", weigh(exponential(6))),
    "directed ring": ("doubly stochastic", weigh(directed_ring(8))),
    "balanced": (
        "doubly stochastic",
        weigh(erdos_renyi(7, 0.4, seed=3), "doubly-stochastic"),
    ),
    "birkhoff 0": ("doubly stochastic", birkhoff(0)),
    "birkhoff 1": ("doubly stochastic", birkhoff(1)),
    "birkhoff 2": ("doubly stochastic", birkhoff(2)),
    "equitopo": ("doubly stochastic", equitopo(9)),
    "ring": ("symmetric", weigh(undirected_ring(6))),
    "grid": ("symmetric", weigh(grid(9), "metropolis")),
    "birkhoff 3": ("symmetric", birkhoff(3, symmetric=True)),
    "birkhoff 4": ("symmetric", birkhoff(4, symmetric=True)),
    "hypercube": ("symmetric", weigh(hypercube(8))),
    "complete": ("positive semidefinite", weigh(complete(5))),
    "lazy ring": ("positive semidefinite", weigh(undirected_ring(6), "lazy")),
    "lazy hypercube": ("positive semidefinite", weigh(hypercube(8), "lazy")),
}
CASES = pytest.mark.parametrize(("case", "net"), LEMMA_3_2.values(), ids=LEMMA_3_2)


@CASES
def test_lemma_3_2_vanishing_constants(case, net):
    c, partial = constants(net), definition_sums(dense(net), 15)
    assert c["M1"].value == pytest.approx(1 / net.n, rel=1e-14)
    assert partial["M1"] == pytest.approx(1 / net.n, rel=1e-13)
    for name in ("M2", "N1", "N2", "N3", "N4"):
        assert c[name].high == 0
        assert partial[name] <= 1e-12


@CASES
def test_lemma_3_2_doubly_stochastic_inequalities(case, net):
    c, lam = constants(net), norm(net.R.toarray() - 1 / net.n, 2)
    assert lam < 1
    assert c["N5"].low <= lam**2 / (1 - lam) ** 2 * (1 + 1e-9)
    assert c["N6"].low <= (lam**2 + lam**4) / (1 - lam**2) ** 3 * (1 + 1e-9)
    assert c["N7"].high <= 8 / (1 - lam**2) ** 3
    assert c["N8"].high <= 8 / (1 - lam) ** 2


@CASES
def test_lemma_3_2_symmetric_equalities(case, net):
    found = doubly_stochastic_case(net)
    assert found.case == case
    if case == "doubly stochastic":
        assert norm((net.R - net.R.T).toarray()) > 1e-3
        return
    c, eigenvalues = constants(net), np.linalg.eigvalsh(net.R.toarray())
    lam = max(abs(eigenvalues[0]), abs(eigenvalues[-2]))
    atol = 1e-14
    assert c["N5"].value == pytest.approx(lam**2 / (1 - lam) ** 2, rel=1e-8, abs=atol)
    assert c["N6"].value == pytest.approx((lam**2 + lam**4) / (1 - lam**2) ** 3, 1e-8, abs=atol)
    k = 1 + min(eigenvalues[0], 0)  # the corrected inequalities (E-10); printed ones for k = 1
    psd = case == "positive semidefinite"
    assert psd == (k > 1 - 1e-12)
    assert c["N7"].high <= (10 if psd else 16 / k**2) / (1 - lam)
    assert c["N8"].high <= (10 if psd else 8 / k) / (1 - lam)


@CASES
def test_lemma_3_2_as_the_library_states_it(case, net):
    c, found = constants(net), doubly_stochastic_case(net)
    forms = found.closed_forms()
    assert [f.constant for f in forms] == list(NAMES)
    equalities = [f.constant for f in forms if f.relation == "="]
    exact = ["M1", "M2", "N1", "N2", "N3", "N4"]
    assert equalities == exact + (["N5", "N6"] if case != "doubly stochastic" else [])
    for f in forms:
        if f.relation == "=":
            assert c[f.constant].value == pytest.approx(f.corrected, rel=1e-8, abs=1e-14)
        else:
            assert c[f.constant].low <= f.corrected * (1 + 1e-9)


# --- 3.2: supporting lemmas


@given(SEEDS)
def test_lemma_3_3_norm_of_a_sum_of_matrices(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 3, 5)) * rng.exponential(size=(4, 1, 1))
    alpha = rng.dirichlet(np.ones(4)) * rng.uniform(0.5, 1)
    assert norm(A.sum(0)) ** 2 <= sum(norm(M) ** 2 / a for M, a in zip(A, alpha, strict=True))
    sharp = alpha[:, None, None] / alpha.sum() * A[0]  # parallel matrices, Σα = 1: equality
    right = sum(norm(M) ** 2 / a for M, a in zip(sharp, alpha / alpha.sum(), strict=True))
    assert norm(sharp.sum(0)) ** 2 == pytest.approx(right, rel=1e-12)


@given(SEEDS)
def test_lemma_3_4_norm_of_a_product(seed):
    A, B = np.random.default_rng(seed).standard_normal((2, 4, 4))
    assert norm(A @ B) <= norm(A, 2) * norm(B) * (1 + 1e-14)


@given(SEEDS)
def test_lemma_3_5_chosen_step_attains_the_bound(seed):
    rng = np.random.default_rng(seed)
    A, B, C, alpha = np.exp(rng.normal(0, 3, 4))
    steps = int(rng.integers(2, 10**5))
    gamma = min(sqrt(A / (B * steps)), (A / (C * steps)) ** (1 / 3), 1 / alpha)
    bound = 2 * sqrt(A * B / steps) + 2 * C ** (1 / 3) * (A / steps) ** (2 / 3) + alpha * A / steps
    assert A / (gamma * steps) + B * gamma + C * gamma**2 <= bound * (1 + 1e-12)


@networks
def test_lemma_3_6_sum_of_a_convolution(net):
    d, T = dense(net), 10
    Ct, b = d.C - d.pi_C[:, None], np.random.default_rng(net.n).exponential(size=T + 1)
    a = [0.0] + [norm(d.pi_R @ power(Ct, t)) for t in range(1, T + 1)]  # as in Lemma 3.10
    left = sum(a[t - j] * b[j] for t in range(T + 1) for j in range(t + 1))
    assert left <= sum(a) * b.sum() * (1 + 1e-12)
    assert left <= constants(net)["N1"].high * b.sum() * (1 + 1e-9) + 1e-12


@networks
def test_lemma_3_7_double_sum(net):
    d, T = dense(net), 12
    moves = [d.pi_R @ (power(d.C, i + 1) - power(d.C, i)) for i in range(T)]
    a = [norm(v) for v in moves]  # as in Lemma 3.12, where the right-hand side is M2
    M2 = constants(net)["M2"].high
    for k in range(1, T):
        left = sum(a[t - j] for t in range(k + 1, T + 1) for j in range(1, k + 1))
        assert left <= sum(i * a[i] for i in range(1, T)) * (1 + 1e-12) + 1e-15
        assert left <= M2 * (1 + 1e-9) + 1e-12


# --- 3.3: the recursion


class Results(NamedTuple):
    """X⁰ .. Xᵀ, Y⁰ .. Yᵀ, G⁰ .. Gᵀ of the library's Push-Pull at a constant step."""

    X: list
    Y: list
    G: list


GAMMA, STEPS = 0.05, 9


@cache
def traced(net: Network, form: str = "atc") -> Results:
    quadratics, x = Quadratics.draw(net.n), common_start(net.n)
    method = PushPull() if form == "atc" else PushPull(y_form=form)
    made = states(method, Dense(net), quadratics.torch, x, lambda t: GAMMA, STEPS)
    X, Y = ([getattr(s, k).numpy() for s in part] for k, part in (("x", made), ("y", made[1:])))
    return Results(X, Y, [quadratics.numpy(t, points) for t, points in enumerate(X)])


EVERY_RUN = pytest.mark.parametrize("net", RUNS.values(), ids=RUNS)


@EVERY_RUN
def test_equation_2_compact_form(net):
    d, run = dense(net), traced(net)
    block = np.block([[d.R, -GAMMA * d.R], [0 * d.C, d.C]])
    for t in range(STEPS - 1):
        drift = np.vstack([0 * run.X[t], d.C @ (run.G[t + 1] - run.G[t])])
        after = block @ np.vstack([run.X[t], run.Y[t]]) + drift
        np.testing.assert_allclose(after, np.vstack([run.X[t + 1], run.Y[t + 1]]), atol=1e-12)
    np.testing.assert_allclose(run.Y[0], run.G[0], rtol=0, atol=1e-13)


@networks
def test_equation_2_powers_of_the_block_matrix(net):
    d, n = dense(net), net.n
    block = np.block([[d.R, -GAMMA * d.R], [0 * d.C, d.C]])
    for j in range(1, 6):
        corner = sum(power(d.R, k) @ power(d.C, j - k) for k in range(1, j + 1))
        np.testing.assert_allclose(power(block, j)[:n, n:], -GAMMA * corner, atol=1e-14)


@EVERY_RUN
def test_equation_for_x_closed_form(net):
    d, run = dense(net), traced(net)
    X, _, G = run
    for t in range(1, STEPS + 1):
        drift = sum(
            (
                power(d.R, k) @ power(d.C, t - j - k) @ (G[j + 1] - G[j])
                for j in range(t - 1)
                for k in range(1, t - j)
            ),
            start=np.zeros_like(X[0]),
        )
        start = sum(power(d.R, k) @ power(d.C, t - k) @ G[0] for k in range(1, t + 1))
        closed = power(d.R, t) @ X[0] - GAMMA * drift - GAMMA * start
        np.testing.assert_allclose(X[t], closed, rtol=0, atol=1e-12)


@EVERY_RUN
def test_equation_for_y_closed_form(net):
    d, (_, Y, G) = dense(net), traced(net)
    for t in range(1, STEPS):
        closed = sum(power(d.C, t - j) @ (G[j + 1] - G[j]) for j in range(t)) + power(d.C, t) @ G[0]
        np.testing.assert_allclose(Y[t], closed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["atc", "cta"])
@EVERY_RUN
def test_trackers_add_up_to_the_gradients(net, form):
    run = traced(net, form)
    for Y, G in zip(run.Y, run.G, strict=False):
        np.testing.assert_allclose(Y.sum(0), G.sum(0), rtol=0, atol=1e-12)


@EVERY_RUN
def test_centre_moves_by_the_weighted_trackers(net):
    d, run = dense(net), traced(net)
    for t in range(STEPS):
        moved = d.pi_R @ run.X[t] - GAMMA * d.pi_R @ run.Y[t]
        np.testing.assert_allclose(d.pi_R @ run.X[t + 1], moved, rtol=0, atol=1e-12)


# --- 3.3: expectations


def signs(count: int) -> np.ndarray:
    """All equally likely outcomes of ``count`` coins: expectations become exact means."""
    return 1.0 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)


def test_lemma_3_8_variance_of_a_combination():
    rng = np.random.default_rng(0)
    a, n = rng.standard_normal(4), 4
    sigmas, ways = np.array([1.0, 0.2, 0.7, 1.0]), rng.standard_normal((4, 3))
    ways /= norm(ways, axis=1, keepdims=True)
    theta = signs(n)[:, :, None] * sigmas[:, None] * ways  # E‖θᵢ‖² = σᵢ² ≤ σ² = 1
    measured = (norm(np.einsum("i,sip->sp", a, theta), axis=1) ** 2).mean()
    assert measured == pytest.approx(((a * sigmas) ** 2).sum(), rel=1e-13)
    assert measured <= a @ a


def test_lemma_3_9_noise_of_different_steps_is_uncorrelated():
    # θᵗ is as large as the model at that time, so it does depend on the steps before.
    net = Network([[0.7, 0.3], [0.4, 0.6]], [[0.8, 0.5], [0.2, 0.5]])
    R, C, n, T = net.R.toarray(), net.C.toarray(), 2, 4
    coins = signs(n * T).reshape(-1, T, n)
    a, b = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    X = np.ones((len(coins), n))
    theta = [coins[:, 0] * (1 + X**2) ** 0.5]
    G = Y = X - [0.0, 1.0] + theta[0]
    for t in range(1, T):
        X = (X - 0.2 * Y) @ R.T
        theta.append(coins[:, t] * (1 + X**2) ** 0.5)
        after = X - [0.0, 1.0] + theta[-1]
        Y, G = (Y + after - G) @ C.T, after
    for i in range(T):
        for j in range(T):
            product = ((theta[i] @ a) * (theta[j] @ b)).mean()
            assert (abs(product) < 1e-12) == (i != j)
    dependent = np.corrcoef(np.abs(theta[1][:, 0]), theta[0][:, 0])[0, 1]
    assert abs(dependent) > 0.1  # uncorrelated, yet not independent


class Measured(NamedTuple):
    """Sums over t = 0 .. T, averaged over seeds, of a run on noisy quadratics with L = 1."""

    setting: Setting
    gradients: float  # Σ ‖∇f(xhatᵗ)‖²
    moves: float  # Σ ‖ΔX̄ᵗ‖²_F
    spreads: float  # Σ ‖Π_R Xᵗ‖²_F


@cache
def simulate(net: Network, gamma: float, T: int, sigma: float = 1.0, seeds: int = 12) -> Measured:
    """S-PP in plain NumPy on fᵢ(x) = ½ Σₖ aᵢₖ (xₖ - bᵢₖ)²."""
    d, rng, p = dense(net), np.random.default_rng(0), 2
    a, b = rng.uniform(0.3, 1, (d.n, p)), 2 * rng.standard_normal((d.n, p))
    a[0, 0] = 1.0
    best = (a * b).mean(0) / a.mean(0)
    X = np.zeros((seeds, d.n, p)) + best + [3.0, -2.0]

    def sample(X):
        return a * (X - b) + sigma / sqrt(p) * rng.standard_normal(X.shape)

    def mean_gradient(centre):
        return a.mean(0) * (centre - best)

    delta = 0.5 * (a.mean(0) * np.array([9.0, 4.0])).sum()
    F0 = ((a * (X[0] - b)) ** 2).sum() / d.n
    G = Y = sample(X)
    centre = d.pi_R @ X
    totals = np.zeros(3)
    for _ in range(T + 1):
        X_next = d.R @ (X - gamma * Y)
        after = d.pi_R @ X_next
        totals += (
            (mean_gradient(centre) ** 2).sum() / seeds,
            d.n * ((after - centre) ** 2).sum() / seeds,
            ((X - centre[:, None]) ** 2).sum() / seeds,
        )
        G_next = sample(X_next)
        Y, G, X, centre = d.C @ (Y + G_next - G), G_next, X_next, after
    return Measured(Setting(1.0, sigma, float(delta), float(F0), T), *totals)


def largest_step(net: Network) -> float:
    """The step that both Lemma 3.10 and Lemma 3.11 allow, at most 1/5."""
    c, n = constants(net), net.n
    return 1 / max(5.0, 6 * sqrt(n) * c["N1"].high, 20 * sqrt(c.P1.high))


@EVERY_RUN
def test_lemma_3_10_moves_of_the_centre(net):
    c, n, gamma = constants(net), net.n, largest_step(net)
    s, gradients, moves, spreads = simulate(net, gamma, 1000)
    right = (
        4 * n * c["M1"].value * s.sigma**2 * (s.T + 1)
        + 96 * n * max(c["N1"].value ** 2, n * c.pi**2) * spreads
        + 24 * n**3 * c.pi**2 * gradients
        + 12 * n * c["N2"].value * n * s.F0
    )
    assert moves <= gamma**2 * right
    assert moves >= gamma**2 * right / 100  # the comparison is not an empty one


@EVERY_RUN
def test_lemma_3_11_disagreement(net):
    c, n, gamma = constants(net), net.n, largest_step(net)
    s, gradients, _, spreads = simulate(net, gamma, 1000)
    N3, N5 = c["N3"].value, c["N5"].value
    right = (
        864 * max(c["N4"].value, c["N7"].value) * n * s.sigma**2 * (s.T + 1)
        + 2400 * gamma**2 * n * c["M1"].value * N5**2 * s.sigma**2 * (s.T + 1)
        + 210 * max(c["N2"].value * N5 / c.pi, c["N6"].value) * n * s.F0
        + 240 * n * max(n * N3**2, n * c.pi * N5) * gradients
    )
    assert spreads <= gamma**2 * right + 1e-20


@networks
@example(weigh(multi_sub_ring(8, "nested")))
def test_lemma_3_12_formulas_of_p_and_q(net):
    c, n, pi = constants(net), net.n, perron(net).pi
    M1, M2, N1, N2, N3, _, N5, N6, _, N8 = (c[name].value for name in NAMES)
    M2 = 0.0 if c.tree_rule_applies else M2
    P1 = max(n * N1**2, n * N3**2, N8**2, sqrt(n) * N1 * N5, n * pi * N5)
    P2 = max((n * pi) ** 2, n * N1**2, n * N1**2 * M2, (n * pi * M2) ** 2)
    P3 = max((n * pi) ** 2, N1**4 / pi**2, N3**4 / pi**2)
    S = sqrt(max(P2, P3))
    P5 = max(N2 / pi, N2 / (n * pi**2), N6 / max(N5, S))
    expected = {"P1": P1, "P2": P2, "P3": P3, "P4": S * N5, "P5": P5}
    expected |= {"Q": max(M1, M2, M1 * M2), "M2_tilde": M2, "S": S}
    for name, value in expected.items():
        assert getattr(c, name).value == pytest.approx(value, rel=1e-6, abs=1e-14), name
    largest = sqrt(max(P1, P2, P3, S * N5))
    assert gamma_max(c, 2.0) == pytest.approx(1 / (1000 * largest), rel=1e-6)


@networks
def test_lemma_3_12_terms_of_the_bound(net):
    c, s, gamma = constants(net), Setting(2.0, 0.5, 3.0, 7.0, 99), 0.01
    n_pi, noise = net.n * perron(net).pi, s.sigma**2
    S, worst = c.S.value, max(c["N4"].value, c["N7"].value)
    expected = [
        100 * c.Q.value * noise * s.L * gamma / n_pi,
        80_000 * S * worst * noise * s.L**2 * gamma**2 / n_pi,
        10 * s.delta_f / (gamma * n_pi * 100),
        200_000 * S * c["M1"].value * c["N5"].value ** 2 * noise * s.L**4 * gamma**4 / n_pi,
        30 * c.P5.value * s.F0 / (n_pi * 100),
        0.0,  # the noise of the first gradients, which the paper leaves out (E-2b)
    ]
    found = list(asdict(explicit_bound(c, s, gamma, as_printed=True)).values())
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-14)


@EVERY_RUN
def test_lemma_3_12_explicit_bound(net):
    c = constants(net)
    gamma = gamma_max(c, 1.0)
    s, gradients, _, _ = simulate(net, gamma, 10_000)
    bound = explicit_bound(c, s, gamma).total
    assert gradients / (s.T + 1) <= bound
    assert gradients / (s.T + 1) >= bound / 200  # the comparison is not an empty one
