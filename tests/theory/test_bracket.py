"""Brackets: whatever lies inside the operands, the result lies inside the bracket."""

from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.theory.bracket import Bracket, maximum

SIZES = st.floats(0, 1e6) | st.just(0.0)


@st.composite
def known(draw) -> tuple[Bracket, float]:
    """A bracket and a number in it."""
    low, x, high = sorted(draw(st.lists(SIZES, min_size=3, max_size=3)))
    return Bracket(low, high), x


@given(known(), known())
def test_sums_and_products_hold_every_sum_and_product(a, b):
    # Rounding is monotone, so the containment is exact in floating point too.
    (A, x), (B, y) = a, b
    assert x + y in A + B
    assert x * y in A * B
    assert max(x, y) in maximum(A, B)


@given(known(), known())
def test_quotients_hold_every_quotient_of_a_positive_number(a, b):
    (A, x), (B, y) = a, b
    quotient = A / B
    assert y == 0 or x / y in quotient
    assert 0 <= quotient.low <= quotient.high


@given(known(), st.integers(1, 4))
def test_powers_and_roots_hold_every_power_and_root(a, exponent):
    # The library's pow need not round monotonically: one step of the last digit is allowed.
    A, x = a
    power = A**exponent
    assert nextafter(power.low, -inf) <= x**exponent <= nextafter(power.high, inf)
    assert x**0.5 in A.sqrt()


@given(known(), SIZES)
def test_a_plain_number_counts_as_an_exact_bracket(a, y):
    A, _ = a
    exact = Bracket(y, y)
    assert A + y == A + exact
    assert A * y == A * exact
    assert A / y == A / exact
    assert maximum(A, y) == maximum(A, exact)


def test_zero_times_the_unknown_is_zero():
    unknown = Bracket(0.0, inf)
    assert unknown * 0.0 == Bracket(0.0, 0.0)
    assert Bracket(0.0, 2.0) * unknown == Bracket(0.0, inf)


def test_dividing_by_zero_gives_infinity_and_zero_over_zero_gives_zero():
    assert Bracket(1.0, 2.0) / 0.0 == Bracket(inf, inf)
    assert Bracket(1.0, 2.0) / Bracket(0.0, 4.0) == Bracket(0.25, inf)
    assert Bracket(0.0, 0.0) / 0.0 == Bracket(0.0, 0.0)


def test_the_value_is_the_middle_or_the_low_end_of_an_open_bracket():
    assert Bracket(1.0, 3.0).value == 2.0
    assert Bracket(1.0, inf).value == 1.0


@pytest.mark.parametrize(
    ("bracket", "width"),
    [
        (Bracket(2.0, 2.0), 0.0),
        (Bracket(0.0, 0.0), 0.0),
        (Bracket(3.0, 4.0), 0.25),
        (Bracket(0.0, 4.0), 1.0),
        (Bracket(1.0, inf), 1.0),
    ],
)
def test_the_relative_width_goes_from_exact_to_unknown(bracket, width):
    assert bracket.relative_width == width


def test_membership_counts_both_ends():
    bracket = Bracket(1.0, 2.0)
    assert 1.0 in bracket
    assert 2.0 in bracket
    assert 0.999 not in bracket
    assert 2.001 not in bracket


def test_a_bracket_prints_nine_digits_of_both_ends():
    assert repr(Bracket(1 / 3, 2 / 3)) == "Bracket(0.333333333, 0.666666667)"
