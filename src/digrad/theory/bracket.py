"""Numbers that come with their error: closed intervals [low, high]."""

from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Union

import numpy as np
from numpy.typing import NDArray

Number = Union["Bracket", float]


@dataclass(frozen=True, repr=False)
class Bracket:
    """A number known to lie in [low, high].

    The arithmetic is that of nonnegative intervals, which is all the paper's constants
    need: every one of them is a sum, product, quotient, power or maximum of such.

    >>> Bracket(1.0, 1.5) * 2 + 1
    Bracket(3, 4)
    """

    low: float
    high: float

    def __repr__(self) -> str:
        """Show both ends to nine digits."""
        return f"Bracket({self.low:.9g}, {self.high:.9g})"

    @property
    def value(self) -> float:
        """The middle, or the low end where nothing bounds it from above."""
        return (self.low + self.high) / 2 if isfinite(self.high) else self.low

    @property
    def relative_width(self) -> float:
        """(high - low)/high: 0 for an exact number, 1 when nothing is known."""
        if self.high == self.low:
            return 0.0
        return (self.high - self.low) / self.high if isfinite(self.high) else 1.0

    def __contains__(self, x: float) -> bool:
        """Whether a number lies inside."""
        return self.low <= x <= self.high

    def __add__(self, other: Number) -> "Bracket":
        """Return the sum."""
        b = _bracket(other)
        return Bracket(self.low + b.low, self.high + b.high)

    def __mul__(self, other: Number) -> "Bracket":
        """Return the product, with 0 times anything equal to 0."""
        b = _bracket(other)
        return Bracket(_product(self.low, b.low), _product(self.high, b.high))

    def __truediv__(self, other: Number) -> "Bracket":
        """Return the quotient; dividing by 0 gives infinity."""
        b = _bracket(other)
        return Bracket(_quotient(self.low, b.high), _quotient(self.high, b.low))

    def __pow__(self, exponent: int) -> "Bracket":
        """Return a positive integer power."""
        return Bracket(self.low**exponent, self.high**exponent)

    def sqrt(self) -> "Bracket":
        """Return the square root."""
        return Bracket(sqrt(self.low), sqrt(self.high))


def maximum(*numbers: Number) -> Bracket:
    """Return the bracket of the largest of several numbers.

    >>> maximum(Bracket(1, 2), 1.5)
    Bracket(1.5, 2)
    """
    brackets = [_bracket(x) for x in numbers]
    return Bracket(max(b.low for b in brackets), max(b.high for b in brackets))


def brackets(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[Bracket]:
    """Return the bracket of each pair of ends; a low end below 0 is 0."""
    ends = zip(np.maximum(low, 0.0), high, strict=True)
    return [Bracket(float(a), float(b)) for a, b in ends]


def _bracket(x: Number) -> Bracket:
    return x if isinstance(x, Bracket) else Bracket(float(x), float(x))


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _quotient(a: float, b: float) -> float:
    if a == 0:
        return 0.0
    return inf if b == 0 else a / b
