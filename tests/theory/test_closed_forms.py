"""Lemma 3.2, Corollary 4.1 and Remarks 4.1, 4.2 as formulas, and which network gets which."""

from dataclasses import astuple
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.networks import (
    Network,
    complete,
    directed_ring,
    erdos_renyi,
    hypercube,
    path,
    random_regular,
    star,
    undirected_ring,
    weigh,
)
from digrad.theory import Setting, Terms
from digrad.theory.rates import DoublyStochasticCase, doubly_stochastic_case

CASES = ("doubly stochastic", "symmetric", "positive semidefinite")


@st.composite
def cases(draw) -> DoublyStochasticCase:
    """Any case the class can describe."""
    case, n = draw(st.sampled_from(CASES)), draw(st.integers(2, 100))
    lam = draw(st.floats(0.01, 0.999))
    if case == "doubly stochastic":
        return DoublyStochasticCase(case, n, lam, None)
    smallest = draw(st.floats(0, lam) if case == CASES[2] else st.floats(-lam, -1e-3 * lam))
    return DoublyStochasticCase(case, n, lam, smallest)


@pytest.mark.parametrize(
    ("net", "case"),
    [
        (weigh(directed_ring(5)), "doubly stochastic"),
        (weigh(random_regular(9, 3, seed=1)), "doubly stochastic"),
        (weigh(undirected_ring(6)), "symmetric"),
        (weigh(undirected_ring(6), "lazy"), "positive semidefinite"),
        (weigh(hypercube(8), "lazy"), "positive semidefinite"),
        (weigh(erdos_renyi(8, 0.4, seed=1).both_ways(), "metropolis"), "symmetric"),
        (weigh(complete(5)), "positive semidefinite"),
        (Network([[1.0]], [[1.0]]), "positive semidefinite"),
    ],
)
def test_each_network_falls_under_the_strongest_case(net, case):
    found = doubly_stochastic_case(net)
    assert (found.case, found.n) == (case, net.n)
    W = net.R.toarray()
    assert found.lam == pytest.approx(np.linalg.norm(W - 1 / net.n, 2), abs=1e-14)
    if case != "doubly stochastic":
        others = np.linalg.eigvalsh(W)[:-1] if net.n > 1 else [0.0]
        assert found.smallest == pytest.approx(min(others), abs=1e-14)


def test_networks_the_corollary_does_not_cover_get_none():
    twice = weigh(directed_ring(5), push_graph="reverse")  # doubly stochastic, but C = Rᵀ ≠ R
    for net in (weigh(path(4)), weigh(star(5)), twice):
        assert doubly_stochastic_case(net) is None


def test_primitive_weights_with_lambda_one_are_outside_the_lemma():
    # W² = J although ‖W - J‖ = 1 (E-7).
    W = np.kron(np.ones((2, 1)), np.kron(np.eye(2), np.ones((1, 2)))) / 2
    assert doubly_stochastic_case(Network(W, W)) is None


@given(cases())
def test_c_is_one_plus_the_negative_part_of_the_smallest_eigenvalue(case):
    expected = 1 + min(case.smallest, 0) if case.case == "symmetric" else 1.0
    assert case.c == expected


@given(cases())
def test_closed_forms_are_those_of_lemma_3_2(case):
    forms = {form.constant: form for form in case.closed_forms()}
    n, lam, c = case.n, case.lam, case.c
    assert list(forms) == ["M1", "M2", "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8"]
    assert forms["M1"].corrected == 1 / n
    assert all(forms[key].corrected == 0 for key in ("M2", "N1", "N2", "N3", "N4"))
    equal = "<=" if case.case == "doubly stochastic" else "="
    assert [forms[key].relation for key in forms] == ["="] * 6 + [equal] * 2 + ["<="] * 2
    assert forms["N5"].printed == pytest.approx(lam**2 / (1 - lam) ** 2)
    assert forms["N6"].printed == pytest.approx((lam**2 + lam**4) / (1 - lam**2) ** 3)
    if case.case == "doubly stochastic":
        expected = (8 / (1 - lam**2) ** 3, 8 / (1 - lam) ** 2)
    else:
        expected = (10 / (c * (1 - lam)), 10 / (sqrt(c) * (1 - lam)))
    assert (forms["N7"].printed, forms["N8"].printed) == pytest.approx(expected)
    if case.case == "symmetric":  # E-10
        expected = (16 / (c**2 * (1 - lam)), 8 / (c * (1 - lam)))
    assert (forms["N7"].corrected, forms["N8"].corrected) == pytest.approx(expected)


@given(cases(), st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 10), st.integers(0, 10**6))
def test_rates_are_those_of_corollary_4_1(case, L, sigma, delta_f, T):
    s = Setting(L, sigma, delta_f, F0=2.0, T=T)
    gap, c, n, T1 = 1 - case.lam, case.c, case.n, T + 1
    cubic = (delta_f**2 * L**2 * sigma**2) ** (1 / 3) / T1 ** (2 / 3)
    for printed in (False, True):
        if case.case == "doubly stochastic":
            middle, third, last = gap, gap**2, gap**2
        elif printed:
            middle, third, last = (gap * c) ** (1 / 3), sqrt(c) * gap, gap
        else:
            middle, third, last = gap ** (1 / 3) * c ** (2 / 3), c * gap, gap
        expected = Terms(
            sampling=sqrt(delta_f * sigma**2 * L / (n * T1)),
            disagreement=cubic / middle,
            start=L * delta_f / (third * T1),
            tracking=n * (delta_f * L / (gap**2 * sigma * T1)) ** 2,
            initial=2.0 / (last * T1),
        )
        assert astuple(case.rate(s, printed=printed)) == pytest.approx(astuple(expected))


@given(cases())
def test_transient_orders_are_those_of_the_remarks(case):
    n, gap, c = case.n, 1 - case.lam, case.c
    if case.case == "doubly stochastic":
        assert case.transient_order() == case.transient_order(printed=True)
        assert case.transient_order() == pytest.approx(n**3 / gap**6)
        return
    slow = n / gap ** (8 / 3)
    assert case.transient_order() == pytest.approx(max(n**3 / (c**4 * gap**2), slow))
    assert case.transient_order(printed=True) == pytest.approx(max(n**3 / (c * gap) ** 2, slow))


@given(cases())
def test_the_transient_order_is_where_the_slowest_term_meets_the_first(case):
    # Solve sampling = term for T + 1 with L = σ = Δf = 1; the remarks take the largest.
    n, at = case.n, case.rate(Setting(F0=1e-30, T=0))
    meets = [
        (at.disagreement * sqrt(n)) ** 6,
        (at.start * sqrt(n)) ** 2,
        (at.tracking * sqrt(n)) ** (2 / 3),
    ]
    # n³/(c⁴ gap²) and n³/gap⁶ come from the second term, n/gap^(8/3) from the fourth; the
    # third, n/(c gap)² or n/gap⁴, is never the largest.
    assert max(meets) == pytest.approx(case.transient_order(), rel=1e-6)


def test_without_noise_the_rate_is_finite():
    case = doubly_stochastic_case(weigh(undirected_ring(5)))
    assert case.rate(Setting(sigma=0.0)).total < inf
