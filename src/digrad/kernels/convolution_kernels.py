"""Kernels for convolutions of many small networks at once, on a GPU.

Products of a matrix with patches that are gathered as they are needed. A program handles a few
pixels of one network's images, and those of several images where these are small. All sizes but
the number of samples are constants: dividing by what is not known took as long as the products.
``RUN`` pixels lie in memory one after the other wherever a tile of them begins, which the compiler
cannot see. ``zero`` is 0, which it must not know: of indices that it sees to be small it packs two
into a register, and then computes wrong ones (Triton 3.6 on an H200).
"""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pixel(q, zero, HO: tl.constexpr, WO: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a pixel's image, its place there, and the row and column of that."""
    q = q.to(tl.uint32)  # of which remainders take fewer instructions
    places, width = tl.full((), HO * WO, tl.uint32), tl.full((), WO, tl.uint32)
    p = q % places + zero.to(tl.uint32)
    row, column = (p // width).to(tl.int32), (p % width).to(tl.int32) + zero
    return (q // places).to(tl.int32), p.to(tl.int32), row, column


@triton.jit(do_not_specialize=["zero"])  # type: ignore[untyped-decorator, unused-ignore]
def convolve(  # type: ignore[no-untyped-def]
    x, weight, shift, out, strips, zero, TO_GROUP, TO_OUT: tl.constexpr, TO_IN: tl.constexpr,
    S, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    PRECISION: tl.constexpr, RUN: tl.constexpr, LARGE: tl.constexpr,
    WIDE: tl.constexpr, PIXELS: tl.constexpr, DEPTH: tl.constexpr,
    SHIFTED: tl.constexpr, FLIPPED: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Store a tile of some outputs at some pixels of one group."""
    group, places = (tl.program_id(0) // strips).to(tl.int64), HO * WO
    x, weight = x + group * S * C * H * W, weight + group * TO_GROUP
    out += group * S * OUT * places
    q = tl.program_id(0) % strips * PIXELS + tl.arange(0, PIXELS)
    o = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    image, p, up, left = _pixel(q, zero, HO, WO)
    real, up, left = q < S * places, up * SH - PH, left * SW - PW
    if LARGE:
        image = image.to(tl.int64)
    corner = image * C * H * W + up * W + left
    total = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    if TAPS:  # one number of the window after the other, all channels of it together
        for tap in range(KH * KW):
            i, j = tap // KW, tap % KW
            row, column = up + i * DH, left + j * DW
            inside = real & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            here = corner + i * DH * W + j * DW
            r = KH * KW - 1 - tap if FLIPPED else tap
            for start in range(0, C, DEPTH):
                c = start + tl.arange(0, DEPTH)
                a = tl.load(
                    weight + o[:, None] * TO_OUT + (c * TO_IN + r)[None, :],
                    mask=(o[:, None] < OUT) & (c[None, :] < C),
                    other=0.0,
                )
                b = tl.load(
                    x + (c * H * W)[:, None] + here[None, :],
                    mask=(c[:, None] < C) & inside[None, :],
                    other=0.0,
                )
                total = tl.dot(a, b, total, input_precision=PRECISION)
    else:
        numbers = C * KH * KW
        for start in range(0, numbers, DEPTH):
            k = start + tl.arange(0, DEPTH)
            c, tap = k // (KH * KW), k % (KH * KW)
            i, j = tap // KW * DH, tap % KW * DW
            r = KH * KW - 1 - tap if FLIPPED else tap
            a = tl.load(
                weight + o[:, None] * TO_OUT + (c * TO_IN + r)[None, :],
                mask=(o[:, None] < OUT) & (k[None, :] < numbers),
                other=0.0,
            )
            inside = (k[:, None] < numbers) & real[None, :]
            if (PH > 0) or (PW > 0):
                row, column = up[None, :] + i[:, None], left[None, :] + j[:, None]
                inside = inside & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            offset = c * H * W + i * W + j
            b = tl.load(x + offset[:, None] + corner[None, :], mask=inside, other=0.0)
            total = tl.dot(a, b, total, input_precision=PRECISION)
    if SHIFTED:
        total += tl.load(shift + group * OUT + o, mask=o < OUT, other=0.0)[:, None]
    place = tl.max_contiguous(tl.multiple_of(image * OUT * places + p, RUN), RUN)
    tl.store(
        out + (o * places)[:, None] + place[None, :],
        total,
        mask=(o[:, None] < OUT) & real[None, :],
    )


@triton.jit(do_not_specialize=["zero"])  # type: ignore[untyped-decorator, unused-ignore]
def spread(  # type: ignore[no-untyped-def]
    grad, weight, patches, strips, zero,
    S, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    PRECISION: tl.constexpr, RUN: tl.constexpr, LARGE: tl.constexpr,
    WIDE: tl.constexpr, PIXELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Store what gradients of outputs give every number of their patches."""
    group, numbers, places = (tl.program_id(0) // strips).to(tl.int64), C * KH * KW, HO * WO
    grad, weight = grad + group * S * OUT * places, weight + group * OUT * numbers
    patches += group * S * numbers * places
    q = tl.program_id(0) % strips * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    image, p, _, _ = _pixel(q, zero, HO, WO)
    real = q < S * places
    if LARGE:
        image = image.to(tl.int64)
    place = tl.max_contiguous(tl.multiple_of(image * OUT * places + p, RUN), RUN)
    total = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    for start in range(0, OUT, DEPTH):
        o = start + tl.arange(0, DEPTH)
        a = tl.load(
            weight + o[None, :] * numbers + k[:, None],
            mask=(k[:, None] < numbers) & (o[None, :] < OUT),
            other=0.0,
        )
        b = tl.load(
            grad + (o * places)[:, None] + place[None, :],
            mask=(o[:, None] < OUT) & real[None, :],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    place = tl.max_contiguous(tl.multiple_of(image * numbers * places + p, RUN), RUN)
    tl.store(
        patches + (k * places)[:, None] + place[None, :],
        total,
        mask=(k[:, None] < numbers) & real[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def fold(  # type: ignore[no-untyped-def]
    patches, out,
    S, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    PRECISION: tl.constexpr, RUN: tl.constexpr, LARGE: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Add up what patches give each pixel of one channel of one image."""
    plane, places = tl.program_id(0).to(tl.int64), HO * WO  # one channel of one image
    q = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column, real = q // W + PH, q % W + PW, q < H * W
    total = tl.zeros((PIXELS,), dtype=tl.float32)
    for i in range(KH):
        up = row - i * DH
        above = real & (up >= 0) & (up % SH == 0) & (up // SH < HO)
        for j in tl.static_range(KW):
            left = column - j * DW
            inside = above & (left >= 0) & (left % SW == 0) & (left // SW < WO)
            place = ((plane * KH + i) * KW + j) * places + (up // SH) * WO + left // SW
            total += tl.load(patches + place, mask=inside, other=0.0)
    tl.store(out + plane * H * W + q, total, mask=real)


@triton.jit(do_not_specialize=["zero"])  # type: ignore[untyped-decorator, unused-ignore]
def correlate(  # type: ignore[no-untyped-def]
    grad, x, sums, stretches, length, found, zero,
    S, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    PRECISION: tl.constexpr, RUN: tl.constexpr, LARGE: tl.constexpr,
    WIDE: tl.constexpr, DEPTH: tl.constexpr, PIXELS: tl.constexpr,
    BIASED: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Sum products of gradients and patches over a stretch of pixels."""
    group, stretch = (tl.program_id(0) // stretches).to(tl.int64), tl.program_id(0) % stretches
    numbers, places = C * KH * KW, HO * WO
    grad, x = grad + group * S * OUT * places, x + group * S * C * H * W
    across = KH * KW * tl.cdiv(C, DEPTH) if TAPS else tl.cdiv(numbers, DEPTH)
    o = tl.program_id(1) // across * WIDE + tl.arange(0, WIDE)
    piece = tl.program_id(1) % across
    if TAPS:  # some channels of one number of the window
        tap, c = piece % (KH * KW), piece // (KH * KW) * DEPTH + tl.arange(0, DEPTH)
        k, wanted = c * KH * KW + tap, c < C
    else:
        k = piece * DEPTH + tl.arange(0, DEPTH)
        tap, c, wanted = k % (KH * KW), k // (KH * KW), k < numbers
    i, j = tap // KW * DH, tap % KW * DW
    total = tl.zeros((WIDE, DEPTH), dtype=tl.float32)
    if BIASED:
        shift = tl.zeros((WIDE, PIXELS), dtype=tl.float32)
    for start in range(0, length, PIXELS):
        q = stretch * length + start + tl.arange(0, PIXELS)
        image, p, up, left = _pixel(q, zero, HO, WO)
        real, up, left = q < S * places, up * SH - PH, left * SW - PW
        if LARGE:
            image = image.to(tl.int64)
        place = tl.max_contiguous(tl.multiple_of(image * OUT * places + p, RUN), RUN)
        a = tl.load(
            grad + (o * places)[:, None] + place[None, :],
            mask=(o[:, None] < OUT) & real[None, :],
            other=0.0,
        )
        corner = image * C * H * W + up * W + left
        if TAPS:
            row, column = up + i, left + j
            inside = real & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            inside = wanted[:, None] & inside[None, :]
            b = tl.load(
                x + (c * H * W)[:, None] + (corner + i * W + j)[None, :], mask=inside, other=0.0
            )
        else:
            inside = wanted[:, None] & real[None, :]
            if (PH > 0) or (PW > 0):
                row, column = up[None, :] + i[:, None], left[None, :] + j[:, None]
                inside = inside & (row >= 0) & (row < H) & (column >= 0) & (column < W)
            b = tl.load(
                x + (c * H * W + i * W + j)[:, None] + corner[None, :], mask=inside, other=0.0
            )
        total = tl.dot(a, tl.trans(b), total, input_precision=PRECISION)
        if BIASED:
            shift += a
    own = sums + (group * stretches + stretch) * found
    tl.store(
        own + o[:, None] * numbers + k[None, :],
        total,
        mask=(o[:, None] < OUT) & wanted[None, :],
    )
    if BIASED:
        outs = tl.where(piece == 0, OUT, 0)  # one program of several stores it
        tl.store(own + OUT * numbers + o, tl.sum(shift, 1), mask=o < outs)
