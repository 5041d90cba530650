"""docs/rate.md, Lemmas 1 and 2: identities of S-PP in exact fractions, in all four forms."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rate.recursion import FORMS, Sums, run
from theory.brute_force import Rational, Weights, any_networks, exact, identity

STEPS = 5
integers = st.integers(-9, 9)


def table(draw: st.DrawFn, n: int) -> Rational:
    """An n x 1 matrix of small fractions."""
    return np.array([[Fraction(draw(integers), 4)] for _ in range(n)], dtype=object)


@st.composite
def runs(draw: st.DrawFn):
    """A network, gradients and noise, all arbitrary: the lemmas are algebra."""
    w = exact(draw(any_networks(4)))
    gradients = [table(draw, w.n) for _ in range(STEPS)]
    noise = [table(draw, w.n) for _ in range(STEPS)]
    return w, gradients, noise


def w_sequence(w: Weights, s: Sums, X: list[Rational], noise: list[Rational], step: Fraction):
    """wᵗ = x̂ᵗ + γ Σ v_{t-j} θʲ, from j = 1, or from 0 where gradients are not mixed."""
    begin = 1 if s.y_form == "atc" else 0
    found = []
    for t in range(STEPS + 1):
        late = [s.v[t - j] @ noise[j] for j in range(begin, t)]
        found.append(w.pi_R @ X[t] + step * sum(late, 0 * (w.pi_R @ X[t])))
    return found


@pytest.mark.parametrize("forms", FORMS)
@settings(max_examples=12)
@given(data=runs())
def test_lemma_1_w_moves_by_the_mean_gradient_and_a_small_error(forms, data):
    w, F, noise = data
    step, s = Fraction(1, 7), Sums(w, *forms, STEPS + 2)
    X = run(
        w, forms, [f + th for f, th in zip(F, noise, strict=True)], np.array([Fraction(1)]), step
    )
    path, ones = w_sequence(w, s, X, noise, step), np.array([Fraction(1)] * w.n, dtype=object)
    for t in range(STEPS):
        e = sum((s.v[t - j] @ (F[j + 1] - F[j]) for j in range(t)), w.pi_R @ s.C[t] @ F[0])
        first = t == 0 and forms[1] == "atc"
        shaken = (w.pi_R if first else w.pi * ones) @ noise[t]
        assert (path[t + 1] == path[t] - step * (shaken + w.pi * (ones @ F[t]) + e)).all()


@pytest.mark.parametrize("forms", FORMS)
@settings(max_examples=12)
@given(data=runs())
def test_lemma_2_what_is_between_the_models_and_w(forms, data):
    w, F, noise = data
    step, s = Fraction(1, 7), Sums(w, *forms, STEPS + 2)
    X = run(
        w, forms, [f + th for f, th in zip(F, noise, strict=True)], np.array([Fraction(1)]), step
    )
    path = w_sequence(w, s, X, noise, step)
    begin, ones = (1 if forms[1] == "atc" else 0), np.array([[Fraction(1)]] * w.n, dtype=object)
    for t in range(1, STEPS):
        right = sum((s.U[t - j] @ noise[j] for j in range(begin, t)), 0 * X[0])
        if begin:
            right = right + s.pull[t] @ noise[0]
        settled = [s.pull[t - j] @ w.pi_C[:, None] @ (ones.T @ F[j]) for j in range(t)]
        late = [s.A[t - j - 1] @ (F[j + 1] - F[j]) for j in range(t - 1)]
        right = right + sum(settled, 0 * X[0]) + sum(late, 0 * X[0]) + s.B[t] @ F[0]
        assert (X[t] - ones @ path[t][None, :] == -step * right).all()


@pytest.mark.parametrize("forms", FORMS)
@settings(max_examples=12)
@given(net=any_networks(4))
def test_all_forms_are_the_plainest_one_with_powers_of_r_and_c(forms, net):
    w = exact(net)
    s, plain = Sums(w, *forms, 6), Sums(w, "cta", "cta", 6)
    left = w.R if forms[0] == "atc" else identity(w.n)
    right = w.C if forms[1] == "atc" else identity(w.n)
    for k in range(1, 6):
        for name in ("A", "X", "U"):
            assert (getattr(s, name)[k] == left @ getattr(plain, name)[k] @ right).all(), name
        assert (s.B[k] == left @ plain.A[k]).all()


@settings(max_examples=12)
@given(net=any_networks(4))
def test_noise_is_carried_by_a_recursion_of_two_sparse_products(net):
    w = exact(net)
    s = Sums(w, "atc", "atc", 7)
    U, D = identity(w.n) - w.pi * np.full((w.n, w.n), Fraction(1)), w.C - identity(w.n)
    for k in range(1, 7):
        U, D = w.R @ (U + D), w.C @ D
        assert (s.U[k] == U).all()
