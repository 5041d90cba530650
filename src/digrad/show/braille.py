"""Curves as letters, for a terminal: a letter of Braille is a cell of two by four dots."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from digrad.base.text import number
from digrad.runs.results import Floats

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white")
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a cell: by column, from the top
MARGIN = 10  # letters for the numbers at the axis

Cells = NDArray[np.int64]
Line = tuple[Floats, Floats]  # x and y


def draw(lines: Sequence[Line], *, log: bool, wide: int = 70, high: int = 10) -> Text:
    """Draw lines with their ranges at the axes; what has no place on the scale is left out.

    >>> x = np.array([0.0, 1.0])
    >>> print(draw([(x, x)], log=False, wide=14, high=1).plain)
             1 ┤⣀⠤⠒⠉
                0  1
    """
    kept = [_there(x, y, log) for x, y in lines]
    if not any(len(x) for x, _ in kept):
        return Text("nothing to draw yet")
    every = [np.concatenate(part) for part in zip(*kept, strict=True)]
    (left, right), (low, top) = ((float(a.min()), float(a.max())) for a in every)
    columns = max(2, wide - MARGIN)
    cells = np.zeros((high, columns), dtype=np.int64)
    hues = np.zeros((high, columns), dtype=np.int64)
    for hue, (x, y) in enumerate(kept):
        if len(x):
            _plot(cells, hues, hue, _placed(x, left, right), _placed(y, low, top))
    ends = [10**v if log else v for v in (top, low)]
    return _text(cells, hues, ends, (left, right))


def _there(x: Floats, y: Floats, log: bool) -> Line:
    good = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log))
    return x[good], np.log10(y[good]) if log else y[good]


def _placed(values: Floats, low: float, high: float) -> Floats:
    """Return where values are between two ends: 0 to 1."""
    return np.asarray((values - low) / (high - low) if high > low else np.full_like(values, 0.5))


def _plot(cells: Cells, hues: Cells, hue: int, x: Floats, y: Floats) -> None:
    """Set the dots from column to column."""
    high, columns = cells.shape
    places = np.arange(2 * columns)
    inside = places[
        (places >= x[0] * (2 * columns - 1) - 1) & (places <= x[-1] * (2 * columns - 1))
    ]
    rows = np.interp(inside, x * (2 * columns - 1), (1 - y) * (4 * high - 1)).round().astype(int)
    before = rows[0] if len(rows) else 0
    for column, row in zip(inside.tolist(), rows.tolist(), strict=True):
        first, last = sorted((row, before + (row > before) - (row < before)))
        for dot in range(first, last + 1):  # steep lines stay whole
            cells[dot // 4, column // 2] |= DOTS[column % 2][dot % 4]
            hues[dot // 4, column // 2] = hue
        before = row


def _text(cells: Cells, hues: Cells, ends: Sequence[float], along: tuple[float, float]) -> Text:
    out, rows = Text(), len(cells)
    for r in range(rows):
        shown = number(ends[0 if r == 0 else 1], 3) if r in (0, rows - 1) else ""
        out.append(f"{shown:>{MARGIN}} ┤" if shown else " " * MARGIN + " │", style="dim")
        shades = np.where(cells[r] > 0, hues[r], -1).tolist()  # blanks have no colour
        for hue, group in groupby(zip(shades, cells[r].tolist(), strict=True), itemgetter(0)):
            letters = "".join(chr(0x2800 + cell) if cell else " " for _, cell in group)
            out.append(letters, style=COLOURS[hue % len(COLOURS)] if hue >= 0 else "")
        out.append("\n")
    left, right = (number(v) for v in along)
    room = max(1, cells.shape[1] - len(left))
    return out.append(f"{'':{MARGIN + 2}}{left}{right:>{room}}", style="dim")
