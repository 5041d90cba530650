"""Gradients of tables of which rows are picked by number, for many networks at once, on a GPU.

The library's own add up in whatever order threads come, from 3072 numbers on: no run of a model of
text could be repeated to the bit.
"""

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

STRETCH = 128  # places that a program looks at together


def table_gradient(grad: Tensor, numbers: Tensor, rows: int) -> Tensor:
    """Sum (G, places, D) by numbers, (G, places), to (G, rows, D)."""
    groups, places, width = grad.shape
    out = grad.new_zeros((groups, rows, width))
    wide = min(128, triton.next_power_of_2(width))
    if grad.numel():
        _add_up[groups * places, triton.cdiv(width, wide)](
            grad.contiguous(), numbers.contiguous(), out, places, rows, width,
            PLACES=STRETCH, WIDE=wide, DOUBLE=grad.dtype == torch.float64,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["places", "rows"])  # type: ignore[untyped-decorator, unused-ignore]
def _add_up(  # type: ignore[no-untyped-def]
    grad, numbers, out, places, rows, D,
    PLACES: tl.constexpr, WIDE: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """Add up all that has the number of one place, if that is the first place which has it."""
    group, place = tl.program_id(0) // places, tl.program_id(0) % places
    grad, numbers = grad + group.to(tl.int64) * places * D, numbers + group.to(tl.int64) * places
    number, d = tl.load(numbers + place), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    before = 0
    for start in range(0, place, PLACES):
        k = start + tl.arange(0, PLACES)
        same = (k < place) & (tl.load(numbers + k, mask=k < place, other=0) == number)
        before += tl.sum(same.to(tl.int32), 0)
    if before == 0:
        total = tl.zeros((WIDE,), dtype=tl.float64 if DOUBLE else tl.float32)
        for start in range(place, places, PLACES):
            k = start + tl.arange(0, PLACES)
            same = (k < places) & (tl.load(numbers + k, mask=k < places, other=0) == number)
            if tl.sum(same.to(tl.int32), 0) > 0:
                wanted = same[:, None] & (d < D)[None, :]
                some = tl.load(grad + k[:, None] * D + d[None, :], mask=wanted, other=0.0)
                total += tl.sum(some.to(total.dtype), 0)
        own = out + (group.to(tl.int64) * rows + number) * D + d
        tl.store(own, total, mask=d < D)
