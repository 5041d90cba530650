"""Numbers and anything of ``rich`` as plain text."""

from collections.abc import Iterator
from io import StringIO
from math import isfinite

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from digrad.base.errors import printable


class Harmless:
    """Anything of ``rich`` without what its texts could command a terminal to do."""

    def __init__(self, what: RenderableType) -> None:
        self._what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for part in console.render(self._what, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def plain(what: RenderableType, width: int = 110) -> str:
    """Render anything without colours, and without blanks at the ends of lines."""
    out = StringIO()
    Console(
        file=out,
        width=width,
        no_color=True,
        highlight=False,
        force_terminal=False,  # even where FORCE_COLOR is set
        force_jupyter=False,  # a notebook would display it and leave nothing here
    ).print(Harmless(what))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def number(x: float | None, digits: int = 6) -> str:
    """Write a number for a table: digits, thousands apart, or ``unknown``.

    >>> number(2046912.0), number(0.0001234567891), number(float("inf"))
    ('2,046,912', '0.000123457', 'unknown')
    """
    if x is None or not isfinite(x):
        return "unknown"
    if x == int(x) and 1000 <= x < 1e15:
        return f"{int(x):,}"
    return f"{x:.{digits}g}"


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(0.2), duration(75), duration(600), duration(9000), duration(400_000)
    ('1 s', '75 s', '10 min', '2 h 30 min', '4 days 15 h')
    """
    s = max(1, round(seconds))
    if s < 120:
        return f"{s} s"
    minutes = round(s / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days {hours % 24} h"


def size(count: int) -> str:
    """Write a number of bytes for people.

    >>> size(512), size(2048), size(3_407_838)
    ('512 B', '2 KiB', '3.25 MiB')
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.3g} {unit}"
    return f"{count} B"
