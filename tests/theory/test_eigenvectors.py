"""Root eigenvectors against exact fractions and closed forms, by all three routes."""

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array, diags_array

from digrad.networks import Network, binary_tree, erdos_renyi, grid, path, star, weigh
from digrad.theory import eigenvectors
from digrad.theory.eigenvectors import is_uniform, perron, root_eigenvector
from strategies import common_root_pairs
from theory.brute_force import any_networks, averaging, exact, root_vector

ULP = np.finfo(float).eps


def birth_death(n: int, up: float, down: float) -> csr_array:
    """A chain that goes up or down by one; its π grows by the factor up/down per node."""
    steps = diags_array([np.full(n - 1, down), np.full(n - 1, up)], offsets=[-1, 1])
    return csr_array(steps + diags_array(1 - np.asarray(steps.sum(axis=1)).ravel()))


def by_route(monkeypatch, route: str) -> None:
    """Force elimination, the dense solver or the sparse one, whatever the size."""
    limits = {"eliminate": (10**6, 10**6), "dense": (0, 10**6), "sparse": (0, 0)}[route]
    monkeypatch.setattr(eigenvectors, "SUBTRACTION_FREE_N", limits[0])
    monkeypatch.setattr(eigenvectors, "DENSE_N", limits[1])


@given(any_networks(9))
def test_eigenvectors_are_those_of_exact_arithmetic(net):
    w, p = exact(net), perron(net)
    # Elimination without subtraction: a few roundings per node and entry, no cancellation.
    for computed, truth in ((p.pi_R, w.pi_R), (p.pi_C, w.pi_C)):
        np.testing.assert_allclose(computed, truth.astype(float), rtol=8 * net.n * ULP, atol=0)
    assert p.pi == pytest.approx(float(w.pi), rel=16 * net.n * ULP)
    assert p.n_pi == net.n * p.pi


@given(common_root_pairs())
def test_eigenvectors_vanish_exactly_off_the_roots_and_nowhere_on_them(pair):
    p = perron(Network(pair.R, pair.C))
    assert np.flatnonzero(p.pi_R).tolist() == pair.pull_roots
    assert np.flatnonzero(p.pi_C).tolist() == pair.push_roots


def test_slow_chains_keep_all_digits():
    # Two pairs of nodes joined by one link in a million: eigenvalue gap 1e-6, π still exact.
    k = 10**6
    counts = np.array([[k, k, 1, 0], [k, 2 * k, 0, 0], [0, 3, k, k], [0, 0, k, k]])
    pi = root_eigenvector(csr_array(counts / counts.sum(axis=1, keepdims=True)), np.arange(4))
    truth = root_vector(averaging(counts)).astype(float)
    np.testing.assert_allclose(pi, truth, rtol=32 * ULP)


def test_tiny_entries_keep_their_relative_accuracy():
    pi = root_eigenvector(birth_death(300, 0.4, 0.1), np.arange(300))
    # π spans 180 orders of magnitude; each of 300 ratios may be off by a few roundings.
    np.testing.assert_allclose(pi[1:] / pi[:-1], 4.0, rtol=1e-13)
    assert pi.min() < 1e-180


@pytest.mark.parametrize("route", ["eliminate", "dense", "sparse"])
@pytest.mark.parametrize("graph", [path(12), star(9), grid(12), erdos_renyi(15, 0.3, seed=3)])
def test_every_route_finds_the_same_vector(monkeypatch, route, graph):
    net = weigh(graph)
    truth = exact(net)
    by_route(monkeypatch, route)
    # The linear solvers lose the mixing time (under 100 here) in relative accuracy.
    for computed, pi in ((perron(net).pi_R, truth.pi_R), (perron(net).pi_C, truth.pi_C)):
        np.testing.assert_allclose(computed, pi.astype(float), rtol=1e-13)


def test_the_sparse_route_handles_thousands_of_nodes():
    # On two-way links with uniform weights, node i has weight proportional to 1 + dᵢ.
    for graph, tolerance in ((star(4500), 1e-13), (grid(4500), 1e-11)):
        truth = 1.0 + graph.in_degrees
        pi = perron(weigh(graph)).pi_R
        np.testing.assert_allclose(pi, truth / truth.sum(), rtol=tolerance)


def test_the_sparse_route_solves_where_iterating_would_take_millions_of_sweeps():
    # 5000 nodes in a line mix in about n² = 2.5e7 steps: 1e7 ulp are lost, no more.
    graph = path(5000)
    truth = 1.0 + graph.in_degrees
    np.testing.assert_allclose(perron(weigh(graph)).pi_R, truth / truth.sum(), rtol=1e-7)


def test_the_sparse_route_puts_the_mass_at_the_right_end_of_a_skewed_chain():
    pi = root_eigenvector(birth_death(4001, 0.3, 0.2), np.arange(4001))
    np.testing.assert_allclose(pi[-5:] / pi[-6:-1], 1.5, rtol=1e-6)


def test_a_chain_more_skewed_than_floats_can_tell_has_its_mass_at_the_heavy_end():
    pi = root_eigenvector(birth_death(350, 0.45, 0.05), np.arange(350))  # 9^349 = 1e333
    np.testing.assert_allclose(pi[-5:] / pi[-6:-1], 9.0, rtol=1e-12)


def test_weights_on_roots_are_positive_beyond_the_size_of_elimination():
    assert root_eigenvector(birth_death(401, 0.3, 0.2), np.arange(401)).min() > 0


def test_doubly_stochastic_matrices_get_exactly_one_over_n():
    for n in (3, 7, 500, 5000):
        A = csr_array(weigh(star(n), "metropolis").R)
        assert is_uniform(A)
        assert (root_eigenvector(A, np.arange(n)) == 1 / n).all()


def test_uniformity_is_not_claimed_for_a_visible_difference():
    A = np.full((4, 4), 0.25)
    A[0, :2] += [1e-12, -1e-12]
    assert not is_uniform(csr_array(A))


def test_trees_put_all_weight_on_the_root():
    p = perron(binary_tree(10, branching=3))
    assert p.pi_R.tolist() == p.pi_C.tolist() == [1.0] + [0.0] * 9
    assert p.n_pi == 10.0


def test_a_single_node_is_its_own_root():
    p = perron(Network([[1.0]], [[1.0]]))
    assert (p.n, p.pi, p.n_pi) == (1, 1.0, 1.0)
