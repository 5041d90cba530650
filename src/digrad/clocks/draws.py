"""Random numbers as a function of (seed, purpose, node or link, number), in any order.

Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011), as in
``base.counters``, on NumPy arrays.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

COMPUTE, JITTER, LOSS, PARTNER = range(4)  # purposes


def uniform(seed: int, purpose: int, who: Integers, number: Integers, to: Integers | int) -> Floats:
    """Return numbers uniform on (0, 1) of 53 bits, one for each ``who`` and ``number``.

    A link is its sender ``who`` and its receiver ``to``; of a node, ``to`` is -1.

    >>> link = np.array([3, 3]), np.array([0, 1])
    >>> uniform(0, JITTER, *link, 4).round(4).tolist()
    [0.3784, 0.5649]
    """
    shape = np.broadcast_shapes(np.shape(who), np.shape(number), np.shape(to))
    words = [np.broadcast_to(np.asarray(w), shape).astype(np.uint64) for w in (who, number)]
    receiver = np.broadcast_to(np.asarray(to) + 1, shape).astype(np.uint64)
    low, high = words[1] & _MASK, words[1] >> _HALF
    counter = low, high | np.uint64(purpose << 24), words[0], receiver
    a, b, _, _ = _philox(counter, seed)
    bits = ((a << _HALF) | b) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def _philox(counter: tuple[NDArray[np.uint64], ...], seed: int) -> tuple[NDArray[np.uint64], ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        first, second = c0 * _M0, c2 * _M1
        c0 = (second >> _HALF) ^ c1 ^ np.uint64(k0)
        c2 = (first >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & _MASK, first & _MASK
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3
