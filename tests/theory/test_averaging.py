"""The sparse route to M1..N4: against the dense route, the truth, and its own proof."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.networks import build, erdos_renyi, multi_sub_ring, path, star, weigh
from digrad.theory import averaging
from digrad.theory import network_constants as module
from digrad.theory.averaging import Doeblin, averages, averaging_sums, doeblin
from digrad.theory.contraction import LargeMixing
from digrad.theory.eigenvectors import perron
from digrad.theory.network_constants import constants
from theory.brute_force import any_networks, exact, inside, long_sums, mixing_time

NAMES = ("M1", "M2", "N1", "N2", "N3", "N4", "N1p", "N2p")
NETWORKS = {
    "path": weigh(path(25)),
    "star": weigh(star(30), push_graph="reverse"),
    "nested": weigh(multi_sub_ring(40, "nested")),
    "nested, reverse": weigh(multi_sub_ring(40, "nested"), push_graph="reverse"),
    "random": weigh(erdos_renyi(60, 0.1, seed=4)),
    "trees": weigh(erdos_renyi(30, 0.2, seed=4), "spanning-tree"),
}


def vector_sums(net, rtol: float = 1e-9):
    """M1..N4 alone."""
    mixing = LargeMixing(net, perron(net))
    return module._push_sums(mixing, rtol, 1.0) | module._pull_sums(mixing, rtol, 1.0)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_sparse_and_the_dense_route_agree(monkeypatch, name):
    net = NETWORKS[name]
    dense = vector_sums(net)
    monkeypatch.setattr(module, "VECTOR_N", 0)
    sparse = vector_sums(net)
    for key in NAMES:
        a, b = dense[key], sparse[key]
        assert max(a.low, b.low) <= min(a.high, b.high) + 1e-15
        assert b.relative_width <= 1e-9


@given(any_networks())
def test_sparse_brackets_hold_the_truth(net):
    w = exact(net)
    assume(mixing_time(w.R, w.C) < 30)
    truth = long_sums(w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "VECTOR_N", 0)
        sums = vector_sums(net)
    for key in NAMES:
        # Where the truth is 0 the sums are rounding errors: v_t is known to 1e-16.
        assert inside(sums[key], truth[key], room=1e-14)


@given(any_networks(), st.integers(0, 10**6))
def test_doeblin_shrinks_every_spread_as_promised(net, seed):
    A, pi = net.R, perron(net).pi_R
    mixing = doeblin(A, pi, most_steps=500)
    power = np.linalg.matrix_power(A.toarray(), mixing.steps)
    column = power[:, np.argmax(pi)]
    assert mixing.overlap <= column.min() * (1 + 1e-12)
    u = np.random.default_rng(seed).standard_normal(net.n)
    shrunk = power @ u
    assert np.ptp(shrunk) <= (1 - mixing.overlap) * np.ptp(u) * (1 + 1e-12) + 1e-14


@given(any_networks(), st.integers(0, 10**6), st.integers(1, 50))
def test_the_rest_is_never_smaller_than_the_spreads_to_come(net, seed, t):
    mixing = doeblin(net.R, perron(net).pi_R, most_steps=500)
    spreads, u = [], np.random.default_rng(seed).standard_normal(net.n)
    for _ in range(2000):
        spreads.append(float(np.ptp(u)))
        u = net.R @ u
    later = np.array(spreads[1:])
    assert later.sum() <= mixing.rest(spreads[0], t, weight=0) * (1 + 1e-12)
    times = t + np.arange(1, len(spreads))
    assert (times * later).sum() <= mixing.rest(spreads[0], t, weight=1) * (1 + 1e-12)


def test_doeblin_stops_once_the_column_is_flat_enough():
    net = weigh(erdos_renyi(20, 0.4, seed=1))
    mixing = doeblin(net.R, perron(net).pi_R, most_steps=1000)
    assert 1 <= mixing.steps < 20
    assert mixing.overlap > 0.01


def test_no_overlap_means_no_bound_but_for_what_does_not_move():
    nothing = Doeblin(steps=3, overlap=0.0)
    assert nothing.rest(1.0, 5, weight=0) == np.inf
    assert nothing.rest(0.0, 5, weight=1) == 0.0


def test_averages_subtract_the_limit_and_go_to_zero():
    net = weigh(multi_sub_ring(9))
    pi, u = perron(net).pi_R, np.arange(9.0)
    sequence = averages(net.R, u, float(pi @ u))
    first = next(sequence)
    np.testing.assert_allclose(first, u - pi @ u)
    np.testing.assert_allclose(next(sequence), net.R @ u - pi @ u, atol=1e-14)
    for _ in range(600):
        last = next(sequence)
    assert np.abs(last).max() < 1e-13


def test_stopping_early_gives_a_wide_bracket_that_is_still_true(monkeypatch):
    net = NETWORKS["path"]
    narrow = vector_sums(net)
    monkeypatch.setattr(module, "VECTOR_N", 0)
    monkeypatch.setattr(averaging, "MOST_STEPS", 40)
    wide = vector_sums(net)
    for key in NAMES:
        assert wide[key].low <= narrow[key].value <= wide[key].high
    assert wide["M2"].relative_width > 0.1


def test_hardly_any_effort_still_gives_brackets():
    net = weigh(erdos_renyi(30, 0.3, seed=2))
    p = perron(net)
    sums = averaging_sums(csr_array(net.C.T), p.pi_R, p.pi_C, 1e-9, effort=1e-12)
    assert sums.norms.low <= constants(net)["N1"].value <= sums.norms.high


@pytest.mark.slow
def test_thousands_of_nodes_take_a_moment():
    net = build("erdos-renyi", 2100, params={"p": "0.005"}, seed=1)
    c = constants(net)
    assert all(c[key].relative_width <= 1e-9 for key in NAMES)
    assert c.bounded == ["N5", "N6", "N7", "N8", "N9"]
    assert all("is bounded, not summed" in c.notes[key] for key in c.bounded)
    assert all(c[key].relative_width <= 1e-4 for key in ("V", "V_R"))
    assert all(0 < c[key].low < c[key].high < np.inf for key in c.bounded)
