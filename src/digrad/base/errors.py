"""The errors digrad raises on purpose, and name lookup with a suggestion.

Every text says what is wrong, where and with which number; a line that starts with
``hint:`` says what to do about it. The command line prints the text and exits with 2.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class DigradError(Exception):
    """Base of every error that digrad raises on purpose."""


class NetworkError(DigradError, ValueError):
    """A graph or a pair of weight matrices that the theory does not admit."""


class ParameterError(DigradError, ValueError):
    """A parameter out of its range, or of the wrong kind."""


class UnknownNameError(DigradError, KeyError):
    """A name that is in no table; the text suggests the nearest one."""

    def __str__(self) -> str:
        """Return the text itself: ``KeyError`` would print its repr."""
        return str(self.args[0])


class FileFormatError(DigradError, ValueError):
    """A file that cannot be read as what its name says it is."""


def message(what: str, *details: str, hint: str = "") -> str:
    """Lay out an error text: what is wrong, indented details, then the fix.

    >>> print(message("n must be at least 2, got n = 1", hint="pass -n 2"))
    n must be at least 2, got n = 1
      hint: pass -n 2
    """
    lines = [what, *(f"  {line}" for line in details)]
    if hint:
        lines.append(f"  hint: {hint}")
    return "\n".join(lines)


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return ``table[name]``, or raise an error that suggests the nearest name.

    >>> lookup({"directed-ring": 1}, "directed-rng", "topology")
    Traceback (most recent call last):
        ...
    digrad.base.errors.UnknownNameError: unknown topology 'directed-rng'
      hint: did you mean 'directed-ring'?
    """
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(str(name).lower().replace("_", "-"), table, n=1, cutoff=0.5)
    every = f"one of: {', '.join(table)}" if table else "there are none: drop it"
    hint = f"did you mean {near[0]!r}?" if near else every
    raise UnknownNameError(message(f"unknown {what} {name!r}", hint=hint))
