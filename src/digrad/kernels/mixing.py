"""Mixing with a small matrix in one pass over memory, on a GPU."""

from collections.abc import Sequence
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

Change = tuple[Any, Tensor]  # α and D
MOST_NODES = 64  # whose weights fit the registers of one program
COLUMNS = 64  # that one program mixes


def fits(matrix: Tensor, rows: Tensor, changes: Sequence[Change]) -> bool:
    """Whether W(X + Σ αD) can be computed so, for X of shape (trials, nodes, dim)."""
    square = rows.dim() == 3 and matrix.shape == (rows.shape[1], rows.shape[1])
    few = square and len(matrix) <= MOST_NODES and len(changes) <= 2
    numbers = (rows, matrix, *(change for _, change in changes))
    plain = all(t.dtype == torch.float32 and t.is_contiguous() for t in numbers)
    alike = all(change.shape == rows.shape for _, change in changes)
    return few and plain and alike and all(_is_per_trial(scale, rows) for scale, _ in changes)


def _is_per_trial(scale: Any, rows: Tensor) -> bool:
    if not isinstance(scale, Tensor):
        return True
    shapes = ((), (1,), (1, 1), (1, 1, 1), (len(rows), 1, 1))
    return scale.dtype == torch.float32 and scale.is_cuda and scale.shape in shapes


def mix(matrix: Tensor, rows: Tensor, changes: Sequence[Change]) -> Tensor:
    """W(X + Σ αD)."""
    trials, nodes, dim = rows.shape
    out = torch.empty_like(rows)
    given: list[Any] = []
    for scale, change in (*changes, (0, rows), (0, rows))[:2]:  # at most two; the rest is not read
        if isinstance(scale, Tensor):
            given += [change, scale, 0.0, int(scale.numel() > 1)]
        else:
            given += [change, rows, float(scale), 0]
    kinds = [2 if isinstance(scale, Tensor) else 1 for scale, _ in changes] + [0, 0]
    _mix[triton.cdiv(dim, COLUMNS), trials](
        matrix, rows, *given, out, nodes, dim, FIRST=kinds[0], SECOND=kinds[1],
        NODES=max(16, triton.next_power_of_2(nodes)), COLUMNS=COLUMNS    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _mix(  # type: ignore[no-untyped-def]
    matrix, rows, a, a_scales, a_scale, a_each, b, b_scales, b_scale, b_each, out, N, P,
    FIRST: tl.constexpr, SECOND: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    trial = tl.program_id(1).to(tl.int64)
    node, column = tl.arange(0, NODES), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real = (node[:, None] < N) & (column[None, :] < P)
    place = (trial * N + node[:, None]) * P + column[None, :]
    value = tl.load(rows + place, mask=real, other=0.0)
    if FIRST == 1:
        value += a_scale * tl.load(a + place, mask=real, other=0.0)
    if FIRST == 2:
        value += tl.load(a_scales + trial * a_each) * tl.load(a + place, mask=real, other=0.0)
    if SECOND == 1:
        value += b_scale * tl.load(b + place, mask=real, other=0.0)
    if SECOND == 2:
        value += tl.load(b_scales + trial * b_each) * tl.load(b + place, mask=real, other=0.0)
    weights = tl.load(
        matrix + node[:, None] * N + node[None, :],
        mask=(node[:, None] < N) & (node[None, :] < N),
        other=0.0,
    )
    mixed = tl.dot(weights, value, input_precision="ieee")
    tl.store(out + place, mixed, mask=real)
