"""The sparse route to N5..N9, V and V_R: against the lifted one, and its own proof."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.networks import binary_tree, erdos_renyi, exponential, multi_sub_ring, path, star, weigh
from digrad.theory import products
from digrad.theory.eigenvectors import perron
from digrad.theory.lifted import Lifted
from digrad.theory.products import MatrixNorms, Walk, norm_bracket, sparse_sums
from theory.brute_force import any_networks

NETWORKS = {
    "random": weigh(erdos_renyi(30, 0.3, seed=1)),
    "random, reverse": weigh(erdos_renyi(25, 0.3, seed=2), push_graph="reverse"),
    "star, reverse": weigh(star(12), push_graph="reverse"),
    "trees": binary_tree(15),
    "exponential": weigh(exponential(12)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_both_routes_bracket_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(products, "BLOCK", 100)  # several blocks of columns
    net, p = NETWORKS[name], perron(NETWORKS[name])
    lifted = Lifted.of(net, p)
    truth = lifted.norms(1e-10, 1.0) | lifted.squares(1e-10)
    exact, bounded = sparse_sums(net, p, 1e-9, dense=True), sparse_sums(net, p, 1e-9, dense=False)
    for key, bracket in truth.items():
        for found in (exact[key], bounded[key]):
            assert found.low <= bracket.high * (1 + 1e-12) + 1e-14
            assert found.high >= bracket.low * (1 - 1e-12)
        assert exact[key].relative_width <= 1e-9
        assert bounded[key].high <= 40 * bracket.high
    assert all(bounded[key].relative_width <= 1e-6 for key in ("V", "V_R"))


def test_networks_that_mix_slowly_are_left_to_others():
    for net in (weigh(path(20)), weigh(multi_sub_ring(20, "nested"))):
        assert sparse_sums(net, perron(net), 1e-9, dense=True) is None


def test_what_would_take_too_long_is_not_begun(monkeypatch):
    monkeypatch.setattr(products, "MOST_WORK", 1e3)
    net = NETWORKS["random"]
    assert sparse_sums(net, perron(net), 1e-9, dense=False) is None


@given(any_networks(6))
def test_terms_are_those_of_the_definitions(net):
    p, n = perron(net), net.n
    R, C = net.R.toarray() - p.pi_R, net.C.toarray() - p.pi_C[:, None]
    Rt = [np.eye(n) - p.pi_R, *(np.linalg.matrix_power(R, k) for k in range(1, 7))]
    Ct = [np.eye(n) - p.pi_C[:, None], *(np.linalg.matrix_power(C, k) for k in range(1, 7))]
    A = [sum((Rt[i] @ Ct[k + 1 - i] for i in range(1, k + 1)), 0 * R) for k in range(6)]
    for t, term in zip(range(1, 6), Walk(net, p).terms(np.eye(n)), strict=False):
        X = np.outer(Rt[t] @ p.pi_C, np.ones(n)) + A[t] - A[t - 1]
        B = sum(Rt[i] @ Ct[t - i] for i in range(1, t + 1))
        wanted = Rt[t], Ct[t], A[t], B, A[t] - A[t - 1], X, X + p.pi_R @ Ct[t]
        for found, true in zip(term, wanted, strict=True):
            np.testing.assert_allclose(found, true, rtol=0, atol=1e-13)


@given(st.integers(0, 10**6), st.integers(2, 30), st.sampled_from([1e-10, 1e-6, 1e-3]))
def test_norms_lie_between_their_ends(seed, n, rtol):
    A = np.random.default_rng(seed).normal(size=(n, n))
    low, high = norm_bracket(A @ A.T, rtol)
    norm = np.linalg.norm(A, 2)
    assert low <= norm * (1 + 1e-13)
    assert high >= norm * (1 - 1e-13)
    assert high - low <= 1e3 * rtol * norm


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_sizes_of_blocks_are_sizes_of_the_whole(seed, width):
    A = np.random.default_rng(seed).normal(size=(9, 9))
    sizes = MatrixNorms()
    for k in range(0, 9, width):
        sizes.add(A[:, k : k + width], lines=True)
    bounds = np.linalg.norm(A), np.sqrt(np.linalg.norm(A, 1) * np.linalg.norm(A, np.inf))
    assert sizes.bound == pytest.approx(min(bounds))
    assert sizes.least <= np.linalg.norm(A, 2) <= sizes.bound * (1 + 1e-12)
