"""Max-pooling, group norm and gradients of tables, of many small networks at once, on a GPU."""

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

STRETCH = 512  # pixels of one program of max-pooling
PLACES = 128  # of a sequence, that one program of tables compares together
MOST_NORMED = 1 << 14  # numbers with one mean: they have to fit one program's registers
SECTOR = 32  # bytes, of which a GPU reads none alone


def pool(x: Tensor, high: int, wide: int) -> tuple[Tensor, Tensor]:
    """Return the largest number of every window of (..., H, W), and which of them it is."""
    x, height, width = x.contiguous(), x.shape[-2] // high, x.shape[-1] // wide
    most = x.new_empty((*x.shape[:-2], height, width))
    winner = torch.empty_like(most, dtype=torch.uint8)
    _pool[(triton.cdiv(most.numel(), STRETCH),)](
        x, most, winner, most.numel(), *x.shape[-2:], height, width,
        KH=high, KW=wide, PIXELS=STRETCH,
    )  # fmt: skip
    return most, winner


def unpool(grad: Tensor, winner: Tensor, high: int, wide: int, shape: torch.Size) -> Tensor:
    """Return the gradient with respect to x, of that shape."""
    out = grad.new_empty(shape)
    _unpool[(triton.cdiv(out.numel(), STRETCH),)](
        grad.contiguous(), winner, out, out.numel(), *shape[-2:], *grad.shape[-2:],
        KH=high, KW=wide, PIXELS=STRETCH,
    )  # fmt: skip
    return out


def fits(x: Tensor, groups: int) -> bool:
    """Whether there is a norm of x, (samples, C, ...), for channels in so many groups."""
    sizes = _sizes(x.unsqueeze(0), groups, inner=False)
    return x.dim() > 1 and sizes["CHANNELS"] * sizes["PIXELS"] <= MOST_NORMED


def norm(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """Normalize (G, S, C, ...) over channels in groups, scale and shift by (G, C) each.

    Return that, and the means and the reciprocal deviations, (G, S * groups, 2).
    """
    inner = _inner(x)
    x = _laid(x, inner)
    out = torch.empty_like(x)
    kept = x.new_empty((len(x), x.shape[1] * groups, 2), dtype=torch.float32)
    sizes = _sizes(x, groups, inner=inner)
    _norm[(kept.numel() // 2 // sizes["TOGETHER"],)](
        x, weight.contiguous(), bias.contiguous(), out, kept, eps,
        **sizes, **_strides(x, inner), num_warps=_warps(sizes),
    )  # fmt: skip
    return out, kept


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, kept: Tensor, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to x, weight and bias."""
    inner = _inner(x)
    x = _laid(x, inner)
    out = torch.empty_like(x)
    sums = x.new_empty((2, *x.shape[:3]), dtype=torch.float32)
    sizes = _sizes(x, groups, inner=inner)
    _norm_backward[(kept.numel() // 2 // sizes["TOGETHER"],)](
        _laid(grad, inner), x, weight.contiguous(), kept.contiguous(), out, sums,
        kept.numel() // 2, **sizes, **_strides(x, inner), num_warps=_warps(sizes),
    )  # fmt: skip
    dw, db = sums.sum(2).to(weight.dtype)
    return out, dw, db


def table_gradient(grad: Tensor, numbers: Tensor, rows: int) -> Tensor:
    """Sum (G, places, D) by numbers, (G, places), to (G, rows, D), always in the same order.

    The library adds up in whatever order threads come, from 3072 numbers on: no run of a model
    of text could be repeated to the bit.
    """
    groups, places, width = grad.shape
    out = grad.new_zeros((groups, rows, width))
    wide = min(128, triton.next_power_of_2(width))
    if grad.numel():
        _add_up[groups * places, triton.cdiv(width, wide)](
            grad.contiguous(), numbers.contiguous(), out, places, rows, width,
            PLACES=PLACES, WIDE=wide, DOUBLE=grad.dtype == torch.float64,
        )  # fmt: skip
    return out


def _inner(x: Tensor) -> bool:
    """Whether the channels of (G, S, C, ...) lie innermost."""
    return not x.is_contiguous() and x.movedim(2, -1).is_contiguous()


def _laid(x: Tensor, inner: bool) -> Tensor:
    return x.movedim(2, -1).contiguous().movedim(-1, 2) if inner else x.contiguous()


def _sizes(x: Tensor, groups: int, *, inner: bool) -> dict[str, int]:
    """Return sizes for the kernels: how many groups, of how many channels, in which blocks.

    Where channels lie innermost, groups of few are taken together, to read whole sectors; the
    block is whole then if no part of it is empty.
    """
    channels, pixels = x.shape[2] // groups, x[0, 0, 0].numel()
    blocks = triton.next_power_of_2(channels), triton.next_power_of_2(pixels)
    together, least = 1, SECTOR // x.element_size()
    whole = inner and blocks[0] == channels
    while (
        whole
        and groups % (2 * together) == 0
        and together * channels < least
        and 2 * together * blocks[0] * blocks[1] <= MOST_NORMED
    ):
        together *= 2
    sizes = {"S": x.shape[1], "GROUPS": groups, "EACH": channels, "HW": pixels}
    blocked = {"CHANNELS": together * blocks[0], "PIXELS": blocks[1]}
    return sizes | blocked | {"TOGETHER": together, "WHOLE": whole}


def _strides(x: Tensor, inner: bool) -> dict[str, int]:
    channels, pixels = x.shape[2], x[0, 0, 0].numel()
    to = (1, channels) if inner else (pixels, 1)
    return dict(zip(("TO_CHANNEL", "TO_PIXEL"), to, strict=True))


def _warps(sizes: dict[str, int]) -> int:
    return int(min(16, max(1, sizes["CHANNELS"] * sizes["PIXELS"] // 512)))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pool(  # type: ignore[no-untyped-def]
    x, most, winner, ALL, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    first, pixels = tl.program_id(0).to(tl.int64) * PIXELS, HO * WO
    q = (first % pixels).to(tl.int32) + tl.arange(0, PIXELS)  # from the first plane on
    real, p = tl.arange(0, PIXELS) < ALL - first, q % pixels
    corner = x + first // pixels * H * W + (q // pixels * H * W + p // WO * KH * W + p % WO * KW)
    best = tl.load(corner, mask=real, other=0.0)
    which = tl.zeros((PIXELS,), dtype=tl.int32)
    for k in tl.static_range(1, KH * KW):
        pixel = tl.load(corner + k // KW * W + k % KW, mask=real, other=0.0)
        which = tl.where(pixel > best, k, which)
        # A number that is none must not vanish: a run that diverges has to show it.
        best = tl.where((pixel > best) | (pixel != pixel), pixel, best)
    tl.store(most + first + tl.arange(0, PIXELS), best, mask=real)
    tl.store(winner + first + tl.arange(0, PIXELS), which.to(tl.uint8), mask=real)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _unpool(  # type: ignore[no-untyped-def]
    grad, winner, out, ALL, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    first, pixels = tl.program_id(0).to(tl.int64) * PIXELS, H * W
    q = (first % pixels).to(tl.int32) + tl.arange(0, PIXELS)
    real, row, column = tl.arange(0, PIXELS) < ALL - first, q % pixels // W, q % W
    window = q // pixels * HO * WO + row // KH * WO + column // KW
    inside = real & (row // KH < HO) & (column // KW < WO)
    plane = first // pixels * HO * WO
    which = tl.load(winner + plane + window, mask=inside, other=255)
    value = tl.load(grad + plane + window, mask=inside, other=0.0)
    own = which.to(tl.int32) == row % KH * KW + column % KW
    tl.store(out + first + tl.arange(0, PIXELS), tl.where(own, value, 0.0), mask=real)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _of_groups(sums, TOGETHER: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return for each channel the sum over those of its group."""
    groups = tl.reshape(sums, (TOGETHER, CHANNELS // TOGETHER))
    total = tl.sum(groups, 1)[:, None]
    return tl.reshape(tl.broadcast_to(total, (TOGETHER, CHANNELS // TOGETHER)), (CHANNELS,))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm(  # type: ignore[no-untyped-def]
    x, weight, bias, out, kept, eps, S, GROUPS, EACH, HW, TO_CHANNEL, TO_PIXEL,
    TOGETHER: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    one = tl.program_id(0).to(tl.int64) * TOGETHER  # the first of some groups of one image
    c, p = tl.arange(0, CHANNELS), tl.arange(0, PIXELS)
    own = (one // GROUPS // S * GROUPS + one % GROUPS) * EACH + c
    wanted = c < (CHANNELS if WHOLE else TOGETHER * EACH)
    real = wanted[:, None] & (p[None, :] < HW)
    first = one // GROUPS * GROUPS * EACH * HW + one % GROUPS * EACH * TO_CHANNEL
    if WHOLE:  # a block of channels, which lie together
        first = tl.multiple_of(first, CHANNELS)
    place = first + c[:, None] * TO_CHANNEL + p[None, :] * TO_PIXEL
    value = tl.load(x + place, mask=real, other=0.0).to(tl.float32)
    mean = _of_groups(tl.sum(value, 1), TOGETHER, CHANNELS) / (EACH * HW)
    value = tl.where(real, value - mean[:, None], 0.0)
    spread = _of_groups(tl.sum(value * value, 1), TOGETHER, CHANNELS) / (EACH * HW)
    scale = 1 / tl.sqrt(spread + eps)
    w = tl.load(weight + own, mask=wanted, other=0.0).to(tl.float32)
    b = tl.load(bias + own, mask=wanted, other=0.0).to(tl.float32)
    tl.store(out + place, value * (scale * w)[:, None] + b[:, None], mask=real)
    group = one + c // (CHANNELS // TOGETHER)
    leader = c % (CHANNELS // TOGETHER) == 0  # the first channel of a group stores for all
    tl.store(kept + 2 * group, mean, mask=leader)
    tl.store(kept + 2 * group + 1, scale, mask=leader)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm_backward(  # type: ignore[no-untyped-def]
    grad, x, weight, kept, out, sums, ALL, S, GROUPS, EACH, HW, TO_CHANNEL, TO_PIXEL,
    TOGETHER: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    one = tl.program_id(0).to(tl.int64) * TOGETHER
    c, p = tl.arange(0, CHANNELS), tl.arange(0, PIXELS)
    own = (one // GROUPS // S * GROUPS + one % GROUPS) * EACH + c
    wanted = c < (CHANNELS if WHOLE else TOGETHER * EACH)
    real = wanted[:, None] & (p[None, :] < HW)
    first = one // GROUPS * GROUPS * EACH * HW + one % GROUPS * EACH * TO_CHANNEL
    if WHOLE:  # a block of channels, which lie together
        first = tl.multiple_of(first, CHANNELS)
    place = first + c[:, None] * TO_CHANNEL + p[None, :] * TO_PIXEL
    group = one + c // (CHANNELS // TOGETHER)
    mean, scale = tl.load(kept + 2 * group)[:, None], tl.load(kept + 2 * group + 1)[:, None]
    value = (tl.load(x + place, mask=real, other=0.0).to(tl.float32) - mean) * scale
    back = tl.load(grad + place, mask=real, other=0.0).to(tl.float32)
    of_weight, of_bias = tl.sum(back * value, 1), tl.sum(back, 1)
    w = tl.load(weight + own, mask=wanted, other=0.0).to(tl.float32)
    along = _of_groups(of_weight * w, TOGETHER, CHANNELS)[:, None] / (EACH * HW)
    across = _of_groups(of_bias * w, TOGETHER, CHANNELS)[:, None] / (EACH * HW)
    tl.store(out + place, scale * (back * w[:, None] - across - value * along), mask=real)
    channel = one * EACH + c
    tl.store(sums + channel, of_weight, mask=wanted)
    tl.store(sums + ALL * EACH + channel, of_bias, mask=wanted)


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
