"""Changes to an experiment from the command line: ``--set problem.batch=16``."""

import tomllib
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from digrad.base.errors import ParameterError, lookup, message
from digrad.base.former_names import present_name

FORM = "write KEY=VALUE, as in steps=10, seeds=0,1,2 or problem.batch=16"


def apply_edits(table: MutableMapping[str, Any], edits: Iterable[str]) -> None:
    """Change the tables of an experiment's file before they are checked.

    >>> table = {"steps": 5, "algorithms": [{"algorithm": "sgp", "name": "mine"}]}
    >>> apply_edits(table, ["steps=10", "seeds=0,1", "algorithms.mine.lr=0.1"])
    >>> table["steps"], table["seeds"], table["algorithms"][0]["lr"]
    (10, [0, 1], 0.1)
    """
    for text in edits:
        path, value = parse_edit(text)
        *way, last = path.split(".")
        last = present_name(last, way[0] if way else "experiment")
        place: Any = table
        for key in way:
            place = _within(place, key, text)
        if not isinstance(place, MutableMapping):
            raise ParameterError(message(f"{text}: there is no table to set {last!r} in"))
        place[last] = value


def parse_edit(text: str) -> tuple[str, Any]:
    """Return key and value: written as in a file, as a list without brackets, or a word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not all(key.strip().split(".")):
        raise ParameterError(message(f"cannot set {text!r}", hint=FORM))
    for written in (value, f"[{value}]"):
        try:
            return key.strip(), tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return key.strip(), value


def _within(place: Any, key: str, text: str) -> Any:
    """Return a table in a table, or in a list of them by its number or name."""
    if isinstance(place, MutableMapping):
        return place.setdefault(key, {})
    if isinstance(place, list):
        return lookup(_numbered(place), key, f"part of {text.partition('=')[0]}")
    raise ParameterError(message(f"{text}: {key!r} is not in a table", hint=FORM))


def _numbered(tables: Sequence[Any]) -> dict[str, Any]:
    """Return tables by what they are called, and by their number."""
    named = {str(k): table for k, table in enumerate(tables)}
    for table in tables:
        if isinstance(table, MutableMapping):
            for key in ("algorithm", "topology", "name"):
                named |= {str(table[key]): table} if table.get(key) else {}
    return named
