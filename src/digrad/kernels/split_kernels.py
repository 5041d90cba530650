"""Kernels for convolutions of layers with many channels, for many networks at once, on a GPU.

A number is the sum of one, two or three of bfloat16, its parts; products of parts run on tensor
cores and are summed in single precision. Channels lie innermost, padded to a multiple of 16, so
that what a product reads lies together, and images have zeros around them, so that nobody asks
where they end. Tensor cores cut off what they add rather than round it: with three parts the sums
of a few products are added up outside of them.
"""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit(do_not_specialize=["top", "left"])  # type: ignore[untyped-decorator, unused-ignore]
def split(  # type: ignore[no-untyped-def]
    x, out, plane, rows, top, left, TO_IMAGE, TO_PIXEL: tl.constexpr, TO_CHANNEL: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, ACROSS: tl.constexpr,
    C: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the parts of some channels of some pixels of images with zeros around them.

    ``top`` and ``left`` are no constants: of indices that it sees to be small the compiler packs
    two into a register, and loses constants that it adds to them (Triton 3.6 on an H200).
    """
    first, pixels = tl.program_id(0).to(tl.int64) * ROWS, HIGH * ACROSS
    q = (first % pixels).to(tl.int32) + tl.arange(0, ROWS)  # from the first image on
    c = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    r, k = q % pixels // ACROSS - top, q % ACROSS - left
    real = tl.arange(0, ROWS) < rows - first
    inside = real & (r >= 0) & (r < H) & (k >= 0) & (k < W)
    image = x + (first // pixels) * TO_IMAGE + (q // pixels).to(tl.int64) * TO_IMAGE
    place = (image + (r * W + k) * TO_PIXEL)[:, None] + (c * TO_CHANNEL)[None, :]
    left_over = tl.load(place, mask=inside[:, None] & (c < C)[None, :], other=0.0).to(tl.float32)
    own = out + first * PADDED + (tl.arange(0, ROWS) * PADDED)[:, None] + c[None, :]
    for part in tl.static_range(PARTS):
        piece = left_over.to(tl.bfloat16)
        tl.store(own + part * plane, piece, mask=real[:, None] & (c < PADDED)[None, :])
        left_over -= piece.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def split_weights(  # type: ignore[no-untyped-def]
    weight, out, plane, TO_GROUP, OUT: tl.constexpr, C: tl.constexpr, OUT_PADDED: tl.constexpr,
    PADDED: tl.constexpr, TAPS: tl.constexpr, PARTS: tl.constexpr,
    WIDE: tl.constexpr, ALL_TAPS: tl.constexpr,
):  # fmt: skip
    """Store the parts of (G, OUT, C, taps) as (G, taps, OUT padded, C padded)."""
    group, o = (tl.program_id(0) // OUT_PADDED).to(tl.int64), tl.program_id(0) % OUT_PADDED
    c, tap = tl.program_id(1) * WIDE + tl.arange(0, WIDE), tl.arange(0, ALL_TAPS)
    real = (o < OUT) & (c < C)[:, None] & (tap < TAPS)[None, :]
    place = group * TO_GROUP + (o * C + c[:, None]) * TAPS + tap[None, :]
    left = tl.load(weight + place, mask=real, other=0.0).to(tl.float32)
    real = (c < PADDED)[:, None] & (tap < TAPS)[None, :]
    place = (group * TAPS + tap[None, :]) * OUT_PADDED * PADDED + o * PADDED + c[:, None]
    for part in tl.static_range(PARTS):
        piece = left.to(tl.bfloat16)
        tl.store(out + part * plane + place, piece, mask=real)
        left -= piece.to(tl.float32)


PLACES = ["strips", "S", "HIGH", "ACROSS", "HO", "WO", "high", "wide", "rows", "columns", "step_h"]
PLACES += ["step_w", "first_h", "first_w", "tap", "down", "across", "out_h", "out_w", "a", "b"]


@triton.jit(do_not_specialize=PLACES)  # type: ignore[untyped-decorator, unused-ignore]
def gather(  # type: ignore[no-untyped-def]
    x, weight, shift, out, strips, S, to_part, to_part_of_weight, TO_GROUP, TO_TAP, TO_OUT, TO_IN,
    C, HIGH, ACROSS, OUT, PADDED, HO, WO, high, wide, rows, columns, step_h, step_w,
    first_h, first_w, tap, down, across, out_h, out_w, a, b,
    SHIFTED: tl.constexpr, PARTS: tl.constexpr,
    PIXELS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Store a tile of some outputs at some pixels of one group.

    x is (HIGH, ACROSS, C) for each image, out (HO, WO, OUT). The pixel (r, c) of (high, wide) is
    that at (r * out_h + a, c * out_w + b) of out. It reads (rows, columns) of x from
    (r * step_h + first_h, c * step_w + first_w) on; the first belongs to the number ``tap`` of
    the window, and from one to the next it is ``down`` and ``across`` numbers.
    """
    group = (tl.program_id(0) // strips).to(tl.int64)
    q = tl.program_id(0) % strips * PIXELS + tl.arange(0, PIXELS)
    o = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    d = tl.arange(0, DEPTH)
    r, c, image = q % (high * wide) // wide, q % wide, q // (high * wide)
    real, wanted = image < S, (o < PADDED)[None, :]
    up, left = r * step_h + first_h, c * step_w + first_w
    corner = ((tl.minimum(image, S - 1) * HIGH + up) * ACROSS + left) * C
    places = x + group * S * HIGH * ACROSS * C + corner[:, None] + d[None, :]
    weights = weight + group * TO_GROUP + o[None, :] * TO_OUT + (d * TO_IN)[:, None]
    total = tl.zeros((PIXELS, WIDE), dtype=tl.float32)
    start, column, away, number = 0, 0, 0, tap
    for _ in range(rows * columns * (C // DEPTH)):
        place, own = places + (away + start), weights + (number * TO_TAP + start * TO_IN)
        a0, w0 = tl.load(place), tl.load(own, mask=wanted, other=0.0)
        if PARTS > 1:
            a1 = tl.load(place + to_part)
            w1 = tl.load(own + to_part_of_weight, mask=wanted, other=0.0)
        if PARTS == 1:
            total = tl.dot(a0, w0, total)
        elif PARTS == 2:
            total = tl.dot(a1, w0, total)
            total = tl.dot(a0, w1, total)
            total = tl.dot(a0, w0, total)
        else:
            a2 = tl.load(place + 2 * to_part)
            w2 = tl.load(own + 2 * to_part_of_weight, mask=wanted, other=0.0)
            few = tl.dot(a2, w0)
            few = tl.dot(a0, w2, few)
            few = tl.dot(a1, w1, few)
            few = tl.dot(a1, w0, few)
            few = tl.dot(a0, w1, few)
            total += tl.dot(a0, w0, few)
        # On to the next channels, then the next column, then the next row.
        start += DEPTH
        over = start == C
        start = tl.where(over, 0, start)
        column = tl.where(over, column + 1, column)
        last = column == columns
        column = tl.where(last, 0, column)
        away = tl.where(over, tl.where(last, away + (ACROSS - columns + 1) * C, away + C), away)
        number = tl.where(
            over, tl.where(last, number + down - (columns - 1) * across, number + across), number
        )
    if SHIFTED:
        total += tl.load(shift + group * OUT + o, mask=o < OUT, other=0.0)[None, :]
    out += group * S * HO * WO * OUT
    place = ((image * HO + r * out_h + a) * WO + c * out_w + b)[:, None] * OUT + o[None, :]
    tl.store(out + place, total, mask=real[:, None] & (o < OUT)[None, :])


@triton.jit(do_not_specialize=["stretches", "length", "S", "first"])  # type: ignore[untyped-decorator, unused-ignore]
def correlate(  # type: ignore[no-untyped-def]
    grad, x, sums, stretches, length, S, first, to_part_of_grad, to_part,
    HIGH: tl.constexpr, ACROSS: tl.constexpr, GRAD_HIGH: tl.constexpr, GRAD_ACROSS: tl.constexpr,
    HO: tl.constexpr, WO: tl.constexpr, OUT_PADDED: tl.constexpr, PADDED: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PARTS: tl.constexpr, PIXELS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
    RUN: tl.constexpr,
):  # fmt: skip
    """Sum products of gradients and of some numbers of patches over a stretch of pixels.

    A patch is (KH, KW, channels), of which ``RUN`` numbers lie together. Gradients begin at the
    pixel ``first`` of those with zeros around them, (GRAD_HIGH, GRAD_ACROSS).
    """
    group, stretch = (tl.program_id(0) // stretches).to(tl.int64), tl.program_id(0) % stretches
    numbers: tl.constexpr = KH * KW * PADDED
    pieces: tl.constexpr = (numbers + DEPTH - 1) // DEPTH
    o = tl.program_id(1) // pieces * WIDE + tl.arange(0, WIDE)
    k = tl.program_id(1) % pieces * DEPTH + tl.arange(0, DEPTH)
    tap = tl.minimum(k, numbers - 1) // PADDED
    away = (tap // KW * ACROSS + tap % KW) * PADDED + k % PADDED
    away = tl.max_contiguous(tl.multiple_of(away, RUN), RUN)
    grad += (group * S * GRAD_HIGH * GRAD_ACROSS + first) * OUT_PADDED
    x += group * S * HIGH * ACROSS * PADDED
    total = tl.zeros((DEPTH, WIDE), dtype=tl.float32)
    for start in range(0, length, PIXELS):
        q = stretch * length + start + tl.arange(0, PIXELS)
        real = q < S * HO * WO
        q = tl.where(real, q, 0)
        image, r, c = q // (HO * WO), q % (HO * WO) // WO, q % WO
        one = (image * GRAD_HIGH + r) * GRAD_ACROSS + c
        other = (image * HIGH + r * SH) * ACROSS + c * SW
        one = grad + one[:, None] * OUT_PADDED + o[None, :]
        other = x + other[:, None] * PADDED + away[None, :]
        wanted = real[:, None] & (o < OUT_PADDED)[None, :]
        g0, a0 = tl.load(one, mask=wanted, other=0.0), tl.load(other)
        if PARTS > 1:
            g1 = tl.load(one + to_part_of_grad, mask=wanted, other=0.0)
            a1 = tl.load(other + to_part)
        if PARTS == 1:
            total = tl.dot(tl.trans(a0), g0, total)
        elif PARTS == 2:
            total = tl.dot(tl.trans(a1), g0, total)
            total = tl.dot(tl.trans(a0), g1, total)
            total = tl.dot(tl.trans(a0), g0, total)
        else:
            g2 = tl.load(one + 2 * to_part_of_grad, mask=wanted, other=0.0)
            a2 = tl.load(other + 2 * to_part)
            few = tl.dot(tl.trans(a2), g0)
            few = tl.dot(tl.trans(a0), g2, few)
            few = tl.dot(tl.trans(a1), g1, few)
            few = tl.dot(tl.trans(a1), g0, few)
            few = tl.dot(tl.trans(a0), g1, few)
            total += tl.dot(tl.trans(a0), g0, few)
    own = sums + (group * stretches + stretch) * OUT_PADDED * numbers
    place = o[None, :] * numbers + k[:, None]
    tl.store(own + place, total, mask=(o < OUT_PADDED)[None, :] & (k < numbers)[:, None])


@triton.jit(do_not_specialize=["stretches"])  # type: ignore[untyped-decorator, unused-ignore]
def collect(  # type: ignore[no-untyped-def]
    sums, out, stretches, OUT: tl.constexpr, C: tl.constexpr, OUT_PADDED: tl.constexpr,
    PADDED: tl.constexpr, TAPS: tl.constexpr, WIDE: tl.constexpr, ALL_TAPS: tl.constexpr,
):  # fmt: skip
    """Add up stretches, (G, stretches, OUT padded, taps, C padded), and store (G, OUT, C, taps)."""
    group, o = (tl.program_id(0) // OUT).to(tl.int64), tl.program_id(0) % OUT
    c, tap = tl.program_id(1) * WIDE + tl.arange(0, WIDE), tl.arange(0, ALL_TAPS)
    real = (c < C)[:, None] & (tap < TAPS)[None, :]
    place = (o * TAPS + tap[None, :]) * PADDED + c[:, None]
    own = sums + group * stretches * TAPS * OUT_PADDED * PADDED
    total = tl.zeros((WIDE, ALL_TAPS), dtype=tl.float32)
    for stretch in range(stretches):
        total += tl.load(own + stretch * TAPS * OUT_PADDED * PADDED + place, mask=real, other=0.0)
    place = (group * OUT + o) * C * TAPS + c[:, None] * TAPS + tap[None, :]
    tl.store(out + place, total, mask=real)
