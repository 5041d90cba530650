"""Random numbers as a function of (seed, node, step), on any device, in any order.

Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011): the
counter is (place in the node's sequence, node, stream), the key is the trial's seed. Hence
the same run on every engine, exact resume, and paired comparisons across algorithms.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws for some trials and some nodes.

    Args:
        seeds: one integer per trial, shape (trials,) or () for a single trial.
        rows: the nodes that draw, shape (rows,).
    """

    seeds: Tensor
    rows: Tensor

    def bits(self, steps: range, count: int, stream: int = 0) -> Tensor:
        """Return integers uniform on 0 .. 2³² - 1, shape (steps, *trials, rows, count).

        Draw k of step t is word t·count + k of its node's sequence, four words to a block;
        different streams are independent sequences.
        """
        first, last = steps.start * count, steps.stop * count
        blocks = torch.arange(first // 4, -(-last // 4), device=self.rows.device)
        counter = (
            blocks & _MASK,
            blocks >> 32,
            self.rows.unsqueeze(-1),
            torch.full((), stream, device=self.rows.device),  # a GPU is not kept waiting for it
        )
        seeds = self.seeds.to(self.rows.device)[..., None, None]
        words = torch.stack(_philox(counter, (seeds & _MASK, (seeds >> 32) & _MASK)), dim=-1)
        used = words.flatten(-2)[..., first % 4 : first % 4 + last - first]
        return used.reshape(*used.shape[:-1], len(steps), count).movedim(-2, 0)

    def indices(self, steps: range, high: int | Tensor, count: int, stream: int = 0) -> Tensor:
        """Return indices uniform on 0 .. high - 1, with replacement.

        ``high`` is one number below 2³¹, or one for each row, shape (rows,).
        """
        sizes = high.unsqueeze(-1) if isinstance(high, Tensor) else high
        return (self.bits(steps, count, stream) * sizes) >> 32

    def uniforms(self, steps: range, count: int, stream: int = 0) -> Tensor:
        """Return float64 numbers uniform on (0, 1), of 32 bits each."""
        return (self.bits(steps, count, stream).to(torch.float64) + 0.5) * 2.0**-32

    def columns(self, step: int, first: int, count: int, stream: int = 0) -> Tensor:
        """Return numbers in [0, 1) of 24 bits, shape (*trials, rows, count), exact in any float.

        Those of columns ``first`` on in one step: the same however a row is cut.
        """
        start = (step << 34) + first
        bits = self.bits(range(start, start + count), 1, stream)
        return ((bits >> 8).squeeze(-1).movedim(0, -1)).to(torch.float32) * 2.0**-24

    def normals(self, steps: range, count: int, stream: int = 0) -> Tensor:
        """Return float64 standard normal numbers, two from each pair of uniform ones."""
        half = -(-count // 2)
        u = self.uniforms(steps, 2 * half, stream)
        radius, angle = (-2 * u[..., :half].log()).sqrt(), 2 * torch.pi * u[..., half:]
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=-1)[..., :count]


def _philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> list[Tensor]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _M0)
        high1, low1 = _multiply(c2, _M1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return [c0, c1, c2, c3]  # ten rounds have spread every word over the full shape


def _multiply(a: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the high and low words of a 32 x 32 bit product.

    It may pass 2⁶³ and come out negative; its 64 bits are the right ones all the same.
    """
    product = a * m
    return (product >> 32) & _MASK, product & _MASK
