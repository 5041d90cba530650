"""Exponential decay and the metrics of digraphs, held against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array

from digrad.networks import (
    Network,
    binary_tree,
    build,
    complete,
    directed_ring,
    exponential,
    multi_sub_ring,
    path,
    weigh,
)
from digrad.theory import certificates
from digrad.theory.certificates import decay_certificate, digraph_metrics
from digrad.theory.eigenvectors import perron
from theory.brute_force import any_networks


def sides(net: Network) -> list[tuple[csr_array, np.ndarray]]:
    """R and Cᵀ with their root vectors."""
    p = perron(net)
    return [(net.R, p.pi_R), (csr_array(net.C.T), p.pi_C)]


def deflated_norms(A: csr_array, pi: np.ndarray, last: int) -> np.ndarray:
    """‖Aᵗ - 1πᵀ‖₂ for t = 0 .. last, from powers of A - 1πᵀ."""
    deflated, power, norms = A.toarray() - pi[None, :], np.eye(len(pi)), []
    for _ in range(last + 1):
        norms.append(np.linalg.norm(power, 2))
        power = power @ deflated
    return np.array(norms)


def check_certificate(A: csr_array, pi: np.ndarray) -> certificates.DecayCertificate:
    certificate = decay_certificate(A, pi)
    m, alpha = certificate.m, certificate.alpha
    norms = deflated_norms(A, pi, 10 * m)
    t = np.arange(m, 10 * m + 1)
    # Powers of exact zeros (trees) leave 1e-17 behind, hence the absolute room.
    assert (norms[m:] <= alpha**t * (1 + 1e-12) + 1e-15).all()
    if certificate.smallest and m > 1:
        assert norms[m - 1] > alpha ** (m - 1)
    deflated = A.toarray() - pi[None, :]
    rho = np.abs(np.linalg.eigvals(deflated)).max()
    assert certificate.rho == pytest.approx(rho, abs=1e-7)
    assert alpha == (1 + certificate.rho) / 2
    return certificate


@given(any_networks())
def test_certificates_hold_at_every_power_and_are_the_smallest(net):
    for A, pi in sides(net):
        assert check_certificate(A, pi).smallest


@pytest.mark.parametrize(
    ("net", "m"),
    [
        (weigh(path(60)), 7),
        (weigh(multi_sub_ring(20, "nested")), 20),
        (binary_tree(15), 3),
        (weigh(complete(4)), 1),
    ],
)
def test_slow_and_deep_networks_get_the_smallest_m(net, m):
    certificate = check_certificate(*sides(net)[0])
    assert certificate.m == m
    assert certificate.smallest


@pytest.mark.parametrize("net", [weigh(path(60)), weigh(multi_sub_ring(30, "nested"))])
def test_doubling_certifies_a_larger_m_where_looking_at_all_powers_costs_too_much(monkeypatch, net):
    A, pi = sides(net)[0]
    least = decay_certificate(A, pi)
    monkeypatch.setattr(certificates, "MOST_NORMS_WORK", 0)
    doubled = check_certificate(A, pi)
    assert not doubled.smallest
    assert doubled.m >= least.m > 4
    assert doubled.alpha == least.alpha


def test_matrices_too_large_for_dense_powers_get_no_certificate(monkeypatch):
    monkeypatch.setattr(certificates, "DENSE_N", 5)
    net = weigh(directed_ring(6))
    assert decay_certificate(*sides(net)[0]) is None


def by_definition(W: np.ndarray, pi: np.ndarray) -> float:
    """β_π of a column-stochastic W: ‖Diag(π)^(-1/2) (W - π1ᵀ) Diag(π)^(1/2)‖₂."""
    root = np.diag(np.sqrt(pi))
    inverse = np.diag(1 / np.sqrt(pi))
    return float(np.linalg.norm(inverse @ (W - np.outer(pi, np.ones(len(pi)))) @ root, 2))


@given(any_networks())
def test_metrics_follow_their_definitions_on_strongly_connected_networks(net):
    (R, pi_R), (C_T, pi_C) = sides(net)
    pull, push = digraph_metrics(R, pi_R), digraph_metrics(C_T, pi_C)
    assert (push is None) == bool(pi_C.min() == 0)
    assert (pull is None) == bool(pi_R.min() == 0)
    if push is not None:
        assert push.kappa_pi == pi_C.max() / pi_C.min()
        assert push.beta_pi == pytest.approx(min(by_definition(C_T.T.toarray(), pi_C), 1), rel=1e-9)
        assert not push.estimated
    if pull is not None:
        scaled = np.sqrt(pi_R)[:, None] * (R.toarray() - pi_R) / np.sqrt(pi_R)
        assert pull.beta_pi == pytest.approx(min(np.linalg.norm(scaled, 2), 1), rel=1e-9)


def test_the_contraction_is_lambda_on_doubly_stochastic_weights():
    net = weigh(exponential(10))
    metrics = digraph_metrics(*sides(net)[0])
    assert metrics.beta_pi == pytest.approx(np.linalg.norm(net.R.toarray() - 0.1, 2), rel=1e-12)
    assert metrics.kappa_pi == 1.0


@pytest.mark.parametrize("push_graph", ["same", "reverse"])
def test_the_sparse_contraction_is_that_of_the_dense_matrix(monkeypatch, push_graph):
    nets = [weigh(multi_sub_ring(60), push_graph=push_graph), weigh(path(40), "lazy", push_graph)]
    for A, pi in [side for net in nets for side in sides(net)]:
        dense = digraph_metrics(A, pi)
        with monkeypatch.context() as patch:
            patch.setattr(certificates, "DENSE_N", 10)
            sparse = digraph_metrics(A, pi)
        assert sparse.estimated
        assert sparse.kappa_pi == dense.kappa_pi
        assert sparse.beta_pi == pytest.approx(dense.beta_pi, rel=1e-9)


def test_two_thousand_nodes_get_the_contraction_of_the_dense_matrix():
    net = build("erdos-renyi", 2050, params={"p": "0.005"}, seed=1)
    A, pi = sides(net)[0]
    metrics = digraph_metrics(A, pi)
    assert metrics.estimated
    root, x = np.sqrt(pi), np.random.default_rng(0).standard_normal(net.n)
    for _ in range(300):  # power iteration: from below, and 1e-4 near after 300 steps
        x = x / np.linalg.norm(x)
        y = root * (A @ (x / root)) - root * (root @ x)
        x = (A.T @ (root * y)) / root - root * (root @ y)
    beta = np.linalg.norm(y)
    assert beta * (1 - 1e-12) <= metrics.beta_pi <= beta * (1 + 1e-4)


def test_powers_that_live_longer_than_floats_are_not_certified():
    line = np.eye(120, k=-1)  # its powers have norm 1 for 119 steps
    assert certificates._by_doubling(line, 1e-6, 0.0) is None
    assert certificates._by_doubling(line, 0.9, 0.0).m == 128
