"""How far the mean of paired differences can be trusted: Student's interval, and more seeds."""

from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from digrad.results.trials import Floats

LEVEL = 0.95  # that all intervals of an answer hold together
POWER = 0.8  # the chance that as many seeds as are asked for decide
MOST_SEEDS = 1000  # more are not recommended


class Interval(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float
    std: float  # of one difference
    seeds: int

    @property
    def decided(self) -> bool:
        """Whether it lies on one side of zero."""
        return self.low > 0 or self.high < 0


def interval(differences: Floats, comparisons: int = 1) -> Interval:
    """Return Student's interval of a mean, one of so many that hold together (Bonferroni).

    >>> made = interval(np.array([1.0, 2.0, 3.0]))
    >>> made.mean, round(made.low, 3), made.decided
    (2.0, -0.484, False)
    """
    count = len(differences)
    mean = float(differences.mean()) if count else np.nan
    if count < 2:
        return Interval(mean, -inf, inf, np.nan, count)
    std = float(differences.std(ddof=1))
    half = _quantile(count, 1 - (1 - LEVEL) / (2 * comparisons)) * std / sqrt(count)
    return Interval(mean, mean - half, mean + half, std, count)


def more_seeds(seen: Interval, comparisons: int = 1) -> int | None:
    """Return how many more seeds would decide, if the difference is as large as it looks.

    With probability ``POWER``; none if that takes more than ``MOST_SEEDS``, or is not known.

    >>> more_seeds(interval(np.array([1.0, 2.0, 3.0])))
    2
    """
    if seen.seeds < 2 or not seen.mean:
        return None
    for count in range(seen.seeds + 1, MOST_SEEDS + 1):
        sure = _quantile(count, 1 - (1 - LEVEL) / (2 * comparisons)) + _quantile(count, POWER)
        if abs(seen.mean) * sqrt(count) >= sure * seen.std:
            return count - seen.seeds
    return None


def _quantile(count: int, p: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, p))
