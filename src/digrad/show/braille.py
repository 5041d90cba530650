"""Curves as letters, for a terminal: a letter of Braille is a cell of two by four dots."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from digrad.base.text import number
from digrad.results.trials import Floats

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white")
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a cell: by column, from the top
BLANK = 0x2800  # the letter of Braille without dots
MARGIN = 10  # letters for the numbers at the axis
APART = 20  # letters, about, from one mark of a line to its next

Cells = NDArray[np.int64]
Line = tuple[Floats, Floats]  # x and y
Way = list[tuple[int, int]]  # column and row of dots


def draw(lines: Sequence[Line], *, log: bool, wide: int = 70, high: int = 10) -> Text:
    """Draw lines with their ranges at the axes; what has no place on the scale is left out.

    Each line has its letter here and there, which tells them apart where there are no colours.

    >>> x = np.array([0.0, 1.0])
    >>> print(draw([(x, x)], log=False, wide=15, high=1).plain)
             1 ┤⣀⠤a⠒⠉
                0   1
    """
    kept = [_there(x, y, log) for x, y in lines]
    if not any(len(x) for x, _ in kept):
        return Text("nothing to draw yet")
    every = [np.concatenate(part) for part in zip(*kept, strict=True)]
    (left, right), (low, top) = ((float(a.min()), float(a.max())) for a in every)
    columns = max(2, wide - MARGIN)
    cells = np.zeros((high, columns), dtype=np.int64)
    hues = np.zeros((high, columns), dtype=np.int64)
    ways = [_way(_placed(x, left, right), _placed(y, low, top), cells.shape) for x, y in kept]
    for hue, way in enumerate(ways):
        _plot(cells, hues, hue, way)
    letters = np.where(cells > 0, BLANK + cells, ord(" "))
    _put_marks(letters, hues, ways)
    ends = [10**v if log else v for v in (top, low)]
    return _text(letters, hues, ends, (left, right))


def _there(x: Floats, y: Floats, log: bool) -> Line:
    good = np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log))
    return x[good], np.log10(y[good]) if log else y[good]


def _placed(values: Floats, low: float, high: float) -> Floats:
    """Return where values are between two ends: 0 to 1."""
    return np.asarray((values - low) / (high - low) if high > low else np.full_like(values, 0.5))


def _way(x: Floats, y: Floats, shape: tuple[int, int]) -> Way:
    """Return a line's row of dots in each column of dots that it passes."""
    if not len(x):
        return []
    most, deep = 2 * shape[1] - 1, 4 * shape[0] - 1
    places = np.arange(most + 1)
    inside = places[(places >= x[0] * most - 1) & (places <= x[-1] * most)]
    rows = np.interp(inside, x * most, (1 - y) * deep).round().astype(int)
    return list(zip(inside.tolist(), rows.tolist(), strict=True))


def _plot(cells: Cells, hues: Cells, hue: int, way: Way) -> None:
    """Set the dots from column to column."""
    before = way[0][1] if way else 0
    for column, row in way:
        first, last = sorted((row, before + (row > before) - (row < before)))
        for dot in range(first, last + 1):  # steep lines stay whole
            cells[dot // 4, column // 2] |= DOTS[column % 2][dot % 4]
            hues[dot // 4, column // 2] = hue
        before = row


def _put_marks(letters: Cells, hues: Cells, ways: Sequence[Way]) -> None:
    """Put each line's mark onto it, now and then; where others have theirs, as near as can be."""
    taken: set[tuple[int, int]] = set()
    for hue, way in enumerate(ways):
        passed = list(dict.fromkeys((row // 4, column // 2) for column, row in way))
        count = max(1, round(len(passed) / APART))
        for k in range(count if passed else 0):
            at = int((k + (hue + 1) / (len(ways) + 1)) / count * len(passed))
            near = sorted(range(len(passed)), key=lambda place: abs(place - at))
            spot = next((passed[place] for place in near if passed[place] not in taken), passed[at])
            taken.add(spot)
            letters[spot], hues[spot] = ord(mark_of(hue)), hue


def mark_of(line: int) -> str:
    """Return the letter of a line: a, b, ..."""
    return ascii_letters[line % len(ascii_letters)]


def _text(letters: Cells, hues: Cells, ends: Sequence[float], along: tuple[float, float]) -> Text:
    out, rows = Text(), len(letters)
    for r in range(rows):
        shown = number(ends[0 if r == 0 else 1], 3) if r in (0, rows - 1) else ""
        out.append(f"{shown:>{MARGIN}} ┤" if shown else " " * MARGIN + " │", style="dim")
        shades = np.where(letters[r] == ord(" "), -1, hues[r]).tolist()  # blanks have no colour
        for hue, group in groupby(zip(shades, letters[r].tolist(), strict=True), itemgetter(0)):
            same = "".join(chr(letter) for _, letter in group)
            out.append(same, style=COLOURS[hue % len(COLOURS)] if hue >= 0 else "")
        out.append("\n")
    left, right = (number(v) for v in along)
    room = max(1, letters.shape[1] - len(left))
    return out.append(f"{'':{MARGIN + 2}}{left}{right:>{room}}", style="dim")
