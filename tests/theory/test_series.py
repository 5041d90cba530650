"""Certified sums against long sums in extended precision, closed forms and exact finite sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import block_diag

from digrad.networks import multi_sub_ring, path, weigh
from digrad.theory import series
from digrad.theory.eigenvectors import perron
from digrad.theory.norms import (
    EPS,
    Decay,
    Summand,
    decay,
    mixing_time,
    norm_bound,
    spectral_norm,
    spectral_norms,
)
from digrad.theory.series import norm_sums
from theory.brute_force import inside, long_norm

TERMS = [Summand(0), Summand(0, power=2), Summand(1, weight=1), Summand(1, power=2)]


def long_norm_sums(H, L, factors, terms=TERMS, most=60_000) -> list[float]:
    """Add the terms one by one in long double until none matters."""
    X, L = H.astype(np.longdouble), L.astype(np.longdouble)
    Ks, totals = [K.astype(np.longdouble) for K in factors], np.zeros(len(terms), np.longdouble)
    for t in range(1, most):
        X = X @ L
        norms = [long_norm(X @ K) for K in Ks]
        added = [norms[s.factor] ** s.power * np.longdouble(t) ** s.weight for s in terms]
        totals += added
        if t > 2 * len(L) and (added <= 1e-19 * totals).all():
            return list(totals)
    raise AssertionError("the terms had not died out")


def problem(seed: int, norm: float, N: int = 6, rows: int = 2):
    """A random H, L, K with ‖L‖ = norm, so that no power of L exceeds 1."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((N, N))
    factors = [rng.standard_normal((N, 3)), np.eye(N)]
    return rng.standard_normal((rows, N)), L * (norm / np.linalg.norm(L, 2)), factors


def slow_rows(graph, push_graph="same"):
    """The row vectors π_Rᵀ C̃ᵗ of a slow network, as H Lᵗ K."""
    net = weigh(graph, push_graph=push_graph)
    p = perron(net)
    C = net.C.toarray() - p.pi_C[:, None]
    return (p.pi_R - p.pi)[None], C, [np.eye(net.n), C - np.eye(net.n)]


@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 3))
def test_brackets_hold_the_sum_for_random_factors(seed, norm, rows):
    H, L, factors = problem(seed, norm, rows=rows)
    sums = norm_sums([(H, L, factors)], TERMS, time=mixing_time(L))
    for bracket, truth in zip(sums, long_norm_sums(H, L, factors), strict=True):
        assert inside(bracket, truth)
        assert bracket.relative_width <= 1e-9


@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-12]))
def test_the_width_follows_the_tolerance_asked_for(seed, rtol):
    H, L, factors = problem(seed, 0.8)
    sums = norm_sums([(H, L, factors)], TERMS, time=mixing_time(L), rtol=rtol)
    assert max(bracket.relative_width for bracket in sums) <= rtol


def test_scalar_sums_have_their_closed_forms():
    r = 0.75
    one = np.eye(1)
    terms = [Summand(0), Summand(0, power=2), Summand(0, weight=1)]
    plain, square, weighted = norm_sums([(one, r * one, [one])], terms, time=4.0)
    assert r / (1 - r) in plain
    assert r**2 / (1 - r**2) in square
    assert r / (1 - r) ** 2 in weighted


@pytest.mark.parametrize("layout", ["nested", "path"])
@pytest.mark.parametrize("push_graph", ["same", "reverse"])
def test_slow_networks_are_split_and_stay_true(monkeypatch, layout, push_graph):
    kept, split = [], series._split

    def spy(*args):
        slow, dropped = split(*args)
        kept.append(len(slow.L))
        return slow, dropped

    monkeypatch.setattr(series, "_split", spy)
    graph = path(20) if layout == "path" else multi_sub_ring(48, "nested")
    H, L, factors = slow_rows(graph, push_graph)
    sums = norm_sums([(H, L, factors)], TERMS, time=mixing_time(L))
    assert kept
    assert kept[-1] < len(L) / 2  # most modes were dropped on the way
    for bracket, truth in zip(sums, long_norm_sums(H, L, factors), strict=True):
        assert inside(bracket, truth)
        assert bracket.relative_width <= 1e-9


def test_nilpotent_sums_are_finite_and_exact():
    N = 7
    L = np.eye(N, k=1)  # moves every entry one place on, and the last one out
    H = np.arange(1.0, N + 1)[None]
    (plain, square) = norm_sums([(H, L, [np.eye(N)])], [Summand(0), Summand(0, power=2)], time=1.0)
    norms = [np.sqrt(sum(k * k for k in range(1, N + 1 - t))) for t in range(1, N)]
    assert sum(norms) in plain
    assert sum(k * k * (N - k) for k in range(1, N)) in square
    assert max(plain.relative_width, square.relative_width) <= 256 * EPS


def test_jordan_blocks_grow_before_they_decay_and_the_bracket_knows():
    # ‖Lᵗ‖ climbs above 30 before it falls; the spectral radius alone would not show it.
    L = 0.9 * np.eye(4) + 0.5 * np.eye(4, k=1)
    assert max(spectral_norm(np.linalg.matrix_power(L, t)) for t in range(60)) > 30
    H, factors = np.ones((2, 4)) + np.eye(2, 4), [np.eye(4), np.ones((4, 1))]
    sums = norm_sums([(H, L, factors)], TERMS, time=mixing_time(L))
    # Growth amplifies rounding beyond what the mixing time says: 1e-13 of the sum at most.
    for bracket, truth in zip(sums, long_norm_sums(H, L, factors), strict=True):
        assert inside(bracket, truth, room=1e-13 * float(truth))


def test_the_effort_limit_gives_a_wide_bracket_that_is_still_true():
    H, L, factors = slow_rows(path(16))
    truths = long_norm_sums(H, L, factors)
    for bracket, truth in zip(
        norm_sums([(H, L, factors)], TERMS, time=mixing_time(L), effort=1e-15), truths, strict=True
    ):
        assert inside(bracket, truth)
        assert 1e-6 < bracket.relative_width <= 1


def check_decay(L, steps=4000) -> Decay:
    """Compare the three bounds with the sums themselves; return them as fractions of the bounds."""
    bounds, norms = decay(L), []
    power = np.eye(len(L))
    for _ in range(steps):
        norms.append(np.linalg.norm(power, 2))
        power = power @ L
    s = np.array(norms)
    sums = s.sum(), (s**2).sum(), (np.arange(steps) * s).sum()
    ratios = Decay(*(float(a / b) for a, b in zip(sums, bounds, strict=True)))
    assert max(ratios) <= 1 + 1e-12  # the reference itself rounds
    return ratios


@given(st.integers(0, 10**6), st.floats(0.05, 0.99), st.integers(1, 6))
def test_decay_bounds_the_powers_of_random_matrices(seed, norm, N):
    check_decay(problem(seed, norm, N)[1], steps=1500)


def test_decay_bounds_transient_growth_and_slow_mixing():
    check_decay(0.9 * np.eye(4) + np.eye(4, k=1))
    check_decay(slow_rows(path(12))[1])
    check_decay(np.eye(5, k=1))


def test_decay_is_sharp_for_a_small_scalar_and_infinite_for_the_identity():
    assert decay(np.array([[0.25]])).norms == pytest.approx(4 / 3)
    assert min(check_decay(np.array([[0.5]]))) == pytest.approx(1.0)
    assert decay(np.eye(2)).norms == np.inf


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_spectral_norms_are_the_largest_singular_values(seed, rows, columns):
    stack = np.random.default_rng(seed).standard_normal((3, rows, columns))
    truth = np.linalg.norm(stack, 2, axis=(-2, -1))
    np.testing.assert_allclose(spectral_norms(stack), truth, rtol=1e-14)
    for A, norm in zip(stack, truth, strict=True):
        assert norm_bound(A) >= norm * (1 - 1e-14)


def test_the_mixing_time_is_that_of_the_slowest_matrix():
    slow, fast = np.diag([0.5, -0.99]), np.diag([0.9, 0.1])
    assert mixing_time(slow, fast) == pytest.approx(100)
    assert mixing_time(np.zeros((2, 2))) == 1.0


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_parts_of_a_direct_sum_are_summed_as_the_whole(seed, p, q):
    rng = np.random.default_rng(seed)
    parts = []
    for n in (p, q):
        L = rng.normal(size=(n, n))
        L *= rng.uniform(0.1, 0.95) / np.linalg.norm(L, 2)
        parts.append((rng.normal(size=(n, n)), L, [np.eye(n), L - np.eye(n)]))
    H, L = (block_diag(*(part[k] for part in parts)) for k in (0, 1))
    factors = [block_diag(*(part[2][k] for part in parts)) for k in (0, 1)]
    terms = [Summand(0), Summand(1, 2), Summand(1, weight=1)]
    whole = norm_sums([(H, L, factors)], terms, time=20.0)
    for a, b in zip(norm_sums(parts, terms, time=20.0), whole, strict=True):
        assert max(a.low, b.low) <= min(a.high, b.high)
        assert a.relative_width <= 1e-9


def test_a_part_that_has_died_out_is_dropped():
    eye = np.eye(1)
    slow, fast = (eye, 0.9999 * eye, [eye]), (2 * eye, 0.5 * eye, [eye])
    (found,) = norm_sums([slow, fast], [Summand(0)], time=1e4)
    terms = np.maximum(0.9999 ** np.arange(1.0, 10**6), 2 * 0.5 ** np.arange(1.0, 10**6))
    assert found.low <= terms.sum() * (1 + 1e-12)
    assert found.high >= terms.sum() * (1 - 1e-12)
    assert found.relative_width <= 1e-9
