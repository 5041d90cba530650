"""Section 2: roots, root eigenvectors, exponential decay."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.base.errors import NetworkError
from digrad.networks import (
    Network,
    binary_tree,
    complete,
    directed_ring,
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
from digrad.theory import constants, decay_certificate, perron, root_eigenvector
from digrad.theory.norms import spectral_norm
from strategies import no_common_root, periodic, reachability
from theory.brute_force import any_networks, exact

NAMED = [
    weigh(directed_ring(6)),
    weigh(star(5)),
    weigh(path(5), push_graph="reverse"),
    weigh(multi_sub_ring(8)),
    weigh(erdos_renyi(7, 0.4, seed=2)),
    binary_tree(7),
    spanning_tree(6, root=0),
]
DOUBLY = {
    "exponential": exponential(6),
    "directed ring": directed_ring(5),
    "undirected ring": undirected_ring(7),
    "complete": complete(4),
    "balanced": erdos_renyi(7, 0.4, seed=3),
    "grid": grid(6),
}


def networks(test):
    """Named topologies, then random networks: strongly connected, only rooted, trees."""
    for net in NAMED:
        test = example(net)(test)
    return given(any_networks(8))(test)


def sides(net: Network):
    """(A, π_A, R_A) for A = R and A = Cᵀ, the roots found by brute force."""
    p = perron(net)
    for A, pi in ((net.R, p.pi_R), (csr_array(net.C.T), p.pi_C)):
        yield A, pi, reachability(A.toarray()).all(axis=0)


def distances(A: csr_array, pi, T: int) -> list[float]:
    """‖Aᵗ - 1πᵀ‖₂ for t = 1 .. T."""
    deflated = A.toarray() - pi
    power, found = np.eye(len(pi)), []
    for _ in range(T):
        power = power @ deflated
        found.append(spectral_norm(power))
    return found


@networks
def test_assumption_2_1_roots_reach_everybody(net):
    (_, _, pull), (_, _, push) = sides(net)
    assert net.pull_roots.tolist() == np.flatnonzero(pull).tolist()
    assert net.push_roots.tolist() == np.flatnonzero(push).tolist()
    assert net.roots.tolist() == np.flatnonzero(pull & push).tolist() != []


@given(no_common_root())
def test_assumption_2_1_refuses_networks_without_a_common_root(pair):
    with pytest.raises(NetworkError, match=r"Assumption 2\.1"):
        Network(pair.R, pair.C)


@networks
def test_definition_2_2_root_eigenvector(net):
    for A, pi, is_root in sides(net):
        np.testing.assert_allclose(pi @ A, pi, rtol=1e-13, atol=1e-16)
        assert (pi >= 0).all()
        assert (pi[~is_root] == 0).all()
        assert pi.sum() == pytest.approx(1, abs=1e-15)


@networks
def test_definition_2_3_exponential_decay(net):
    for A, pi, _ in sides(net):
        found = decay_certificate(A, pi)
        measured = distances(A, pi, found.m + 60)
        for t, distance in enumerate(measured[found.m - 1 :], start=found.m):
            assert distance <= found.alpha**t * (1 + 1e-12)
        assert 0 < found.alpha < 1
        if found.m > 1:  # the smallest m: one step earlier the inequality is false
            assert found.smallest
            assert measured[found.m - 2] > found.alpha ** (found.m - 1)


@given(periodic())
def test_definition_2_3_refuses_periodic_matrices(made):
    R, C, name = made
    with pytest.raises(NetworkError, match=rf"the powers of {name} never settle.*\n?.*2\.3"):
        Network(R, C)


@pytest.mark.parametrize("graph", DOUBLY.values(), ids=DOUBLY)
def test_remark_2_1_doubly_stochastic_decays_from_the_first_step(graph):
    net = weigh(graph, "doubly-stochastic")
    n, W, pi = net.n, net.R.toarray(), perron(net).pi_R
    assert pi == pytest.approx(np.full(n, 1 / n), rel=1e-14)
    np.testing.assert_allclose(W @ np.full(n, 1 / n), 1 / n, rtol=1e-14)
    lam = spectral_norm(W - 1 / n)
    assert lam < 1
    for t, distance in enumerate(distances(net.R, pi, 50), start=1):  # m = 1 and α = λ
        assert distance <= lam**t * (1 + 1e-12) + 1e-30
    found = decay_certificate(net.R, pi)
    assert (found.m == 1) or found.alpha < lam


@networks
def test_assumption_2_4_weights_are_stochastic(net):
    np.testing.assert_allclose(net.R.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(net.C.sum(axis=0), 1, rtol=1e-14)


@pytest.mark.parametrize(("side", "line"), [("R", "row"), ("C", "column")])
def test_assumption_2_4_refuses_other_sums(side, line):
    good, bad = np.full((3, 3), 1 / 3), np.full((3, 3), 1 / 3)
    bad[1, 2] += 1e-3
    with pytest.raises(NetworkError, match=rf"{side} is not {line}-stochastic.*Assumption 2\.4"):
        Network(*((bad, good) if side == "R" else (good, bad)))


@networks
def test_lemma_2_5_root_eigenvectors_are_unique_and_meet(net):
    w, p = exact(net), perron(net)
    # In fractions: the elimination fails unless there is one solution of πᵀA = πᵀ, Σπ = 1.
    for truth, (_, pi, is_root) in zip((w.pi_R, w.pi_C), sides(net), strict=True):
        assert [x > 0 for x in truth] == is_root.tolist()
        assert all(x == 0 for x in truth[~is_root])
        np.testing.assert_allclose(pi, truth.astype(float), rtol=1e-13, atol=0)
    assert w.pi > 0
    assert p.pi == pytest.approx(float(w.pi), rel=1e-13)


@given(st.integers(0, 10**6))
def test_lemma_2_6_positive_diagonal_and_spanning_tree_give_decay(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    links = (rng.random((n, n)) < 0.2) | np.eye(n, dtype=bool)
    links[np.arange(1, n), [rng.integers(k) for k in range(1, n)]] = True
    A = np.where(links, rng.uniform(0.05, 1, (n, n)), 0)
    A = csr_array(A / A.sum(axis=1, keepdims=True))
    pi = root_eigenvector(A, np.flatnonzero(reachability(A.toarray()).all(axis=0)))
    lam = np.sort(np.abs(np.linalg.eigvals(A.toarray())))[-2]
    p = (1 - lam) / 2
    found = decay_certificate(A, pi)
    assert found.alpha == pytest.approx(1 - p, rel=1e-6)
    assert 0 < p < 1
    for t, distance in enumerate(distances(A, pi, found.m + 40)[found.m - 1 :], start=found.m):
        assert distance <= (1 - p) ** t * (1 + 1e-6 * t)


def test_lemma_2_6_a_positive_diagonal_is_not_necessary():
    net = binary_tree(7)
    assert net.R.diagonal().tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert decay_certificate(net.R, perron(net).pi_R).m >= 1
    assert constants(net)["N5"].high < np.inf
