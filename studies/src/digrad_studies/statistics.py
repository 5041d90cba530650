"""What a study says about its numbers: slopes and rank correlations, with bootstrap intervals."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from digrad.base.errors import ParameterError
from digrad.base.streams import Draws

Floats = NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 2000


class Estimate(NamedTuple):
    """A number and the ends of its interval at ``LEVEL``."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Write all three.

        >>> print(Estimate(-0.5, -0.52, -0.478))
        -0.500 [-0.520, -0.478]
        """
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def log_slope(x: ArrayLike, y: ArrayLike) -> Floats:
    """Return the least-squares slope of log y on log x; the last axis of y runs along x.

    >>> float(log_slope([1, 4, 16], [2.0, 1.0, 0.5]).round(12))
    -0.5
    """
    logs = np.log(np.asarray(x, dtype=np.float64))
    away = logs - logs.mean()
    return np.asarray(np.log(np.asarray(y, dtype=np.float64)) @ (away / (away @ away)))


def slope(x: ArrayLike, values: ArrayLike, *, seed: int = 0) -> Estimate:
    """Fit log of the mean over seeds on log x, with an interval from resampled seeds.

    Args:
        x: where it was measured.
        values: shape (len(x), seeds). A seed is resampled at all x together, since its
            samples are shared between them.
        seed: of the resampling.
    """
    table = np.asarray(values, dtype=np.float64)
    return _bootstrap(lambda picks: log_slope(x, table[:, picks].mean(-1).T), table.shape[1], seed)


def mean(values: ArrayLike, *, seed: int = 0) -> Estimate:
    """Return the mean over the last axis, with an interval from resampling it."""
    table = np.asarray(values, dtype=np.float64)
    return _bootstrap(lambda picks: table[picks].mean(-1), len(table), seed)


def spearman(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> Estimate:
    """Return Spearman's rank correlation, with an interval from resampled pairs.

    >>> spearman([1, 2, 3, 4], [1, 8, 27, 64]).value
    1.0
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return _bootstrap(lambda picks: rank_correlation(a[picks], b[picks]), len(a), seed)


def rank_correlation(x: Floats, y: Floats) -> Floats:
    """Correlate ranks along the last axis; ties share their mean rank, constants give 0."""
    from scipy.stats import rankdata

    a, b = (rankdata(v, axis=-1) for v in (x, y))
    a, b = (v - v.mean(-1, keepdims=True) for v in (a, b))
    size = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray((a * b).sum(-1) / np.where(size > 0, size, 1.0))


def _bootstrap(statistic: Callable[[NDArray[np.int64]], Floats], count: int, seed: int) -> Estimate:
    """Evaluate a statistic of picks (..., count) on the sample itself and on resamples of it."""
    if count < 1:
        raise ParameterError("there is nothing to resample", hint="give one seed or more")
    whole = float(statistic(np.arange(count)[None])[0])
    again = statistic(Draws(seed).integers(count, RESAMPLES, count))
    low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(whole, float(low), float(high))
