"""Section 4: the theorem, its corollaries for doubly stochastic weights, and linear speedup."""

from dataclasses import asdict
from math import ceil, inf, pi, sqrt

import numpy as np
import pytest
from hypothesis import example, given

from digrad.networks import (
    Network,
    binary_tree,
    complete,
    directed_ring,
    equitopo,
    erdos_renyi,
    exponential,
    grid,
    multi_sub_ring,
    path,
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
    gamma_theorem,
    perron,
    rate,
    transient_time,
)
from digrad.theory.tree_rule import push_depths
from theory.brute_force import any_networks, tree_pairs

GENERAL = {
    "flower": weigh(multi_sub_ring(7)),
    "star": weigh(star(4)),
    "path": weigh(path(3), push_graph="reverse"),
    "erdos-renyi": weigh(erdos_renyi(5, 0.6, seed=1)),
    "tree": binary_tree(4),
    "tree pair": spanning_tree(4, root=0),
}
DOUBLY = {
    "directed ring": weigh(directed_ring(6)),
    "exponential": weigh(exponential(7)),
    "balanced": weigh(erdos_renyi(6, 0.5, seed=4), "doubly-stochastic"),
    "equitopo": equitopo(9),
    "ring": weigh(undirected_ring(5)),
    "grid": weigh(grid(6), "metropolis"),
    "lazy ring": weigh(undirected_ring(6), "lazy"),
    "complete": weigh(complete(4)),
}
TREES = [binary_tree(7), binary_tree(13, branching=3), spanning_tree(8, root=0)]
EVERY = pytest.mark.parametrize("net", [*GENERAL.values(), *DOUBLY.values()], ids=GENERAL | DOUBLY)
EVERY_DOUBLY = pytest.mark.parametrize("net", DOUBLY.values(), ids=DOUBLY)


def networks(test):
    """Named topologies, then random networks: strongly connected, only rooted, trees."""
    for net in [*GENERAL.values(), *DOUBLY.values(), *TREES]:
        test = example(net)(test)
    return given(any_networks(7))(test)


# --- Theorem 4.1


@EVERY
def test_theorem_4_1_step(net):
    c = constants(net)
    S, noisy = sqrt(max(c.P2.value, c.P3.value)), max(c["N4"].value, c["N7"].value)
    for s in (
        Setting(T=100),
        Setting(2.0, 0.5, 3.0, 1.0, 10**8),
        Setting(1.0, 9.0, 0.1, 1.0, 4000),
    ):
        noise = s.sigma**2 * s.L * (s.T + 1)
        cubic = (s.delta_f / (S * noisy * s.L * noise)) ** (1 / 3) if noisy else inf
        square = sqrt(s.delta_f / (c.Q.value * noise))
        expected = min(cubic, square, gamma_max(c, s.L))
        assert gamma_theorem(c, s) == pytest.approx(expected, rel=1e-7)


@EVERY
def test_theorem_4_1_rate_follows_from_the_lemma(net):
    # The proof: Lemma 3.5 for the first three terms of Lemma 3.12, γ² ≤ Δf/(Qσ²L(T + 1))
    # in the fourth; so these factors, and no others, stand before the terms of the theorem.
    c, factors = constants(net), np.array([110, 80_010, 5000, 200_000, 30])
    for T in (10, 10**4, 10**7, 10**11):
        for s in (Setting(T=T), Setting(2.0, 0.1, 5.0, 3.0, T)):
            bound = explicit_bound(c, s, gamma_theorem(c, s), as_printed=True).total
            terms = np.array(list(asdict(rate(c, s)).values()))[:5]
            assert bound <= factors @ terms * (1 + 1e-9)


def test_theorem_4_1_orders_in_t():
    c = constants(GENERAL["flower"])
    early, late = (asdict(rate(c, Setting(T=T - 1))) for T in (10**4, 10**8))
    orders = {"sampling": 2, "disagreement": 8 / 3, "start": 4, "tracking": 8, "initial": 4}
    for name, order in orders.items():
        assert early[name] / late[name] == pytest.approx(10**order, rel=1e-12)


def measured(net: Network, sigma: float, T: int, seeds: int = 12) -> tuple[float, Setting, float]:
    """Run S-PP at the step of the theorem; mean of ‖∇f(xhatᵗ)‖² over t = 0 .. T and seeds."""
    n, p, rng = net.n, 2, np.random.default_rng(1)
    R, C, pi_R = net.R.toarray(), net.C.toarray(), perron(net).pi_R
    a, b = rng.uniform(0.3, 1, (n, p)), 2 * rng.standard_normal((n, p))
    a[0, 0] = 1.0  # L = 1
    best, start = (a * b).mean(0) / a.mean(0), np.array([3.0, -2.0])
    X = np.zeros((seeds, n, p)) + best + start
    delta, F0 = 0.5 * (a.mean(0) * start**2).sum(), ((a * (X[0] - b)) ** 2).sum() / n
    s = Setting(1.0, sigma, float(delta), float(F0), T)
    gamma, total = gamma_theorem(constants(net), s), 0.0

    def sample(X):
        return a * (X - b) + sigma / sqrt(p) * rng.standard_normal(X.shape)

    G = Y = sample(X)
    for _ in range(T + 1):
        total += ((a.mean(0) * (pi_R @ X - best)) ** 2).sum() / seeds
        X = R @ (X - gamma * Y)
        after = sample(X)
        Y, G = C @ (Y + after - G), after
    return total / (T + 1), s, gamma


@pytest.mark.parametrize("sigma", [1.0, 400.0])
@pytest.mark.parametrize("name", [*GENERAL, "ring", "complete", "exponential"])
def test_theorem_4_1_bounds_the_measured_gradients(name, sigma):
    net = (GENERAL | DOUBLY)[name]
    c = constants(net)
    found, s, gamma = measured(net, sigma, T=5000)
    if sigma == 400:  # loud enough that noise, not 1/(500 L ..), decides the step
        assert gamma < gamma_max(c, 1.0)
    bound = explicit_bound(c, s, gamma).total
    assert found <= bound
    assert found >= bound / 3000  # the comparison is not an empty one


# --- Corollary 4.1 and Remarks 4.1, 4.2


@EVERY_DOUBLY
def test_corollary_4_1_special_values(net):
    c = constants(net)
    N5, N6, N8 = (c[name].value for name in ("N5", "N6", "N8"))
    assert c.pi == pytest.approx(1 / net.n, rel=1e-14)
    assert c.P2.value == pytest.approx(1, rel=1e-13)
    assert c.P3.value == pytest.approx(1, rel=1e-13)
    assert c.Q.value == pytest.approx(1 / net.n, rel=1e-13)
    assert c.P1.value == pytest.approx(max(N8**2, N5), rel=1e-8)
    assert c.P4.value == pytest.approx(N5, rel=1e-8)
    assert c.P5.value == pytest.approx(N6 / max(N5, 1), rel=1e-8)  # N6/N5 in print (E-8)


@EVERY_DOUBLY
def test_corollary_4_1_rate(net):
    # Lemma 3.2 in Theorem 4.1, with the numerical factors of the lemma.
    c, found = constants(net), doubly_stochastic_case(net)
    for s in (Setting(), Setting(2.0, 0.3, 5.0, 7.0, 10**5)):
        mine, theirs = asdict(rate(c, s)), asdict(found.rate(s))
        assert mine["sampling"] == pytest.approx(theirs["sampling"], rel=1e-12)
        factors = {"disagreement": 16 ** (1 / 3), "start": 10, "tracking": 1, "initial": 2}
        for name, factor in factors.items():
            assert mine[name] <= factor * theirs[name] * (1 + 1e-9), name


def test_corollary_4_1_cases_order_as_the_paper_says():
    # A positive semidefinite W has the smallest bound, one that is only balanced the largest.
    s = Setting()
    W = weigh(undirected_ring(6), "lazy")
    psd = doubly_stochastic_case(W)
    general = type(psd)("doubly stochastic", 6, psd.lam, None)
    symmetric = type(psd)("symmetric", 6, psd.lam, -0.5)
    assert psd.c == 1
    assert symmetric.c == 0.5
    assert psd.rate(s).total < symmetric.rate(s, printed=True).total < symmetric.rate(s).total
    assert psd.rate(s).total < general.rate(s).total


EXPONENTS = {"disagreement": 2 / 3, "start": 1.0, "tracking": 2.0, "initial": 1.0}


def crossing(found, printed: bool) -> float:
    """When the first term of Corollary 4.1 overtakes the last of the others."""
    terms = asdict(found.rate(Setting(T=0), printed=printed))
    first = terms["sampling"]
    return max((terms[k] / first) ** (1 / (e - 1 / 2)) for k, e in EXPONENTS.items())


def test_remark_4_1_transient_time_of_doubly_stochastic_weights():
    for net in (DOUBLY["directed ring"], DOUBLY["exponential"], DOUBLY["balanced"]):
        found = doubly_stochastic_case(net)
        assert found.case == "doubly stochastic"
        expected = found.n**3 / (1 - found.lam) ** 6
        assert found.transient_order() == pytest.approx(expected, rel=1e-12)
        assert crossing(found, printed=False) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["ring", "grid", "lazy ring", "complete"])
def test_remark_4_2_transient_time_of_symmetric_weights(name):
    found = doubly_stochastic_case(DOUBLY[name])
    n, gap, k = found.n, 1 - found.lam, found.c
    for printed, power in ((True, 2), (False, 4)):  # n³/(c²(1-λ)²) in print, c⁴ by E-10
        expected = max(n**3 / (k**power * gap**2), n / gap ** (8 / 3))
        assert found.transient_order(printed=printed) == pytest.approx(expected, rel=1e-12)
        assert crossing(found, printed) == pytest.approx(expected, rel=1e-9)


@EVERY
def test_transient_time_is_when_the_first_term_takes_over(net):
    c = constants(net)
    T = transient_time(c, Setting())
    assert T == ceil(T) < inf

    def takes_over(T: float) -> bool:
        terms = asdict(rate(c, Setting(T=int(T))))
        return all(terms["sampling"] >= terms[k] * (1 - 1e-9) for k in EXPONENTS)

    assert takes_over(T)
    assert T == 0 or not takes_over(T * (1 - 1e-6) - 1)


# --- Corollaries 4.2 and 4.3, Remark 4.3


@EVERY
def test_corollary_4_2_ratio_is_that_of_the_first_term(net):
    c, s = constants(net), Setting(2.0, 0.5, 3.0, 1.0, 999)
    M1, M2 = c["M1"].value, c.M2_tilde.value
    ratio = max(M1, M2, M1 * M2) / (net.n * perron(net).pi ** 2)
    assert c.speedup_ratio.value == pytest.approx(ratio, rel=1e-8)
    central = sqrt(s.delta_f * s.sigma**2 * s.L / (net.n * (s.T + 1)))
    assert rate(c, s).sampling / central == pytest.approx(sqrt(ratio), rel=1e-8)


@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_corollary_4_2_linear_speedup_does_not_depend_on_n(n):
    for graph in (directed_ring(n), undirected_ring(n), exponential(n)):
        assert constants(weigh(graph)).speedup_ratio.value == pytest.approx(1, rel=1e-12)
    assert constants(binary_tree(n)).speedup_ratio.value == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("push", [star(6), path(6), erdos_renyi(6, 0.4, seed=5), multi_sub_ring(6)])
def test_remark_4_3_only_r_doubly_stochastic(push):
    W = weigh(directed_ring(6)).R
    for C in (weigh(push).C, binary_tree(6).C):
        net = Network(W, C)
        assert np.abs(net.C.sum(axis=1) - 1).max() > 0.1  # C itself is not
        c = constants(net)
        assert c["M1"].value == pytest.approx(1 / 6, rel=1e-13)
        assert c["M2"].high == 0
        assert c.pi == pytest.approx(1 / 6, rel=1e-13)
        assert c.speedup_ratio.value == pytest.approx(1, rel=1e-13)
        power = np.linalg.matrix_power  # and by the definition: 1ᵀC = 1ᵀ
        for t in range(1, 5):
            move = np.full(6, 1 / 6) @ (power(C.toarray(), t + 1) - power(C.toarray(), t))
            assert np.abs(move).max() < 1e-15


@given(tree_pairs(9))
@example(TREES[0])
@example(TREES[1])
@example(TREES[2])
def test_remark_4_3_spanning_trees(net):
    c, depths = constants(net, tree_rule="paper"), push_depths(net)
    root = int(net.roots[0])
    assert perron(net).pi_R[root] == perron(net).pi_C[root] == c.pi == 1
    assert c["M1"].value == pytest.approx(net.n, rel=1e-13)
    assert c["M1"].value / (net.n * c.pi**2) == pytest.approx(1, rel=1e-13)
    assert c.speedup_ratio.value == pytest.approx(1, rel=1e-13)
    # M2 itself is the sum over depths: whole layers arrive at the root one after the other.
    layers = sum((d - 1) * sqrt((depths == d).sum()) for d in range(2, depths.max() + 1))
    assert c["M2"].value == pytest.approx(layers, rel=1e-9, abs=1e-12)


@networks
def test_corollary_4_3_no_more_than_linear_speedup(net):
    for rule in ("never", "auto", "paper"):
        ratio = constants(net, tree_rule=rule).speedup_ratio.low
        assert ratio >= 1 / 10
        assert ratio >= 1 / (3 + pi**2 / 6)  # 0.215: the same proof with ab ≤ (a² + b²)/2 (E-12)
