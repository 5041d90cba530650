"""The constants M1..N8, P1..P5, Q: printed digits, brute force, exact fractions, invariances."""

from fractions import Fraction
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from digrad.networks import (
    Network,
    binary_tree,
    complete,
    directed_ring,
    erdos_renyi,
    multi_sub_ring,
    path,
    small_world,
    star,
    undirected_ring,
    weigh,
)
from digrad.theory import contraction as large
from digrad.theory import network_constants as module
from digrad.theory.contraction import LargeMixing
from digrad.theory.eigenvectors import is_balanced, perron
from digrad.theory.network_constants import constants
from theory.brute_force import (
    ALL_NAMES,
    NAMES,
    Weights,
    any_networks,
    averaging,
    definition_sums,
    exact,
    exact_squares,
    inside,
    long_sums,
    mixing_time,
    uniform,
    weights,
)

# ALGORITHMS.md, section 3: an independent implementation, ten digits.
HEADER = ("n_pi", "M1", "M2", "N5", "N6", "N7", "N8")
nested = multi_sub_ring(20, "nested")
PRINTED = {
    "ring 6": (weigh(undirected_ring(6)), "1 0.1666666667 0 4 3.744 0.280691358 1.333333333"),
    "directed ring 8": (
        weigh(directed_ring(8)),
        "1 0.125 0 147.3084969 503.7300141 67.9411255 59.29065757",
    ),
    "flower 20": (
        weigh(multi_sub_ring(20)),
        "1.323251418 0.1253471078 0.7422869542 10.96150441 22.92432718 5.526018763 7.090568594",
    ),
    "nested 20": (
        weigh(nested),
        "1.357713325 0.06107657045 3.270105072 421.5955459 3176.244664 70.05423689 68.68061761",
    ),
    "nested 20, reverse": (
        weigh(nested, push_graph="reverse"),
        "1.198224852 0.06352624063 7.459736709 251.4768288 1026.549921 20.10701467 37.58434433",
    ),
    "binary tree 15": (
        binary_tree(15),
        "15 15 7.656854249 45.66190379 1272.590461 498.8711915 43.35104747",
    ),
}
PRINTED_N = {
    "flower 20": "0.3488779717 0.04984870492 0.3488779717 0.02846156008",
    "binary tree 15": "6.29252874 34 6.29252874 20",
    "nested 20": "1.559766716 0.1121508705 5.091772719 0.5892787109",
}
FIXED = {
    "path": uniform(path(7)),
    "star, reverse": uniform(star(6), reverse=True),
    "flower": uniform(multi_sub_ring(8)),
    "nested": uniform(multi_sub_ring(12, "nested")),
    "nested, reverse": uniform(multi_sub_ring(12, "nested"), reverse=True),
    "random": uniform(erdos_renyi(8, 0.3, seed=7)),
    "tree": exact(binary_tree(9)),
    "ring trees": exact(weigh(directed_ring(6), "spanning-tree")),
}


@pytest.mark.parametrize("name", PRINTED)
def test_reference_values_agree_in_every_printed_digit(name):
    net, line = PRINTED[name]
    c = constants(net, rtol=1e-12)
    values = {"n_pi": c.n * c.pi} | {key: c[key].value for key in NAMES}
    assert [f"{values[key]:.10g}" for key in HEADER] == line.split()
    if name in PRINTED_N:
        digits = [f"{values[key]:.10g}" for key in ("N1", "N2", "N3", "N4")]
        assert digits == PRINTED_N[name].split()


@pytest.mark.parametrize("name", FIXED)
def test_brackets_hold_the_truth_strictly(name):
    truth, c = long_sums(FIXED[name]), constants(FIXED[name].network)
    for key in ALL_NAMES:
        assert inside(c[key], truth[key])
        assert c[key].relative_width <= 1e-9
    assert c.notes == {}


@given(any_networks())
def test_brackets_hold_the_truth_on_random_networks(net):
    w = exact(net)
    assume(mixing_time(w.R, w.C) < 30)
    truth, c = long_sums(w), constants(net)
    for key in ALL_NAMES:
        # Rounding is not certified: where a sum (nearly) vanishes, 1e-16 per term remains.
        assert inside(c[key], truth[key], room=1e-13)
        assert c[key].relative_width <= 1e-9 or c[key].high < 1e-13
    assert c.pi == pytest.approx(float(w.pi), rel=1e-14)


@given(any_networks(5))
def test_sums_of_squares_are_those_of_exact_arithmetic(net):
    w = exact(net)
    assume(mixing_time(w.R, w.C) < 1000)
    c = constants(net)
    for key, truth in exact_squares(w).items():
        assert inside(c[key], float(truth), room=1e-15)


@pytest.mark.parametrize("name", ["tree", "random", "star, reverse"])
def test_the_definitions_written_out_give_the_same_sums(name):
    c = constants(FIXED[name].network)
    # 80 terms of a network that mixes in 3 steps leave out e^(-25); powers round at 1e-15.
    for key, partial in definition_sums(FIXED[name], T=80).items():
        assert partial == pytest.approx(c[key].value, rel=1e-9)


@given(any_networks(), st.randoms())
def test_numbering_the_nodes_differently_changes_nothing(net, random):
    order = list(range(net.n))
    random.shuffle(order)
    a, b = constants(net), constants(net.relabel(np.array(order)))
    assert a.tree_rule_applies == b.tree_rule_applies
    assert a.pi == pytest.approx(b.pi, rel=1e-13)
    for key in ALL_NAMES:
        assert max(a[key].low, b[key].low) <= min(a[key].high, b[key].high) + 1e-13


def naive(c) -> dict[str, float]:
    """P1..P5 and Q from the formulas of Lemma 3.12, with plain numbers."""
    M1, M2, N1, N2, N3, _, N5, N6, _, N8 = (float(c[key].value) for key in NAMES)
    n, pi, M2 = c.n, c.pi, 0.0 if c.tree_rule_applies else M2
    P2 = max(n**2 * pi**2, n * N1**2, n * N1**2 * M2, n**2 * pi**2 * M2**2)
    P3 = max(n**2 * pi**2, N1**4 / pi**2, N3**4 / pi**2)
    return {
        "P1": max(n * N1**2, n * N3**2, N8**2, sqrt(n) * N1 * N5, n * pi * N5),
        "P2": P2,
        "P3": P3,
        "P4": sqrt(max(P2, P3)) * N5,
        "P5": max(N2 / pi, N2 / (n * pi**2), N6 / max(N5, sqrt(max(P2, P3)))),
        "Q": max(M1, M2, M1 * M2),
        "speedup_ratio": max(M1, M2, M1 * M2) / (n * pi**2),
    }


@given(any_networks())
def test_derived_constants_follow_their_formulas(net):
    c = constants(net)
    for key, value in naive(c).items():
        bracket = getattr(c, key)
        assert bracket.low * (1 - 1e-12) <= value <= bracket.high * (1 + 1e-12) + 1e-300
        # Up to four factors of width 1e-9; zero to rounding has no relative width.
        assert bracket.relative_width <= 1e-8 or bracket.high <= 1e-13


def test_p5_is_finite_when_n5_vanishes():
    c = constants(weigh(complete(5)))  # W = J: N5 = N6 = 0, the paper's 0/0
    assert c.P5.high <= 1e-14
    # W² = J but W ≠ J: N5 = 0, N6 = ‖W - J‖² = 1, the paper's 1/0.
    W = np.kron(np.ones((2, 1)), np.kron(np.eye(2), np.ones((1, 2)))) / 2
    c = constants(Network(W, W))
    assert c["N5"].high <= 1e-14
    assert c["N6"].value == pytest.approx(1.0, rel=1e-12)
    assert c.P5.value == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("n", [4, 5, 9])
def test_a_doubly_stochastic_pull_matrix_makes_the_first_constants_exact(n):
    R, C = weigh(undirected_ring(n)).R, weigh(star(n)).C
    c = constants(Network(R, C))
    assert 1 / n in c["M1"]
    for key in ("M2", "N1", "N2"):
        assert (c[key].low, c[key].high) == (0.0, 0.0)
    assert c["N3"].low > 0


def test_a_single_node_has_nothing_to_agree_on():
    c = constants(Network([[1.0]], [[1.0]]))
    assert 1.0 in c["M1"]
    assert all(c[key].high == 0.0 for key in NAMES[1:])
    assert c.P5.high == 0.0


def test_the_tree_rule_decides_about_m2():
    net = weigh(directed_ring(6), "spanning-tree")
    assert constants(net).M2_tilde == constants(net)["M2"]
    assert constants(net, tree_rule="paper").M2_tilde.high == 0.0
    assert constants(binary_tree(6)).M2_tilde.high == 0.0
    assert constants(binary_tree(6), tree_rule="never").M2_tilde.low > 0


def test_what_is_too_large_is_bounded_and_said_to_be(monkeypatch):
    net = FIXED["path"].network
    exact = constants(net)
    monkeypatch.setattr(module, "MATRIX_N", 5)
    c = constants(net)
    assert set(c.notes) == {"N5", "N6", "N7", "N8", "N9", "V", "V_R"}
    assert "N7 is at most" in c.notes["N7"]
    assert all(
        c[name].low <= exact[name].low <= exact[name].high <= c[name].high for name in c.notes
    )
    assert c.P4.high < inf
    assert constants(net, effort=3.0).notes == {}


def test_what_nothing_can_be_proved_of_is_left_open(monkeypatch):
    monkeypatch.setattr(module, "MATRIX_N", 5)
    monkeypatch.setattr(large, "contraction", lambda A, pi: None)
    c = constants(FIXED["path"].network)
    assert (c["N5"].low, c["N5"].high) == (0.0, inf)
    assert "too many for a proof" in c.notes["N7"]
    assert c.P4.high == inf


def test_a_bracket_wider_than_asked_for_says_why():
    c = constants(weigh(path(40)), effort=1e-12)
    assert "raise effort" in c.notes["M2"]
    narrow = constants(weigh(path(40)))
    assert all(c[key].low <= narrow[key].high <= c[key].high for key in ALL_NAMES)


def test_networks_with_many_zero_eigenvalues_are_summed_truly():
    pull = [[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]]
    pull += [[0, 1, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0]]
    push = [[0] * 6, [1, 0, 0, 1, 0, 1], [0] * 6, [0, 1, 1, 1, 1, 0], [0] * 6, [0] * 6]
    w = weights(np.array(pull), np.array(push))
    truth, c = long_sums(w), constants(w.network)
    assert all(inside(c[key], truth[key]) for key in ALL_NAMES)


def test_networks_with_many_zero_eigenvalues_are_summed_at_all():
    pull = [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    push = [[2, 1, 0, 0, 0], [2, 0, 1, 1, 1], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]]
    w = weights(np.array(pull), np.array(push))
    truth, c = long_sums(w), constants(w.network)
    assert all(inside(c[key], truth[key]) for key in ALL_NAMES)


def test_sums_that_vanish_hold_zero():
    for row in ([1, 2, 4], [7, 6, 5], [3, 1, 6]):
        R = averaging(np.array([row] * 3))  # rank one: R̃ = 0, so N3 = .. = N8 = 0
        net = Network(R.astype(float), weigh(path(3)).C)
        assert all(constants(net)[key].low == 0.0 for key in (*NAMES[4:], "V_R", "N9"))


def test_zeros_that_the_mixing_time_makes_visible_are_not_zero():
    d, q = Fraction(1, 2**20), Fraction(1, 2**43)
    R = np.array([[1 - d, d], [d + q, 1 - d - q]], dtype=object)
    C = np.array([[1 - d, 2 * d], [d, 1 - 2 * d]], dtype=object)
    w = Weights(R, C)
    # π_RᵀC̃ᵗ shrinks by 1 - 3d a step, from π_R - π1.
    truth = sqrt(float(np.sum((w.pi_R - w.pi) ** 2))) * float((1 - 3 * d) / (3 * d))
    assert truth == pytest.approx(0.0155, rel=1e-2)
    N1 = module._push_sums(LargeMixing(w.network, perron(w.network)), 1e-9, 1.0)["N1"]
    assert inside(N1, truth)
    assert N1.relative_width < 1e-6


def test_an_imbalance_that_floats_hide_is_seen():
    d, q = 2.0**-40, 2.0**-60  # the columns of R sum to 1 to the last bit
    net = Network([[1 - d, d], [d + q, 1 - d - q]], [[1 - d, 2 * d], [d, 1 - 2 * d]])
    assert float(net.R.sum(axis=0)[0]) == 1.0
    assert not is_balanced(net.R)
    assert perron(net).pi_R[0] - 0.5 == pytest.approx(q / (4 * d), rel=1e-3)


def test_doubly_stochastic_weights_have_exact_zeros_where_they_mix():
    c = constants(weigh(erdos_renyi(12, 0.3, seed=2), "doubly-stochastic"))
    assert all(c[key].high == 0 for key in ("M2", "N1", "N2", "N3", "N4", "N1p", "N2p"))


def slow_small_world() -> Network:
    """188 nodes whose random weights are so uneven that they mix in thousands of steps."""
    links = small_world(188, neighbours=3, rewire=0.2, seed=11).adjacency().toarray() != 0
    links |= np.eye(188, dtype=bool)
    draw = np.random.default_rng(11)
    R, C = (np.where(there, draw.random((188, 188)) ** 3, 0.0) for there in (links, links.T))
    return Network(R / R.sum(axis=1, keepdims=True), C / C.sum(axis=0, keepdims=True))


@pytest.mark.slow
def test_brackets_are_narrow_where_modes_are_split_off_with_care():
    """Where modes counted as dead sooner, nothing was split off, and N6 ran out of work."""
    net = slow_small_world()
    assert mixing_time(net.R.toarray(), net.C.toarray()) > 4000
    c = constants(net)
    assert set(c.values) == set(ALL_NAMES)
    for name, bracket in c.values.items():
        assert bracket.low > 0
        assert bracket.relative_width < 1.5e-7, name  # found: 1.5e-8; it grows with that time
