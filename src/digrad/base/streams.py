"""Random numbers that are the same on every machine and in every release of NumPy."""

import numpy as np
from numpy.typing import NDArray

from digrad.base.checks import seed_of


class Draws:
    """A stream of random numbers fixed by one integer seed.

    Only the raw output of NumPy's Philox counter generator is used: its bits are
    guaranteed never to change, whereas the methods of ``numpy.random.Generator`` may.

    >>> Draws(0).uniform(3).round(6).tolist()
    [0.011547, 0.241549, 0.111426]
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed_of(seed, bits=128))

    def raw(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` random 64-bit integers."""
        return self._bits.random_raw(count)

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        """Return numbers uniform on [0, 1) with 53 random bits each."""
        bits = self.raw(int(np.prod(shape)))
        return (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53

    def integers(self, high: int, *shape: int) -> NDArray[np.int64]:
        """Return integers uniform on 0 .. high - 1."""
        return np.floor(self.uniform(*shape) * high).astype(np.int64)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return a random order of 0 .. n - 1."""
        return np.argsort(self.raw(n), kind="stable")


def counted_uniforms(seed: int, purpose: int, steps: range, count: int) -> NDArray[np.float64]:
    """Return numbers uniform on [0, 1), shape (steps, count): number k of step t for a purpose.

    A function of (seed, purpose, k, t) alone: the same wherever and in whatever pieces it is
    drawn. Philox is a counter, so no step depends on an earlier one.

    >>> whole, part = counted_uniforms(1, 0, range(3, 9), 5), counted_uniforms(1, 0, range(5, 7), 5)
    >>> bool((whole[2:4] == part).all())
    True
    """
    each = -(-count // 4)  # the counter moves on by one for four numbers
    key = seed_of(seed, bits=63) + (purpose + 1 << 64)  # purpose + 1: apart from ``Draws``
    bits = np.random.Philox(key=key, counter=steps.start * each).random_raw(4 * each * len(steps))
    numbers = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers.reshape(len(steps), 4 * each)[:, :count]
