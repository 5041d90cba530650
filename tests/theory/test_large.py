"""Bounds for large networks: each step of their proof, and the whole against exact constants."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.networks import (
    Network,
    binary_tree,
    directed_ring,
    erdos_renyi,
    exponential,
    grid,
    multi_sub_ring,
    path,
    star,
    weigh,
)
from digrad.theory import certified as forms
from digrad.theory import contraction as module
from digrad.theory import network_constants, products
from digrad.theory.averaging import averaging_sums
from digrad.theory.certified import form_constants
from digrad.theory.contraction import (
    Contraction,
    LargeMixing,
    contraction,
    doeblin_columns,
    weighted_contraction,
)
from digrad.theory.eigenvectors import perron
from digrad.theory.lifted import Lifted
from digrad.theory.network_constants import constants
from theory.brute_force import any_networks

NETWORKS = {
    "path": weigh(path(30)),
    "path, Metropolis": weigh(path(30), "metropolis"),
    "grid": weigh(grid(36)),
    "ring, one way": weigh(directed_ring(25)),
    "star": weigh(star(20), push_graph="reverse"),
    "nested": weigh(multi_sub_ring(24, "nested")),
    "random": weigh(erdos_renyi(40, 0.2, seed=4)),
    "exponential": weigh(exponential(32)),
    "trees": binary_tree(31),
}
WAYS = {"weighted": weighted_contraction, "columns": doeblin_columns}


def powers(A: csr_array, pi, count: int) -> list:
    """Return Ã⁰ .. Ãᵏ."""
    found = [np.eye(len(pi)) - pi[None, :]]
    for _ in range(count):
        found.append(A @ found[-1])
    return found


def holds(A: csr_array, pi, c: Contraction) -> None:
    """Check every number of a contraction against the powers themselves."""
    count = min(1000, int(40 / c.gap) + 20)
    terms = powers(A, pi, count)
    sizes = np.array([np.linalg.norm(M, 2) for M in terms])
    room = 1 + 1e-9
    assert (sizes <= c.scale * c.beta ** np.arange(count + 1.0) * room + 1e-13).all()
    moves = sum(np.linalg.norm(b - a, 2) for a, b in pairwise(terms[1:]))
    assert moves <= c.scale * c.moves * room + 1e-11
    assert sum(np.sum(M**2) for M in terms[1:]) <= c.squares * room + 1e-11
    assert np.sum(terms[0] ** 2) == pytest.approx(c.projection, abs=1e-9)
    for angle in np.geomspace(1e-4, np.pi, 40):
        z, deflated = np.exp(1j * angle), A.toarray() - pi[None, :]
        resolvent = abs(z - 1) * np.linalg.inv(z * np.eye(len(pi)) - deflated) @ terms[0]
        for b in (0, 1):
            size = np.linalg.norm(np.linalg.matrix_power(deflated, b) @ resolvent, 2)
            assert size <= c.scale * c.gains[b] * (1 + 1e-6)


SMALL = {
    "path": weigh(path(10)),
    "ring, one way": weigh(directed_ring(9)),
    "random": weigh(erdos_renyi(15, 0.3, seed=4)),
    "trees": binary_tree(15),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SMALL)
def test_contractions_contract(name, way):
    net = SMALL[name]
    p = perron(net)
    for A, pi in ((net.R, p.pi_R), (csr_array(net.C.T), p.pi_C)):
        found = WAYS[way](A, pi)
        if found is None:
            assert way == "weighted"
            assert pi.min() == 0
        else:
            holds(A, pi, found)


@given(any_networks(5), st.sampled_from(sorted(WAYS)))
def test_contractions_of_any_network_contract(net, way):
    p = perron(net)
    found = WAYS[way](net.R, p.pi_R)
    if found is not None:
        holds(net.R, p.pi_R, found)


@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_are_bounds_for_every_form(name):
    net = NETWORKS[name]
    p, vectors, mixing = perron(net), constants(net).values, LargeMixing(net, perron(net))
    for a, b in ((1, 1), (1, 0), (0, 1), (0, 0)):
        lifted = Lifted.of(net, p, a, b)
        truth = lifted.norms(1e-9, 1.0) | lifted.squares(1e-9)
        for key, bound in mixing.bounds(vectors, a, b).items():
            assert truth[key].low <= bound < np.inf, (key, a, b)


@pytest.mark.parametrize("name", ["path", "path, Metropolis", "grid", "ring, one way"])
def test_bounds_are_close_where_weights_hardly_differ(name):
    c = constants(NETWORKS[name])
    bounds = LargeMixing(NETWORKS[name], perron(NETWORKS[name])).bounds(c.values)
    for key, most in {"N5": 3, "N6": 6, "N8": 25, "N9": 25, "V": 60, "V_R": 3}.items():
        assert bounds[key] <= most * c[key].high, key


@given(any_networks(6))
def test_bounds_hold_for_any_network(net):
    c = constants(net)
    mixing = LargeMixing(net, perron(net))
    for way in WAYS.values():
        mixing.__dict__["pull"] = way(net.R, mixing.p.pi_R)
        mixing.__dict__["push"] = way(csr_array(net.C.T), mixing.p.pi_C)
        for key, bound in mixing.bounds(c.values).items():
            assert c[key].low <= bound


def test_the_better_proof_is_taken():
    pull = np.eye(8) * 0.5 + np.eye(8, k=-1) * 0.5  # node 0 alone is heard by all
    pull[0] = np.eye(8)[0] * (1 - 1e-7) + np.eye(8)[7] * 1e-7
    net = Network(pull, weigh(path(8)).C)
    p = perron(net)
    by_weights, by_columns = weighted_contraction(net.R, p.pi_R), doeblin_columns(net.R, p.pi_R)
    assert by_weights.scale > 10 * by_columns.scale
    assert contraction(net.R, p.pi_R) == by_columns


def test_a_network_that_does_not_contract_in_time_gets_no_proof(monkeypatch):
    net = weigh(directed_ring(30))
    monkeypatch.setattr(module, "DENSE_N", 5)
    monkeypatch.setattr(module, "MOST_WORK", 100.0)
    assert contraction(net.R, perron(net).pi_R) is None


def test_a_gap_below_rounding_is_not_proved():
    e = 1e-15
    net = Network([[1 - e, e], [e, 1 - e]], [[1 - e, e], [e, 1 - e]])
    assert weighted_contraction(net.R, perron(net).pi_R) is None


def test_tails_of_slow_networks_are_bounded_by_the_contraction():
    net = NETWORKS["path"]
    p, mixing, c = perron(net), LargeMixing(net, perron(net)), constants(net)
    few = {"rtol": 1e-9, "most_steps": 100}
    plain = averaging_sums(net.R, p.pi_C, p.pi_R, **few)
    better = averaging_sums(net.R, p.pi_C, p.pi_R, **few, proved=lambda: mixing.pull)
    assert better.norms.low <= c["N3"].low <= c["N3"].high <= better.norms.high
    assert better.squares.low <= c["N4"].low <= c["N4"].high <= better.squares.high
    assert better.norms.high < 0.5 * plain.norms.high


def test_forms_of_large_networks_are_bounded(monkeypatch):
    net = NETWORKS["grid"]
    exact = form_constants(net, "cta", "cta")
    monkeypatch.setattr(forms, "MATRIX_N", 5)
    bounded = form_constants(net, "cta", "cta")
    for name in ("N5", "N6", "N8", "N9", "V"):
        assert getattr(exact, name) <= getattr(bounded, name) < np.inf


@pytest.mark.slow
@pytest.mark.parametrize("name", ["path", "grid", "random"])
def test_bounds_hold_next_to_the_exact_constants_of_hundreds_of_nodes(monkeypatch, name):
    graphs = {"path": path(310), "grid": grid(400), "random": erdos_renyi(600, 0.015, seed=3)}
    net = weigh(graphs[name])
    exact = constants(net)
    monkeypatch.setattr(network_constants, "MATRIX_N", 250)
    monkeypatch.setattr(products, "MOST_WORK", 2e10)  # at most some hundred terms
    bounded = constants(net)
    for key in ("N5", "N6", "N7", "N8", "N9", "V", "V_R"):
        assert bounded[key].low <= exact[key].high
        assert exact[key].low <= bounded[key].high < np.inf
