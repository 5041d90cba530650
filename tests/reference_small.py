"""Methods with small messages once more, as their papers print them: NumPy, one loop over t.

Nothing here is shared with the library. Rows are shorter than a block, so each is compressed as
a whole; constants are those of a full block of 64 numbers, or 1024 where some are left out.
"""

from collections.abc import Callable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Compressor = Callable[[Array, Array], Array]  # of one row v and uniform numbers u


def uniforms(t: int, line: int, nodes: Sequence[int], dim: int) -> Array:
    """What the nodes draw in step t for the variable of that number."""
    return np.array([np.random.default_rng([13, t, line, int(i)]).random(dim) for i in nodes])


def dither(bits: int) -> Compressor:
    s = 2 ** (bits - 1) - 1

    def compress(v: Array, u: Array) -> Array:
        m = np.abs(v).max()
        return m * np.sign(v) * np.floor(s * np.abs(v) / m + u) / s if m else v

    return compress


def nearest(bits: int) -> Compressor:
    return lambda v, u: dither(bits)(v, np.full_like(v, 0.5))


def top(k: int) -> Compressor:
    def compress(v: Array, u: Array) -> Array:
        made = np.zeros_like(v)
        for i in sorted(range(len(v)), key=lambda i: (-abs(v[i]), i))[:k]:
            made[i] = v[i]
        return made

    return compress


def rounding(v: Array, u: Array) -> Array:
    return np.array([float(round(x)) for x in v])  # ties to even, as everywhere


# As defaults are: a and zeta of blocks of 64 numbers, of dithering by 4 and by 2 bits, ...
OMEGA = {bits: 64 / (4 * (2 ** (bits - 1) - 1) ** 2) for bits in (2, 4)}
USUAL = {bits: log(64) / (6 * (2 ** (bits - 1) - 1) ** 2) for bits in (2, 4)}
TENTH = 2 * 102 / 1024


class Difference:
    """q = Q(V - H), V - zeta (H + q - W(H + q)), H + a q; with a scale that falls."""

    def __init__(
        self, W: Array, Q: Compressor, line: int, H: Array, zeta: float, a: float, fall: float = 1
    ) -> None:
        self.W, self.Q, self.line, self.H = W, Q, line, H
        self.zeta, self.a, self.scale, self.fall = zeta, a, 1.0, fall

    def __call__(self, t: int, V: Array) -> Array:
        u = uniforms(t, self.line, range(len(V)), V.shape[1])
        moved = (V - self.H) / self.scale
        q = self.scale * np.array([self.Q(v, r) for v, r in zip(moved, u, strict=True)])
        self.scale *= self.fall
        hat = self.H + q
        self.H = self.H + self.a * q
        return V - self.zeta * (hat - self.W @ hat)


class Direct:
    """c = Q(V), V + zeta (Wc - c)."""

    def __init__(self, W: Array, Q: Compressor, line: int, zeta: float) -> None:
        self.W, self.Q, self.line, self.zeta = W, Q, line, zeta

    def __call__(self, t: int, V: Array) -> Array:
        u = uniforms(t, self.line, range(len(V)), V.shape[1])
        c = np.array([self.Q(v, r) for v, r in zip(V, u, strict=True)])
        return V + self.zeta * (self.W @ c - c)


class Feedback(Direct):
    """c = Q(V + e), V + zeta (Wc - c), e = V + e - c."""

    e: Array | float = 0.0

    def __call__(self, t: int, V: Array) -> Array:
        c = np.array([self.Q(v, v) for v in V + self.e])
        self.e = V + self.e - c
        return V + self.zeta * (self.W @ c - c)
