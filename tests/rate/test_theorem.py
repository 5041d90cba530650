"""docs/rate.md, the theorem: never violated by exact expectations, on networks of all kinds."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digrad.networks import (
    Network,
    binary_tree,
    directed_ring,
    erdos_renyi,
    exponential,
    multi_sub_ring,
    path,
    star,
    undirected_ring,
    weigh,
)
from digrad.theory import Setting, constants, gamma_max
from digrad.theory.certified import (
    RateConstants,
    certified_bound,
    closed_bound,
    form_constants,
    gamma_best,
    gamma_certified,
    sgd_bound,
    transient_certified,
)
from digrad.theory.expectation import Diagonal, expected_average
from rate.recursion import FORMS, Quadratic, expected
from theory.brute_force import any_networks

HORIZONS = [0, 1, 7, 50, 200]
NETWORKS = {
    "exponential": weigh(exponential(8)),
    "directed ring": weigh(directed_ring(6)),
    "two-way ring": weigh(undirected_ring(7)),
    "path": weigh(path(5)),
    "star, reverse": weigh(star(6), push_graph="reverse"),
    "flower": weigh(multi_sub_ring(8)),
    "random": weigh(erdos_renyi(8, 0.4, seed=3)),
    "tree": binary_tree(7),
    "two trees": weigh(directed_ring(5), "spanning-tree"),
    "tree pull, random push": Network(binary_tree(6).R, weigh(erdos_renyi(6, 0.4, seed=1)).C),
    "star pull": Network(np.eye(1, 5).repeat(5, axis=0), weigh(exponential(5)).C),
}
rates = {name: RateConstants.of(constants(net)) for name, net in NETWORKS.items()}


def never_violated(net: Network, seed: int, forms: tuple[str, str]) -> list[float]:
    """Bound over exact expectation for several T and steps; every one must be at least 1."""
    c, q = form_constants(net, *forms, rtol=1e-6), Quadratic.draw(seed, net.n)
    most, ratios = gamma_certified(c, q.setting(1).L), []
    for share in (1e-3, 0.1, 0.5, 0.99):
        averages = expected(net, q, forms, share * most, HORIZONS)
        for T, average in zip(HORIZONS, averages, strict=True):
            bound = certified_bound(c, q.setting(T), share * most)
            assert bound >= average * (1 - 1e-9)
            assert closed_bound(c, q.setting(T), share * most) >= bound * (1 - 1e-9)
            ratios.append(bound / max(average, 1e-300))
    return ratios


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.parametrize("name", ["random", "two trees", "star pull"])
def test_the_bound_holds(name, forms):
    assert min(never_violated(NETWORKS[name], 5, forms)) < 1e3  # and it is not idle


@settings(max_examples=15)
@given(any_networks(5), st.integers(0, 10**6), st.sampled_from(FORMS))
def test_the_bound_holds_on_random_networks(net, seed, forms):
    never_violated(net, seed, forms)


@pytest.mark.slow
@settings(max_examples=400)
@given(any_networks(8), st.integers(0, 10**6), st.sampled_from(FORMS))
def test_the_bound_holds_on_hundreds_of_random_networks(net, seed, forms):
    never_violated(net, seed, forms)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_bound_holds_for_long_runs(name):
    net, c = NETWORKS[name], rates[name]
    for seed in range(8):
        q = Quadratic.draw(seed, net.n)
        problem = Diagonal(q.A, q.b, q.sigma)
        for T in (10**3, 10**5, 10**7):
            s = q.setting(T)
            for share in (0.01, 0.3, 1.0):
                step = share * gamma_best(c, s)
                assert certified_bound(c, s, step) >= expected_average(net, problem, step, T)


@pytest.mark.parametrize(("share", "actual", "bound"), [(1e-3, 0.4253, 0.4883), (1e-4, 42.5, 48.8)])
def test_the_start_up_noise_is_in_it(share, actual, bound):
    net = Network([[1, 0], [1, 0]], [[share, share], [1 - share, 1 - share]])
    c, s = constants(net), Setting(delta_f=1e-30, F0=0.0, T=512)
    problem = Diagonal(np.ones((2, 1)), np.zeros((2, 1)), sigma=1.0)
    step = gamma_max(c, s.L)
    assert expected_average(net, problem, step, s.T) == pytest.approx(actual, rel=2e-3)
    assert certified_bound(RateConstants.of(c), s, step) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_largest_certified_step_is_where_the_bound_ends(name):
    c, s = rates[name], Setting(L=3.0, T=1000)
    most = gamma_certified(c, s.L)
    assert certified_bound(c, s, most) < inf
    assert certified_bound(c, s, most * (1 + 1e-6)) == inf
    assert closed_bound(c, s, most * (1 + 1e-6)) == inf
    assert most > gamma_max(constants(NETWORKS[name]), s.L)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_step_has_a_smaller_bound_than_the_best(name):
    c = rates[name]
    for s in (Setting(), Setting(sigma=0.0), Setting(L=5.0, sigma=30.0, F0=100.0, T=10**7)):
        best = certified_bound(c, s, gamma_best(c, s))
        steps = np.geomspace(1e-6, 1.0, 300) * gamma_certified(c, s.L)
        assert best <= min(certified_bound(c, s, step) for step in steps) * (1 + 1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_in_the_end_it_is_the_guarantee_of_sgd(name):
    c = rates[name]
    ratios = []
    for T in (10**6, 10**12, 10**18, 10**24):
        s = Setting(T=T)
        ratios.append(certified_bound(c, s, gamma_best(c, s)) / sgd_bound(s, c.n))
    assert ratios == sorted(ratios, reverse=True)
    assert 1 <= ratios[-1] < 1.01


@pytest.mark.parametrize("name", NETWORKS)
def test_the_transient_time_is_where_twice_the_guarantee_of_sgd_is_reached(name):
    c, s = rates[name], Setting(sigma=2.0)
    T = transient_certified(c, s)
    for later in (T, 3 * T, 1e4 * T):
        at = replace(s, T=later)
        assert certified_bound(c, at, gamma_best(c, at)) <= 2 * sgd_bound(at, c.n)
    before = replace(s, T=int(0.9 * T))
    assert certified_bound(c, before, gamma_best(c, before)) > 2 * sgd_bound(before, c.n)


def test_what_is_not_known_allows_nothing():
    c = replace(rates["flower"], V=inf)
    assert gamma_certified(c, 1.0) == 0.0
    assert certified_bound(c, Setting(), 1e-9) == closed_bound(c, Setting(), 1e-9) == inf
    assert transient_certified(c, Setting()) == inf
    assert transient_certified(rates["flower"], Setting(sigma=0.0)) == inf


@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_form_has_the_constants_of_the_network(name):
    found, c = form_constants(NETWORKS[name]), rates[name]
    for key, value in vars(c).items():
        assert getattr(found, key) == pytest.approx(value, rel=1e-8, abs=1e-12), key
