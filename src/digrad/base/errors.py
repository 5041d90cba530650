"""The errors digrad raises on purpose, and name lookup with a suggestion.

Every text says what is wrong, where and with which number; a line that starts with
``hint:`` says what to do about it. The command line prints the text and exits with 2.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")

SLIP = 0.8  # similarity of two names that differ by a typing error
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
    """Base of every error that digrad raises on purpose: ``ParameterError(what, hint=fix)``.

    Args:
        what: what is wrong, where, with which number.
        details: a line each.
        hint: the fix.
    """

    def __init__(self, what: object = "", *details: object, hint: str = "") -> None:
        super().__init__(message(str(what), *map(str, details), hint=hint))

    def __str__(self) -> str:
        """Return the text, fit for a terminal: names in it may come from anywhere."""
        return printable(str(self.args[0]))


class NetworkError(DigradError, ValueError):
    """A graph or a pair of weight matrices that the theory does not admit."""


class ParameterError(DigradError, ValueError):
    """A parameter out of its range, or of the wrong kind."""


class UnknownNameError(DigradError, KeyError):
    """A name that is in no table; the text suggests the nearest one."""


class MissingLibraryError(DigradError, ImportError):
    """A library that something asks for and that is not installed."""


class FileFormatError(DigradError, ValueError):
    """A file that cannot be read as what its name says it is."""


def printable(text: str) -> str:
    r"""Write out what could command a terminal.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return text.translate(_WRITTEN_OUT).encode(errors="backslashreplace").decode()


def short_repr(value: Any) -> str:
    """Return a value for an error text: its beginning, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # it may be an integer of more digits than Python writes
        return f"a {type(value).__name__} that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def as_keyword(name: str, value: Any = None) -> str:
    """Write a parameter as a keyword of Python, with a value or without.

    >>> as_keyword("weights", "lazy"), as_keyword("out")
    ('weights="lazy"', 'out=')
    """
    text = f'"{value}"' if isinstance(value, str) else f"{value}"
    return f"{name}=" if value is None else f"{name}={text}"


def as_key(name: str, value: Any = None) -> str:
    """Write a parameter as a key of an experiment file.

    >>> as_key("weights", "lazy"), as_key("undirected", True)
    ('weights = "lazy"', 'undirected = true')
    """
    text = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return name if value is None else f"{name} = {text}"


Spelling = Callable[[str, Any], str]
_SPELLING: ContextVar[Spelling] = ContextVar("spelling", default=as_keyword)


@contextmanager
def spelling(spell: Spelling) -> Iterator[None]:
    """Have ``param`` write parameters as the front does that the user sits at."""
    token = _SPELLING.set(spell)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def param(name: str, value: Any = None) -> str:
    """Write a parameter as the user would: by default as a keyword of Python.

    >>> f"use {param('weights', 'lazy')}, or another {param('seed')}"
    'use weights="lazy", or another seed='
    >>> with spelling(as_key):
    ...     f"use {param('weights', 'lazy')}"
    'use weights = "lazy"'
    """
    return _SPELLING.get()(name, value)


def message(what: str, *details: str, hint: str = "") -> str:
    """Lay out an error text: what is wrong, indented details, then the fix.

    Parameters in it are written by ``param``, so that each front has its own words for them.

    >>> print(message("n must be at least 2, got n = 1", hint=f"pass {param('n', 2)}"))
    n must be at least 2, got n = 1
      hint: pass n=2
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
    if not isinstance(name, str):
        raise ParameterError(
            f"{what} must be a name, got {short_repr(name)}", hint=f"one of: {', '.join(table)}"
        )
    if name in table:
        return table[name]
    name = name[:LONGEST]  # to look for what is near takes the square of its length
    *others, near = [*map(repr, _nearest(name, table))] or [""]
    near = f"{', '.join(others)} or {near}" if others else near
    every = f"one of: {', '.join(table)}" if table else "there are none: drop it"
    hint = f"did you mean {near}?" if near else every
    raise UnknownNameError(f"unknown {what} {name!r}", hint=hint)


def _nearest(name: str, table: Mapping[str, Any]) -> list[str]:
    """Return what was probably meant: a typing error, names with that word, or the nearest."""
    word = name.lower().replace("_", "-")
    slip = get_close_matches(word, table, n=1, cutoff=SLIP)
    longer = [key for key in table if len(word) > 2 and word in key.lower().replace("_", "-")]
    return slip or longer[:MOST_MEANT] or get_close_matches(word, table, n=1, cutoff=0.5)
