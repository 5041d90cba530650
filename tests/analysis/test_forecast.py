"""What is expected of a network: the linear model against plain recursions, and its limits."""

import numpy as np
import pytest

from digrad.networks import binary_tree, build, complete, exponential, multi_sub_ring, weigh
from digrad.theory import Setting, perron
from digrad.theory.expectation import (
    ALONE,
    CURVATURES,
    FORECAST_N,
    Diagonal,
    expected_average,
    forecast,
)


def outlook(net, s: Setting):
    return forecast(net, perron(net), s)


def test_complete_averaging_is_sgd():
    found = outlook(weigh(complete(7)), Setting(T=300))
    assert found.ratio == pytest.approx(1, rel=1e-10)
    assert found.step == pytest.approx(np.sqrt(2 * 7 / 301))


@pytest.mark.slow
def test_nodes_that_differ_are_averaged_over_all_ways_to_differ():
    net, s = weigh(multi_sub_ring(6)), Setting(F0=40.0, sigma=0.3, T=50)
    found = outlook(net, s)
    a = s.L * CURVATURES
    best = np.sqrt(2 * s.delta_f / (len(a) * a))
    apart = (s.F0 - ((a * best) ** 2).sum()) / len(a)
    random, averages = np.random.default_rng(0), []
    for _ in range(4000):
        u = random.normal(size=(6, len(a)))
        u -= u.mean(axis=0)
        u *= np.sqrt(6 / (u**2).sum(axis=0))
        problem = Diagonal(np.tile(a, (6, 1)), best + np.sqrt(apart) * u / a, s.sigma)
        averages.append(expected_average(net, problem, found.step, s.T))
    error = np.std(averages) / np.sqrt(len(averages))
    assert abs(np.mean(averages) - found.average) < 5 * error
    assert error < 0.02 * found.average


def test_steps_that_would_not_be_stable_are_cut():
    net, s = binary_tree(15), Setting(sigma=0.0, T=1000)
    found = outlook(net, s)
    assert np.isfinite(found.average)
    assert found.step < 1 / (s.L * perron(net).n_pi)


@pytest.mark.parametrize("name", ["exponential", "star", "binary-tree", "directed-ring"])
def test_in_the_long_run_every_network_is_sgd(name):
    assert outlook(build(name, 8), Setting(T=10**7)).ratio == pytest.approx(1, abs=0.01)


def test_large_networks_have_none():
    assert outlook(weigh(exponential(FORECAST_N + 1)), Setting()) is None
    assert outlook(ALONE, Setting()).ratio == pytest.approx(1)
