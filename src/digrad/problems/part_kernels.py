"""Kernels for convolutions of layers with many channels, for many networks at once, on a GPU.

A number is the sum of one, two or three of bfloat16, its parts; products of parts run on tensor
cores and are summed in single precision. Channels lie innermost, padded to a multiple of 16, so
that what a product reads lies together. Tensor cores cut off what they add rather than round it:
with three parts the sums of a few products are added up outside of them.
"""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def split(  # type: ignore[no-untyped-def]
    x, out, plane, rows, TO_IMAGE, TO_ROW: tl.constexpr, TO_CHANNEL: tl.constexpr,
    HW: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the parts of some channels of some pixels, (images * pixels, C) by strides."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    real = (row < rows)[:, None]
    place = (row // HW * TO_IMAGE + row % HW * TO_ROW)[:, None] + (c * TO_CHANNEL)[None, :]
    left = tl.load(x + place, mask=real & (c < C)[None, :], other=0.0).to(tl.float32)
    place = row[:, None] * PADDED + c[None, :]
    for part in tl.static_range(PARTS):
        piece = left.to(tl.bfloat16)
        tl.store(out + part * plane + place, piece, mask=real & (c < PADDED)[None, :])
        left -= piece.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def split_flat(x, out, count, PARTS: tl.constexpr, EACH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the parts of so many numbers that lie as their parts will."""
    k = tl.program_id(0).to(tl.int64) * EACH + tl.arange(0, EACH)
    left = tl.load(x + k, mask=k < count, other=0.0)
    for part in tl.static_range(PARTS):
        piece = left.to(tl.bfloat16)
        tl.store(out + part * count + k, piece, mask=k < count)
        left -= piece.to(tl.float32)


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


@triton.jit(do_not_specialize=["strips", "S", "H", "W", "HO", "WO"])  # type: ignore[untyped-decorator, unused-ignore]
def gather(  # type: ignore[no-untyped-def]
    x, weight, shift, out, strips, S, to_part, to_part_of_weight, TO_GROUP, TO_TAP, TO_OUT, TO_IN,
    C, H, W, OUT, PADDED, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, BACK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    SHIFTED: tl.constexpr, PARTS: tl.constexpr,
    PIXELS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Store a tile of some outputs at some pixels of one group.

    x is (H, W, C) for each image, out (HO, WO, OUT). A convolution reads row r * SH - PH + k for
    its row r. On the way back row r = SH * r' + A reads r' + (A + PH) // SH - k, and only one of
    SH numbers of the window belongs to it: programs take rows of one A and columns of one B.
    """
    group = (tl.program_id(0) // strips).to(tl.int64)
    q = tl.program_id(0) % strips * PIXELS + tl.arange(0, PIXELS)
    o = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    i: tl.constexpr = (A + PH) % SH if BACK else 0
    j: tl.constexpr = (B + PW) % SW if BACK else 0
    rows: tl.constexpr = (KH - i + SH - 1) // SH if BACK else KH
    columns: tl.constexpr = (KW - j + SW - 1) // SW if BACK else KW
    if BACK:
        high, wide = (HO - A + SH - 1) // SH, (WO - B + SW - 1) // SW
        r, c, image = q % (high * wide) // wide, q % wide, q // (high * wide)
        up, left = r + (A + PH) // SH, c + (B + PW) // SW
        r, c = r * SH + A, c * SW + B
    else:
        r, c, image = q % (HO * WO) // WO, q % WO, q // (HO * WO)
        up, left = r * SH - PH, c * SW - PW
    real = image < S
    x += group * S * H * W * C
    weight += group * TO_GROUP
    total = tl.zeros((PIXELS, WIDE), dtype=tl.float32)
    chunks, d = C // DEPTH, tl.arange(0, DEPTH)
    for step in range(rows * columns * chunks):
        tap, start = step // chunks, step % chunks * DEPTH
        k, n = tap // columns, tap % columns
        if BACK:
            row, column, number = up - k, left - n, (i + SH * k) * KW + j + SW * n
        else:
            row, column, number = up + k, left + n, tap
        inside = real & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        place = x + ((image * H + row) * W + column)[:, None] * C + (start + d)[None, :]
        own = weight + number * TO_TAP + o[None, :] * TO_OUT + ((start + d) * TO_IN)[:, None]
        a0 = tl.load(place, mask=inside[:, None], other=0.0)
        w0 = tl.load(own, mask=(o < PADDED)[None, :], other=0.0)
        if PARTS > 1:
            a1 = tl.load(place + to_part, mask=inside[:, None], other=0.0)
            w1 = tl.load(own + to_part_of_weight, mask=(o < PADDED)[None, :], other=0.0)
        if PARTS == 1:
            total = tl.dot(a0, w0, total)
        elif PARTS == 2:
            total = tl.dot(a1, w0, total)
            total = tl.dot(a0, w1, total)
            total = tl.dot(a0, w0, total)
        else:
            a2 = tl.load(place + 2 * to_part, mask=inside[:, None], other=0.0)
            w2 = tl.load(own + 2 * to_part_of_weight, mask=(o < PADDED)[None, :], other=0.0)
            few = tl.dot(a2, w0)
            few = tl.dot(a0, w2, few)
            few = tl.dot(a1, w1, few)
            few = tl.dot(a1, w0, few)
            few = tl.dot(a0, w1, few)
            total += tl.dot(a0, w0, few)
    if SHIFTED:
        total += tl.load(shift + group * OUT + o, mask=o < OUT, other=0.0)[None, :]
    out += group * S * HO * WO * OUT
    place = ((image * HO + r) * WO + c)[:, None] * OUT + o[None, :]
    tl.store(out + place, total, mask=real[:, None] & (o < OUT)[None, :])


@triton.jit(do_not_specialize=["stretches", "length", "S", "zero"])  # type: ignore[untyped-decorator, unused-ignore]
def correlate(  # type: ignore[no-untyped-def]
    grad, x, sums, stretches, length, S, zero, to_part_of_grad, to_part,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    HO: tl.constexpr, WO: tl.constexpr, OUT_PADDED: tl.constexpr, PADDED: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    PARTS: tl.constexpr, PIXELS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Sum products of gradients and of one number of the window over a stretch of pixels.

    ``zero`` is 0, which the compiler must not know, as in ``convolution_kernels``.
    """
    group, stretch = (tl.program_id(0) // stretches).to(tl.int64), tl.program_id(0) % stretches
    across: tl.constexpr = (C + DEPTH - 1) // DEPTH
    tap = tl.program_id(1) % (KH * KW)
    o = tl.program_id(1) // (KH * KW * across) * WIDE + tl.arange(0, WIDE)
    c = tl.program_id(1) // (KH * KW) % across * DEPTH + tl.arange(0, DEPTH)
    i, j = tap // KW, tap % KW
    grad, x = grad + group * S * HO * WO * OUT_PADDED, x + group * S * H * W * PADDED
    total = tl.zeros((WIDE, DEPTH), dtype=tl.float32)
    for start in range(0, length, PIXELS):
        q = stretch * length + start + tl.arange(0, PIXELS)
        image = q // (HO * WO)
        p = q % (HO * WO) + zero
        row, column = p // WO * SH - PH + i, (p % WO + zero) * SW - PW + j
        inside = (image < S) & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        one = grad + q[:, None] * OUT_PADDED + o[None, :]
        other = x + ((image * H + row) * W + column)[:, None] * PADDED + c[None, :]
        of, to = (
            inside[:, None] & (o < OUT_PADDED)[None, :],
            inside[:, None] & (c < PADDED)[None, :],
        )
        g0, a0 = tl.load(one, mask=of, other=0.0), tl.load(other, mask=to, other=0.0)
        if PARTS > 1:
            g1 = tl.load(one + to_part_of_grad, mask=of, other=0.0)
            a1 = tl.load(other + to_part, mask=to, other=0.0)
        if PARTS == 1:
            total = tl.dot(tl.trans(g0), a0, total)
        elif PARTS == 2:
            total = tl.dot(tl.trans(g1), a0, total)
            total = tl.dot(tl.trans(g0), a1, total)
            total = tl.dot(tl.trans(g0), a0, total)
        else:
            g2 = tl.load(one + 2 * to_part_of_grad, mask=of, other=0.0)
            a2 = tl.load(other + 2 * to_part, mask=to, other=0.0)
            few = tl.dot(tl.trans(g2), a0)
            few = tl.dot(tl.trans(g0), a2, few)
            few = tl.dot(tl.trans(g1), a1, few)
            few = tl.dot(tl.trans(g1), a0, few)
            few = tl.dot(tl.trans(g0), a1, few)
            total += tl.dot(tl.trans(g0), a0, few)
    own = sums + ((group * stretches + stretch) * KH * KW + tap) * OUT_PADDED * PADDED
    place = o[:, None] * PADDED + c[None, :]
    tl.store(own + place, total, mask=(o < OUT_PADDED)[:, None] & (c < PADDED)[None, :])


@triton.jit(do_not_specialize=["stretches"])  # type: ignore[untyped-decorator, unused-ignore]
def collect(  # type: ignore[no-untyped-def]
    sums, out, stretches, OUT: tl.constexpr, C: tl.constexpr, OUT_PADDED: tl.constexpr,
    PADDED: tl.constexpr, TAPS: tl.constexpr, WIDE: tl.constexpr, ALL_TAPS: tl.constexpr,
):  # fmt: skip
    """Add up stretches, (G, stretches, taps, OUT padded, C padded), and store (G, OUT, C, taps)."""
    group, o = (tl.program_id(0) // OUT).to(tl.int64), tl.program_id(0) % OUT
    c, tap = tl.program_id(1) * WIDE + tl.arange(0, WIDE), tl.arange(0, ALL_TAPS)
    real = (c < C)[:, None] & (tap < TAPS)[None, :]
    place = (tap[None, :] * OUT_PADDED + o) * PADDED + c[:, None]
    own = sums + group * stretches * TAPS * OUT_PADDED * PADDED
    total = tl.zeros((WIDE, ALL_TAPS), dtype=tl.float32)
    for stretch in range(stretches):
        total += tl.load(own + stretch * TAPS * OUT_PADDED * PADDED + place, mask=real, other=0.0)
    place = (group * OUT + o) * C * TAPS + c[:, None] * TAPS + tap[None, :]
    tl.store(out + place, total, mask=real)
