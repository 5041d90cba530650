"""Steps, bounds and transient times against their formulas (Lemma 3.12, Theorem 4.1)."""

from dataclasses import astuple, fields, replace
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import ParameterError
from digrad.networks import (
    Network,
    binary_tree,
    complete,
    directed_ring,
    erdos_renyi,
    exponential,
    multi_sub_ring,
    star,
    weigh,
)
from digrad.theory import (
    Setting,
    Terms,
    constants,
    explicit_bound,
    gamma_max,
    gamma_theorem,
    rate,
    transient_time,
)
from digrad.theory.expectation import Diagonal, expected_average

NETWORKS = {
    "complete": constants(weigh(complete(4))),
    "exponential": constants(weigh(exponential(8))),
    "flower": constants(weigh(multi_sub_ring(8))),
    "nested": constants(weigh(multi_sub_ring(6, "nested"))),
    "random": constants(weigh(erdos_renyi(10, 0.5, seed=1))),
    "star, reverse": constants(weigh(star(5), push_graph="reverse")),
    "trees": constants(binary_tree(7)),
    "ring trees": constants(weigh(directed_ring(5), "spanning-tree")),
}
OTHERS = ("disagreement", "start", "tracking", "initial")
networks = st.sampled_from(list(NETWORKS.values()))
positive = st.floats(1e-3, 1e3)
settings = st.builds(
    Setting, L=positive, sigma=positive, delta_f=positive, F0=positive, T=st.integers(0, 10**7)
)


def parts(c) -> dict[str, float]:
    """The upper ends of what the formulas are made of."""
    return {
        "n_pi": c.n * c.pi,
        "S": sqrt(max(c.P2.high, c.P3.high)),
        "worst": max(c["N4"].high, c["N7"].high),
        "largest": max(c.P1.high, c.P2.high, c.P3.high, c.P4.high),
    }


@given(networks, settings)
def test_the_steps_follow_lemma_3_12_and_theorem_4_1(c, s):
    x, T1 = parts(c), s.T + 1
    limit = 1 / (500 * sqrt(x["largest"]) * s.L)
    assert gamma_max(c, s.L) == pytest.approx(limit, rel=1e-12)
    entries = [(s.delta_f / (c.Q.high * s.sigma**2 * s.L * T1)) ** (1 / 2), limit]
    if x["worst"] > 0:
        cubic = x["S"] * x["worst"] * s.sigma**2 * s.L**2 * T1
        entries.append((s.delta_f / cubic) ** (1 / 3))
    assert gamma_theorem(c, s) == pytest.approx(min(entries), rel=1e-12)


@given(networks, settings, st.floats(1e-8, 1e-2))
def test_the_explicit_bound_has_the_five_terms_of_lemma_3_12(c, s, gamma):
    x, T1 = parts(c), s.T + 1
    bound = explicit_bound(c, s, gamma, as_printed=True)
    expected = Terms(
        sampling=100 * c.Q.high * s.sigma**2 * s.L * gamma / x["n_pi"],
        disagreement=80_000 * x["S"] * x["worst"] * (s.sigma * s.L * gamma) ** 2 / x["n_pi"],
        start=10 * s.delta_f / (gamma * x["n_pi"] * T1),
        tracking=200_000
        * x["S"]
        * c["M1"].high
        * (c["N5"].high * s.sigma * s.L**2 * gamma**2) ** 2
        / x["n_pi"],
        initial=30 * c.P5.high * s.F0 / (x["n_pi"] * T1),
    )
    assert astuple(bound) == pytest.approx(astuple(expected), rel=1e-12)
    assert bound.total == pytest.approx(sum(astuple(bound)), rel=1e-12)


@given(networks, settings, st.floats(1e-8, 1e-2))
def test_the_explicit_bound_adds_the_noise_of_the_first_gradients(c, s, gamma):
    x, T1 = parts(c), s.T + 1
    bound, printed = explicit_bound(c, s, gamma), explicit_bound(c, s, gamma, as_printed=True)
    assert replace(bound, first_noise=0.0) == printed
    moved = 80 * max(c.M2_tilde.high, 1) * c.pi_R_square * s.L * gamma
    left = 2 * c["V_R"].high + 2 * c.n * c["N4"].high
    spread = 1920 * x["S"] * left * (s.L * gamma) ** 2 / c.n
    fed_back = 200_000 * x["S"] * c.pi_R_square * (c["N5"].high * s.L**2 * gamma**2) ** 2
    expected = (moved + spread + fed_back) * s.sigma**2 / (x["n_pi"] * T1)
    assert bound.first_noise == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("share", "exact"), [(1e-3, 0.4253), (1e-4, 42.5)])
def test_the_number_called_a_bound_is_one(share, exact):
    # Node 0 alone counts in x̂, and settled trackers give it hardly anything: what it moves by
    # at first is its own noise, 1/(nπ) times as large as what the paper's proof allows for.
    net = Network([[1, 0], [1, 0]], [[share, share], [1 - share, 1 - share]])
    c, s = constants(net), Setting(delta_f=1e-30, F0=0.0, T=512)
    step = gamma_max(c, s.L)
    problem = Diagonal(np.ones((2, 1)), np.zeros((2, 1)), sigma=1.0)
    found = expected_average(net, problem, step, s.T)
    assert found == pytest.approx(exact, rel=2e-3)
    assert explicit_bound(c, s, step, as_printed=True).total == pytest.approx(0.1, rel=1e-6)
    assert explicit_bound(c, s, step).total >= found


@given(networks, settings)
def test_the_rate_has_the_five_terms_of_theorem_4_1(c, s):
    x, T1 = parts(c), s.T + 1
    feedback = x["S"] * c["M1"].high * c["N5"].high ** 2 / (x["n_pi"] * c.Q.high**2)
    cubic = s.delta_f**2 * x["S"] * x["worst"] * (s.L * s.sigma) ** 2
    expected = Terms(
        sampling=sqrt(c.Q.high / (c.n * c.pi**2) * s.delta_f * s.sigma**2 * s.L / (c.n * T1)),
        disagreement=cubic ** (1 / 3) / x["n_pi"] / T1 ** (2 / 3),
        start=sqrt(x["largest"]) * s.L * s.delta_f / x["n_pi"] / T1,
        tracking=feedback * (s.delta_f * s.L / (s.sigma * T1)) ** 2,
        initial=c.P5.high * s.F0 / (x["n_pi"] * T1),
    )
    assert astuple(rate(c, s)) == pytest.approx(astuple(expected), rel=1e-9, abs=1e-300)


@given(networks, settings)
def test_the_theorems_step_does_what_lemma_3_5_promises(c, s):
    x, T1 = parts(c), s.T + 1
    A, B = s.delta_f / x["n_pi"], c.Q.high * s.sigma**2 * s.L / x["n_pi"]
    C = x["S"] * x["worst"] * s.sigma**2 * s.L**2 / x["n_pi"]
    alpha = 1 / gamma_max(c, s.L)
    step = gamma_theorem(c, s)
    reached = A / (step * T1) + B * step + C * step**2
    promised = 2 * sqrt(A * B / T1) + 2 * C ** (1 / 3) * (A / T1) ** (2 / 3) + alpha * A / T1
    assert 0 < step <= gamma_max(c, s.L)
    assert reached <= promised * (1 + 1e-12)


@given(networks, settings)
def test_the_bound_at_the_theorems_step_is_the_rate_up_to_its_factor(c, s):
    # The factors of Lemma 3.12 are at most 200000, times 2 from Lemma 3.5 and 500 in 1/γ_max.
    bound = explicit_bound(c, s, gamma_theorem(c, s), as_printed=True)
    assert bound.total <= 2e6 * rate(c, s).total


@given(networks, positive, positive)
def test_without_noise_the_largest_step_is_the_best_and_two_terms_remain(c, delta_f, F0):
    s = Setting(sigma=0.0, delta_f=delta_f, F0=F0, T=1000)
    assert gamma_theorem(c, s) == gamma_max(c, s.L)
    bound = explicit_bound(c, s, gamma_theorem(c, s))
    assert bound.sampling == bound.disagreement == bound.tracking == 0.0
    assert bound.total == bound.start + bound.initial
    assert transient_time(c, s) == inf


def test_without_noise_the_rate_is_finite():
    assert rate(NETWORKS["flower"], Setting(sigma=0.0)).total < inf


@given(networks, settings)
def test_the_transient_time_is_where_sampling_takes_over(c, s):
    T = transient_time(c, s)
    if T > 1e7:
        return  # one step changes less than the rounding of the terms
    at, before = rate(c, replace(s, T=int(T))), rate(c, replace(s, T=int(T) - 1)) if T else None
    assert all(getattr(at, name) <= at.sampling * (1 + 1e-9) for name in OTHERS)
    assert before is None or any(getattr(before, name) > before.sampling for name in OTHERS)


@given(networks, settings, st.floats(1.0, 100.0))
def test_sampling_dominates_ever_after(c, s, factor):
    T = transient_time(c, s)
    if T < 1e15:
        later = rate(c, replace(s, T=int(T * factor) + 1))
        assert all(getattr(later, name) <= later.sampling * (1 + 1e-9) for name in OTHERS)


@given(networks, settings, st.floats(1.0, 100.0))
def test_more_noise_ends_the_transient_sooner_and_worse_starts_later(c, s, factor):
    assert transient_time(c, replace(s, sigma=s.sigma * factor)) <= transient_time(c, s)
    assert transient_time(c, replace(s, F0=s.F0 * factor)) >= transient_time(c, s)


@given(networks, settings, st.integers(1, 1000))
def test_more_steps_never_make_the_rate_worse(c, s, more):
    later = rate(c, replace(s, T=s.T + more))
    assert all(a <= b for a, b in zip(astuple(later), astuple(rate(c, s)), strict=True))


def test_what_is_not_known_from_above_allows_no_step():
    c = NETWORKS["flower"]
    unknown = replace(c, values=c.values | {"N5": replace(c["N5"], high=inf)})
    assert gamma_max(unknown, 1.0) == gamma_theorem(unknown, Setting()) == 0.0
    assert explicit_bound(unknown, Setting(), 0.0).start == inf
    assert transient_time(unknown, Setting()) == inf


@pytest.mark.parametrize("sigma", [1e-160, 1e200])
def test_noise_beyond_all_problems_is_refused(sigma):
    with pytest.raises(ParameterError, match="sigma must be 0 or a number from 1e-30 to 1e"):
        Setting(sigma=sigma)


@pytest.mark.parametrize("name", [field.name for field in fields(Setting)])
@pytest.mark.parametrize("value", [-1.0, inf, float("nan")])
def test_settings_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be .*a number from"):
        Setting(**{name: value})


def test_settings_say_where_zero_is_allowed():
    Setting(sigma=0.0, F0=0.0, T=0)
    for name in ("L", "delta_f"):
        with pytest.raises(ParameterError, match=r"must be a number from 1e-30 to .*, got 0"):
            Setting(**{name: 0.0})
