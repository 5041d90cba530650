"""Arguments at the door: numbers of any make are taken, all else is refused by its name."""

import math
from typing import Any

import numpy as np
import pytest

from digrad.base.checks import flag, kind_of, real, seed_of, whole
from digrad.base.errors import (
    DigradError,
    FileFormatError,
    ParameterError,
    UnknownNameError,
    lookup,
    printable,
    short_repr,
)
from digrad.base.files import toml_of

HUGE = pytest.param(10**5000, id="huge")


@pytest.mark.parametrize("value", [4, np.int64(4), np.uint8(4)])
def test_whole_numbers_of_any_make(value: Any) -> None:
    taken = whole(value, "n")
    assert taken == 4
    assert type(taken) is int


@pytest.mark.parametrize("value", [None, True, 4.0, "4", -1, np.nan, [4], HUGE, np.bool_(1)])
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"n must be a whole number (from 0 on|in 0 .. \d+), "):
        whole(value, "n")
    with pytest.raises(ParameterError, match=r"a seed is an integer in 0 .. 2\^63 - 1, got "):
        seed_of(value)


def test_what_is_too_large_hears_how_large_it_may_be() -> None:
    with pytest.raises(ParameterError, match=r"a whole number in 1 \.\. 9223372036854775807, got"):
        whole(10**30, "n", least=1)
    with pytest.raises(FileFormatError, match="a number in it has too many digits"):
        toml_of("steps = " + "9" * 5000)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int8(1)])
def test_numbers_of_any_make(value: Any) -> None:
    assert real(value, "x", above=0, most=1) == float(value)


@pytest.mark.parametrize("value", [None, True, "1", math.nan, math.inf, 0, 1.1, HUGE, 1j])
def test_what_is_no_number_in_its_range(value: Any) -> None:
    with pytest.raises(ParameterError, match="x must be a finite number, above 0, at most 1, got"):
        real(value, "x", above=0, most=1)


def test_truth_and_kinds() -> None:
    assert flag(np.bool_(True), "rotate") is True
    with pytest.raises(ParameterError, match="rotate must be true or false, got 1"):
        flag(1, "rotate")
    with pytest.raises(ParameterError, match="path must be a str or a list, got 3"):
        kind_of(3, "path", str, list)


def test_names_that_are_none() -> None:
    with pytest.raises(ParameterError, match="kind must be a name, got 1\n  hint: one of: a, b"):
        lookup({"a": 1, "b": 2}, 1, "kind")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError) as caught:
        lookup({"a": 1}, "x" * 10**6, "kind")
    assert len(str(caught.value)) < 200


def test_no_error_commands_a_terminal() -> None:
    text = str(DigradError("a\x1b[2J\x9bb\u202e\udcff\n\tc"))
    assert text == "a\\x1b[2J\\x9bb\\u202e\\udcff\n\tc"
    assert printable(text) == text
    assert len(short_repr("x" * 1000)) == 80
    assert short_repr(10**5000) == "a int that cannot be shown"
