"""Sums of squared Frobenius norms: against plain addition, geometric series and exact fractions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.theory.lifted import Triangle, square_sums


def draw(seed: int, n: int, radius: float):
    """Random H, triangle of a given spectral radius, and K."""
    random = np.random.default_rng(seed)
    a, b, c, *rest = random.normal(size=(7, n, n))
    a, c = (M * radius / np.abs(np.linalg.eigvals(M)).max() for M in (a, c))
    return (rest[0], rest[1]), Triangle(a, b, c), (rest[2], rest[3])


def added(H, L: Triangle, K, terms: int) -> float:
    full = np.block([[L.a, L.b], [np.zeros_like(L.a), L.c]])
    X, total = np.vstack(K), 0.0
    for _ in range(terms):
        total += float(np.sum((np.hstack(H) @ X) ** 2))
        X = full @ X
    return total


@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.05, 0.9))
def test_doubling_is_adding(seed, n, radius):
    H, L, K = draw(seed, n, radius)
    found = square_sums(H, L, [K], time=1 / (1 - radius))[0]
    truth = added(H, L, K, 600)
    assert found.low * (1 - 1e-9) <= truth <= found.high * (1 + 1e-9)
    assert found.relative_width <= 1e-9


@pytest.mark.parametrize("gap", [0.5, 1e-3, 1e-7])
def test_one_mode_is_a_geometric_series(gap):
    one, none = np.eye(1), np.zeros((1, 1))
    L = Triangle((1 - gap) * one, none, none)
    found = square_sums((one, none), L, [(one, none)], time=1 / gap)[0]
    truth = 1 / (gap * (2 - gap))
    assert found.low <= truth * (1 + 1e-15)
    assert found.high >= truth * (1 - 1e-15)
    assert found.relative_width <= 1e-6


def test_powers_that_do_not_shrink_have_no_bound():
    one, none = np.eye(1), np.zeros((1, 1))
    found = square_sums((one, none), Triangle(one, none, none), [(one, none)], time=1.0)[0]
    assert found.high == np.inf
