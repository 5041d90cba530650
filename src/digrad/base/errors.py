"""The errors digrad raises on purpose, and name lookup with a suggestion.

Every text says what is wrong, where and with which number; a line that starts with
``hint:`` says what to do about it. The command line prints the text and exits with 2.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")

# Hints are written in the words of the command line; elsewhere they are told in Python's.
_SPOKEN = ContextVar("spoken", default="python")
_FLAGS = ("resume", "largest-component", "undirected", "local")
_VALUES = r"\d[\w.]*|cpu|b?float\d+|doubly-stochastic|lazy|metropolis|spanning-tree|uniform"
# Whole commands stay as they are; of the rest, an option with the value that may follow it.
_OPTION = re.compile(rf"`[^`]*`|(?:digrad|torchrun) [^,;]*|--([a-z-]+[a-z])(?: ({_VALUES})\b)?")

SLIP = 0.8  # how alike two names are that differ by a slip of the pen
MOST_MEANT = 3
LONGEST = 80  # letters of a value that an error shows
# What can command a terminal or hide in a line: controls but for tab and newline, marks that
# turn the direction of writing, and halves of characters, which cannot be written at all.
_COMMANDS = (
    *(k for k in range(0x20) if k not in (0x09, 0x0A)),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
)
_WRITTEN_OUT = {k: f"\\x{k:02x}" if k < 256 else f"\\u{k:04x}" for k in _COMMANDS}


class DigradError(Exception):
    """Base of every error that digrad raises on purpose."""

    def __str__(self) -> str:
        """Return the text, fit for a terminal: names in it may come from anywhere."""
        return printable(str(self.args[0]) if len(self.args) == 1 else super().__str__())


class NetworkError(DigradError, ValueError):
    """A graph or a pair of weight matrices that the theory does not admit."""


class ParameterError(DigradError, ValueError):
    """A parameter out of its range, or of the wrong kind."""


class UnknownNameError(DigradError, KeyError):
    """A name that is in no table; the text suggests the nearest one."""


class FileFormatError(DigradError, ValueError):
    """A file that cannot be read as what its name says it is."""


def printable(text: str) -> str:
    r"""Write out what could command a terminal.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return text.translate(_WRITTEN_OUT).encode(errors="backslashreplace").decode()


def shown(value: Any) -> str:
    """Return a value for an error text: its beginning, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # it may be an integer of more digits than Python writes
        return f"a {type(value).__name__} that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


@contextmanager
def on_command_line() -> Iterator[None]:
    """Tell hints as the command line writes them."""
    token = _SPOKEN.set("command line")
    try:
        yield
    finally:
        _SPOKEN.reset(token)


def message(what: str, *details: str, hint: str = "", python: str = "") -> str:
    """Lay out an error text: what is wrong, indented details, then the fix.

    Args:
        what: is wrong.
        details: a line each.
        hint: the fix, in the words of the command line.
        python: the same for who calls from Python; by default options become arguments.

    >>> print(message("n must be at least 2, got n = 1", hint="pass n = 2, or --weights lazy"))
    n must be at least 2, got n = 1
      hint: pass n = 2, or weights="lazy"
    """
    if _SPOKEN.get() == "python":
        hint = python or _OPTION.sub(_argument, hint)
    lines = [what, *(f"  {line}" for line in details)]
    if hint:
        lines.append(f"  hint: {hint}")
    return "\n".join(lines)


def _argument(option: re.Match[str]) -> str:
    """Write an option as Python does: ``--weights lazy`` as ``weights="lazy"``."""
    if not option[1]:
        return option[0]
    name, value = option[1].replace("-", "_"), option[2]
    if option[1] in _FLAGS:
        return f"{name}=True{f' {value}' if value else ''}"
    if value is None:
        return f"{name}="
    return f"{name}={value}" if value[0].isdigit() else f'{name}="{value}"'


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return ``table[name]``, or raise an error that suggests the nearest name.

    >>> lookup({"directed-ring": 1}, "directed-rng", "topology")
    Traceback (most recent call last):
        ...
    digrad.base.errors.UnknownNameError: unknown topology 'directed-rng'
      hint: did you mean 'directed-ring'?
    """
    if not isinstance(name, str):
        raise ParameterError(
            message(f"{what} must be a name, got {shown(name)}", hint=f"one of: {', '.join(table)}")
        )
    if name in table:
        return table[name]
    name = name[:LONGEST]  # to look for what is near takes the square of its length
    *others, near = [*map(repr, _nearest(name, table))] or [""]
    near = f"{', '.join(others)} or {near}" if others else near
    every = f"one of: {', '.join(table)}" if table else "there are none: drop it"
    hint = f"did you mean {near}?" if near else every
    raise UnknownNameError(message(f"unknown {what} {name!r}", hint=hint))


def _nearest(name: str, table: Mapping[str, Any]) -> list[str]:
    """Return what was probably meant: a slip of the pen, names with that word, or the nearest."""
    word = name.lower().replace("_", "-")
    slip = get_close_matches(word, table, n=1, cutoff=SLIP)
    longer = [key for key in table if len(word) > 2 and word in key.lower().replace("_", "-")]
    return slip or longer[:MOST_MEANT] or get_close_matches(word, table, n=1, cutoff=0.5)
