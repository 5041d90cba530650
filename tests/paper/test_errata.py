"""docs/errata.md, number by number: what the paper prints fails, what digrad computes holds."""

from functools import cache
from math import inf, sqrt

import numpy as np
import pytest

from digrad.algorithms import PushPull
from digrad.base.errors import NetworkError
from digrad.networks import (
    Digraph,
    Network,
    binary_tree,
    build,
    directed_ring,
    erdos_renyi,
    exponential,
    multi_sub_ring,
    spanning_tree,
    undirected_ring,
    weigh,
)
from digrad.runs.schedules import StepDecay
from digrad.theory import (
    RateConstants,
    Setting,
    certified_bound,
    constants,
    doubly_stochastic_case,
    explicit_bound,
    gamma_best,
    gamma_max,
    gamma_theorem,
    noise_arrives_first,
    perron,
    sgd_bound,
    transient_time,
)
from digrad.theory.expectation import Diagonal, expected_average
from digrad.theory.tree_rule import push_depths
from mixers import Dense, Quadratics, common_start, states
from theory.brute_force import definition_sums, exact

FLOWER = weigh(multi_sub_ring(8))
ROOTED = Network(binary_tree(6).R, weigh(erdos_renyi(6, 0.4, seed=1)).C)
norm, power = np.linalg.norm, np.linalg.matrix_power
GAMMA, STEPS = 0.05, 9


@cache
def run(net: Network, form: str = "atc"):
    """(X⁰ ..), (Y⁰ ..), (G⁰ ..) of the library."""
    quadratics, x = Quadratics.draw(net.n), common_start(net.n)
    method = PushPull() if form == "atc" else PushPull(y_form=form)
    made = states(method, Dense(net), quadratics.torch, x, lambda t: GAMMA, STEPS)
    X = [s.x.numpy() for s in made]
    return X, [s.y.numpy() for s in made[1:]], [quadratics.numpy(t, x) for t, x in enumerate(X)]


def symmetric_ring(n: int, own: float) -> Network:
    side = (1 - own) / 2 * np.roll(np.eye(n), 1, axis=0)
    W = own * np.eye(n) + side + side.T
    return Network(W, W)


def test_e_1_printed_index_breaks_the_sum_of_the_trackers():
    C = FLOWER.C.toarray()
    _, Y, G = run(FLOWER)
    for t in range(STEPS - 1):
        dG = G[t + 1] - G[t]
        printed = C @ Y[t] + C.sum(axis=1, keepdims=True) * dG  # Σⱼ cᵢⱼ (yⱼ + gᵢ⁺ - gᵢ)
        assert np.abs(printed.sum(0) - G[t + 1].sum(0)).max() > 1e-3
        np.testing.assert_allclose(Y[t + 1], C @ (Y[t] + dG), rtol=0, atol=1e-13)
        np.testing.assert_allclose(Y[t + 1].sum(0), G[t + 1].sum(0), rtol=0, atol=1e-12)


def test_e_2_printed_order_is_the_other_tracker():
    C = FLOWER.C.toarray()
    X, Y, G = run(FLOWER, "cta")
    for t in range(STEPS - 1):
        np.testing.assert_allclose(Y[t + 1], C @ Y[t] + G[t + 1] - G[t], rtol=0, atol=1e-13)
    assert norm(X[-1] - run(FLOWER)[0][-1]) > 1e-3  # a different algorithm


@pytest.mark.parametrize("net", [FLOWER, ROOTED])
def test_e_2b_identity_for_the_trackers_fails_at_the_start_only(net):
    C, pi_C = net.C.toarray(), perron(net).pi_C
    _, Y, G = run(net)
    Pi_C = np.eye(net.n) - pi_C[:, None]
    Ct = [Pi_C @ power(C, k) for k in range(STEPS + 1)]
    for t in range(STEPS):
        right = sum((Ct[t - j + 1] - Ct[t - j]) @ G[j] for j in range(1, t)) + Ct[1] @ G[t]
        error = np.abs(Pi_C @ Y[t] - right).max()
        assert error < 1e-12 if t else error > 0.1
    np.testing.assert_allclose(Pi_C @ Y[0], Pi_C @ G[0], rtol=0, atol=1e-13)


def test_e_2b_lemma_3_10_fails_for_a_single_step():
    n, gamma, sigma = 10, 0.1, 1.0
    R, J = np.zeros((n, n)), np.full((n, n), 1 / n)
    R[:, 0] = 1
    c = constants(Network(R, J))
    # Without gradients, X̄¹ - X̄⁰ = -γ 1 π_Rᵀ θ⁰ and E‖π_Rᵀ θ⁰‖² = ‖π_R‖² σ² = σ².
    theta = 1.0 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    left = gamma**2 * n * ((theta @ perron(Network(R, J)).pi_R) ** 2).mean()
    right = 4 * gamma**2 * n * c["M1"].value * sigma**2
    assert left == pytest.approx(1.0 * gamma**2 * n * sigma**2)
    assert right == pytest.approx(0.4 * gamma**2 * n * sigma**2)


@pytest.mark.parametrize("net", [FLOWER, ROOTED])
def test_e_2b_coefficient_of_the_first_noise(net):
    p, n = perron(net), net.n
    Pi_R, Pi_C = np.eye(n) - p.pi_R, np.eye(n) - p.pi_C[:, None]
    Rt = [Pi_R @ power(net.R.toarray(), k) for k in range(9)]
    Ct = [Pi_C @ power(net.C.toarray(), k) for k in range(9)]
    A = [sum((Rt[k] @ Ct[t + 1 - k] for k in range(1, t + 1)), 0 * Pi_R) for t in range(8)]
    for t in range(2, 8):
        # H_{2,t,1} = Σⱼ A_{t-j-1} (θʲ⁺¹ - θʲ) + B_t θ⁰
        B = sum(Rt[k] @ Ct[t - k] for k in range(1, t + 1))
        first = B - A[t - 1]
        np.testing.assert_allclose(first, Rt[t] @ Pi_C, rtol=0, atol=1e-13)
        assert norm(first - (A[t] - A[t - 1])) > 1e-3  # what the paper has instead


def test_e_2b_not_harmless_and_mended():
    # Noise alone, from the optimum: x̂ gets π_Rᵀθ⁰ at once and pays for it ever after.
    net = Network([[1, 0], [1, 0]], [[1e-4, 1e-4], [1 - 1e-4, 1 - 1e-4]])
    c, s = constants(net), Setting(delta_f=1e-30, F0=0.0, T=512)
    step = gamma_max(c, s.L)
    found = expected_average(net, Diagonal(np.ones((2, 1)), np.zeros((2, 1)), 1.0), step, s.T)
    assert found == pytest.approx(42.5, rel=2e-3)
    assert explicit_bound(c, s, step, as_printed=True).total < 0.11 < found
    assert found <= explicit_bound(c, s, step).total


def test_e_20_a_large_q_costs_time_and_not_the_leading_term():
    n = 64
    net = Network(np.eye(1, n).repeat(n, axis=0), weigh(exponential(n)).C)
    c, s = constants(net), Setting(T=10**15)
    ours = RateConstants.of(c)
    assert c.speedup_ratio.low > 70
    assert certified_bound(ours, s, gamma_best(ours, s)) < 1.04 * sgd_bound(s, n)


def test_e_3_step_of_the_theorem_has_the_missing_t():
    c = constants(symmetric_ring(8, 0.001))  # mixes so badly that the first entry can decide
    for T in (10**6, 4 * 10**6):
        s = Setting(sigma=1e6, T=T)
        printed = (1 / (c.S.value * c["N7"].value * s.sigma**2)) ** (1 / 3)
        corrected = printed / (T + 1) ** (1 / 3)
        square = sqrt(1 / (c.Q.value * s.sigma**2 * (T + 1)))
        assert corrected < min(square, gamma_max(c, 1.0)) < printed
        assert gamma_theorem(c, s) == pytest.approx(corrected, rel=1e-7)


@pytest.mark.parametrize("net", [FLOWER, binary_tree(7), ROOTED])
def test_e_4_last_term_of_the_bound_has_one_n(net):
    c, s = constants(net), Setting(F0=2.5, T=99)
    found = explicit_bound(c, s, gamma_max(c, 1.0)).initial
    printed = 30 * c.P5.value * s.F0 / (net.n**2 * c.pi * (s.T + 1))
    assert found == pytest.approx(net.n * printed, rel=1e-7)


@pytest.mark.parametrize("W", [np.eye(4), np.eye(4)[[1, 2, 3, 0]], np.eye(4)[[1, 0, 3, 2]]])
def test_e_7_identity_and_permutations_are_refused(W):
    with pytest.raises(NetworkError, match=r"Assumption 2\.1|Definition 2\.3"):
        Network(W, W)


def test_e_7_primitive_doubly_stochastic_without_contraction():
    W = np.array([[0, 1, 0], [0.5, 0, 0.5], [0.5, 0, 0.5]])
    net = Network(W, W)  # valid: it does decay, but not from the first step
    assert norm(W - 1 / 3, 2) == pytest.approx(1, rel=1e-14)
    assert doubly_stochastic_case(net) is None
    assert constants(net)["N8"].high < inf


@pytest.mark.parametrize(("lam", "claim"), [(0.1, False), (0.3, False), (0.4, False), (0.5, True)])
def test_e_8_n6_at_most_the_square_of_n5(lam, claim):
    W = (1 - lam) / 6 + lam * np.eye(6)
    net = Network(W, W)
    c = constants(net)
    assert doubly_stochastic_case(net).lam == pytest.approx(lam, rel=1e-12)
    assert (c["N6"].high <= c["N5"].low ** 2) == claim
    if lam == 0.1:
        assert c["N6"].value == pytest.approx(1.04e-2, rel=5e-3)
        assert c["N5"].value ** 2 == pytest.approx(1.5e-4, rel=2e-2)


def test_e_8_p5_is_finite_where_the_printed_one_is_not():
    J = np.full((5, 5), 0.2)
    c = constants(Network(J, J))
    assert c["N5"].high == c["N6"].high == 0  # N6/N5 is 0/0
    assert c.P5.high == 0
    u, v = np.array([1, -1, 0]), np.array([1, 1, -2])
    W = 1 / 3 + 0.1 * np.outer(u, v)  # (W - J)² = 0 ≠ W - J: N6/N5 is infinite
    c = constants(Network(W, W))
    assert c["N5"].high < 1e-14
    assert c["N6"].value == pytest.approx(0.01 * 2 * 6, rel=1e-9)
    assert c.P5.value == pytest.approx(c["N6"].value, rel=1e-9)


@pytest.mark.parametrize("net", [FLOWER, ROOTED, weigh(undirected_ring(9))])
def test_e_8_p5_is_never_larger_than_the_printed_one(net):
    c, n = constants(net), net.n
    printed = max(
        c["N2"].value / c.pi, c["N2"].value / (n * c.pi**2), c["N6"].value / c["N5"].value
    )
    assert c.P5.high <= printed * (1 + 1e-7)


def overtaken(net: Network, tracker: str) -> bool:
    """Whether some noise has moved the root's model when it arrives at the root's tracker.

    The derivative of everything by the noise of node k at one step, on random quadratics.
    """
    R, C, n, root = net.R.toarray(), net.C.toarray(), net.n, int(net.roots[0])
    H = np.random.default_rng(0).uniform(0.5, 1.5, (n, 1))
    depth, DX, DG = push_depths(net), np.zeros((n, n)), np.eye(n)
    DY = C if tracker == "atc" else np.eye(n)  # columns: the node whose noise it is
    lag = depth - 1 if tracker == "atc" else depth
    for step in range(1, lag.max() + 1):
        DX = R @ (DX - 0.7 * DY)
        DG_next = H * DX
        move = DG_next - DG
        DY = C @ (DY + move) if tracker == "atc" else C @ DY + move
        DG = DG_next
        if (np.abs(DX[root, (lag == step) & (depth >= 2)]) > 1e-12).any():
            return True
    return False


@pytest.mark.parametrize("n", [7, 10, 13, 15, 20])
def test_e_9_tree_rule_applies_to_one_tree_both_ways(n):
    for net in (binary_tree(n), binary_tree(n, branching=3)):
        for tracker in ("atc", "cta"):
            assert noise_arrives_first(net, tracker=tracker)
            assert not overtaken(net, tracker)
        assert constants(net).M2_tilde.high == 0 < constants(net)["M2"].low


@pytest.mark.parametrize("n", [5, 8, 20])
def test_e_9_tree_rule_fails_for_the_trees_of_a_directed_ring(n):
    net = spanning_tree(n, root=0)
    assert not noise_arrives_first(net)
    assert overtaken(net, "atc")
    assert noise_arrives_first(net, tracker="cta")
    assert not overtaken(net, "cta")
    assert noise_arrives_first(net, rule="paper")
    assert not noise_arrives_first(net, rule="never", tracker="cta")
    c, paper = constants(net), constants(net, tree_rule="paper")
    assert c.M2_tilde == c["M2"]
    assert paper.M2_tilde.high == 0


def test_e_9_reachability_test_agrees_with_exact_derivatives():
    found = []
    for seed in range(8):
        net = weigh(erdos_renyi(12, 0.2, seed=seed), "spanning-tree")
        found.append(overtaken(net, "atc"))
        assert noise_arrives_first(net) != found[-1]
        assert noise_arrives_first(net, tracker="cta")
        assert not overtaken(net, "cta")
    assert sum(found) > 0


# self weight, λ_n, N7, printed bound, N8, printed bound; in the paper's lemma both bounds hold
E_10 = [
    (1 / 3, -0.333, 0.731, 76.8, 2.73, 62.7),
    (0.05, -0.90, 691, 1000, 162, 316),
    (0.02, -0.96, 13_500, 6_250, 1_150, 1_250),
    (0.01, -0.98, 116_000, 25_000, 4_800, 3_540),
    (0.005, -0.99, 965_000, 100_000, 19_600, 10_000),
]


@pytest.mark.parametrize(("own", "smallest", "N7", "bound_7", "N8", "bound_8"), E_10)
def test_e_10_printed_bounds_on_n7_and_n8(own, smallest, N7, bound_7, N8, bound_8):
    net = symmetric_ring(8, own)
    c, found = constants(net), doubly_stochastic_case(net)
    assert found.case == "symmetric"
    assert found.smallest == pytest.approx(smallest, rel=2e-3)
    forms = {f.constant: f for f in found.closed_forms()}
    for name, value, bound in (("N7", N7, bound_7), ("N8", N8, bound_8)):
        assert c[name].value == pytest.approx(value, rel=5e-3)
        assert forms[name].printed == pytest.approx(bound, rel=5e-3)
        assert c[name].high <= forms[name].corrected
    assert (c["N7"].low > forms["N7"].printed) == (own <= 0.02)
    assert (c["N8"].low > forms["N8"].printed) == (own <= 0.01)


def test_e_10_corrected_rate_and_transient_time():
    found = doubly_stochastic_case(symmetric_ring(8, 0.01))
    s, k = Setting(), found.c
    printed, corrected = found.rate(s, printed=True), found.rate(s)
    assert corrected.disagreement / printed.disagreement == pytest.approx(k ** (-1 / 3))
    assert corrected.start / printed.start == pytest.approx(k ** (-1 / 2))
    assert found.transient_order() / found.transient_order(printed=True) == pytest.approx(k**-2)


@pytest.mark.parametrize("n", [5, 8, 9])
def test_e_11_equalities_for_n5_and_n6(n):
    for own in (0.05, 0.2, 1 / 3, 0.4, 0.5, 0.7, 0.9):
        net = symmetric_ring(n, own)
        c, lam = constants(net), norm(net.R.toarray() - 1 / n, 2)
        assert c["N5"].value == pytest.approx(lam**2 / (1 - lam) ** 2, rel=1e-6)
        assert c["N6"].value == pytest.approx((lam**2 + lam**4) / (1 - lam**2) ** 3, rel=1e-6)


@pytest.mark.parametrize("graph", [directed_ring(8), exponential(8), exponential(6)])
def test_e_11_equalities_hold_for_normal_weights(graph):
    net = weigh(graph)
    c, lam = constants(net), norm(net.R.toarray() - 1 / net.n, 2)
    assert norm((net.R - net.R.T).toarray()) > 0.1
    assert c["N5"].value == pytest.approx(lam**2 / (1 - lam) ** 2, rel=1e-6)
    assert c["N6"].value == pytest.approx((lam**2 + lam**4) / (1 - lam**2) ** 3, rel=1e-6)


def test_e_11_zeroth_power_is_the_projection():
    net = Network([[0.5, 0.5, 0], [0.2, 0.5, 0.3], [0, 0.1, 0.9]], weigh(directed_ring(3)).C)
    net = Network(net.R, Network(net.C, net.R.T).C)  # π_C is not uniform: C = Rᵀ
    c, sums = constants(net), definition_sums(exact(net), 150)
    for name, bracket in c.values.items():  # the definition with R̃⁰ = Π_R and C̃⁰ = Π_C
        assert bracket.value == pytest.approx(sums[name], rel=1e-5), name
    p, T = perron(net), 150
    Rt = [power(net.R.toarray() - p.pi_R, k) for k in range(T + 1)]
    Ct = [power(net.C.toarray() - p.pi_C[:, None], k) for k in range(T + 1)]  # Ct[0] = I
    printed = [sum(Rt[k] @ Ct[t - k] for k in range(1, t + 1)) for t in range(1, T + 1)]
    N6 = sum(norm(B, 2) ** 2 for B in printed)
    assert abs(N6 - c["N6"].value) > 1e-2 * N6


def test_e_12_smallest_ratio_found():
    n, e = 4, 0.634
    R, C = np.zeros((n, n)), (1 - e) * np.eye(n)
    R[:, 0] = 1
    C[0] = [1, e, e, e]
    assert constants(Network(R, C)).speedup_ratio.value == pytest.approx(0.598, abs=5e-4)


def test_e_13_without_noise_terms_are_dropped():
    c = constants(FLOWER)
    s = Setting(sigma=0.0)
    assert gamma_theorem(c, s) == gamma_max(c, s.L)
    assert transient_time(c, s) == inf
    bound = explicit_bound(c, s, gamma_max(c, s.L))
    assert bound.sampling == bound.disagreement == bound.tracking == 0 < bound.initial


def test_e_14_decay_of_80_percent_leaves_a_fifth():
    decay = StepDecay()
    assert [decay(t) for t in (0, 299, 300, 599)] == pytest.approx([1, 1, 0.2, 0.2])
    assert decay(600) == pytest.approx(0.04)


def rings(heads: int, size: int) -> list[tuple[int, int]]:
    """Separate directed rings; node k·size is the head of the k-th."""
    starts = range(0, heads * size, size)
    return [(s + i, s + (i + 1) % size) for s in starts for i in range(size)]


RING_20 = rings(1, 20)
E_18 = {
    "flower": (multi_sub_ring(20), 1.3233, 1.3233),
    "flower, K = 5": (multi_sub_ring(20, sub_ring_size=5), 1.1570, 1.1570),
    "flower, K = 4": (multi_sub_ring(20, sub_ring_size=6), 1.0925, 1.0925),
    "flower, n = 8": (multi_sub_ring(8), 1.0864, 1.0864),
    "clique-heads": (multi_sub_ring(20, "clique-heads"), 1.3333, 1.3333),
    "nested": (multi_sub_ring(20, "nested"), 1.1982, 1.3577),
    "nested, n = 8": (multi_sub_ring(8, "nested"), 1.1733, 1.1886),
    "chords from 0": (Digraph(20, RING_20 + [(0, 2**k) for k in (1, 2, 3, 4)]), 1.3837, 1.1446),
    "4 rings in a ring": (
        Digraph(20, rings(4, 5) + [(5 * k, 5 * ((k + 1) % 4)) for k in range(4)]),
        1.033,
        1.033,
    ),
    "5 rings, two-way": (
        Digraph(
            20,
            rings(5, 4)
            + [(4 * k, 4 * ((k + 1) % 5)) for k in range(5)]
            + [(4 * ((k + 1) % 5), 4 * k) for k in range(5)],
        ),
        1.120,
        1.120,
    ),
}


@pytest.mark.parametrize(("graph", "reverse", "same"), E_18.values(), ids=E_18)
def test_e_18_n_pi_of_sub_ring_graphs(graph, reverse, same):
    assert perron(weigh(graph, push_graph="reverse")).n_pi == pytest.approx(reverse, abs=6e-4)
    assert perron(weigh(graph)).n_pi == pytest.approx(same, abs=6e-4)


def test_e_18_no_layout_is_the_1_35_of_the_paper():
    for layout in ("flower", "nested", "clique-heads"):
        for push_graph in ("same", "reverse"):
            net = build("multi-sub-ring", 20, params={"layout": layout}, push_graph=push_graph)
            assert round(perron(net).n_pi, 2) != 1.35


@pytest.mark.parametrize("seed", range(5))
def test_e_19_reversed_push_graph_gives_the_transpose(seed):
    graph = erdos_renyi(9, 0.3, seed=seed)
    net, same = weigh(graph, push_graph="reverse"), weigh(graph)
    p = perron(net)
    np.testing.assert_allclose(net.C.toarray(), net.R.toarray().T, rtol=1e-15)
    np.testing.assert_allclose(p.pi_C, p.pi_R, rtol=1e-14)
    assert p.n_pi == pytest.approx(net.n * (p.pi_R**2).sum(), rel=1e-14)
    assert p.n_pi >= 1
    assert same.push_graph == same.pull_graph == graph
    assert np.abs(same.C.toarray() - same.R.toarray().T).max() > 0.1


@pytest.mark.parametrize(("p", "reverse", "same"), [(0.3, 1.15, 0.96), (0.5, 1.057, 0.993)])
def test_e_19_medians_of_n_pi(p, reverse, same):
    graphs = [erdos_renyi(20, p, seed=seed) for seed in range(80)]
    for push_graph, median in (("reverse", reverse), ("same", same)):
        found = [perron(weigh(graph, push_graph=push_graph)).n_pi for graph in graphs]
        assert np.median(found) == pytest.approx(median, abs=0.03 if p < 0.5 else 0.008)
