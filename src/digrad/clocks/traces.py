"""Times that were measured: traces read from a file."""

import csv
from collections.abc import Sequence
from io import StringIO
from math import isfinite
from pathlib import Path

from digrad.base.errors import FileFormatError, ParameterError, message, shown
from digrad.base.files import plain_bytes

COLUMNS = ("node", "compute")
Trace = tuple[tuple[float, ...], ...]


def read_trace(given: str | Path | Sequence[Sequence[float]], folders: Sequence[Path]) -> Trace:
    """Return the times of each node: as they are, or from a CSV file with node and compute."""
    if isinstance(given, str | Path):
        return _from_file(str(given), folders) if str(given) else ()
    try:
        times = tuple(tuple(float(time) for time in node) for node in given)
    except (TypeError, ValueError):
        what = f"a trace is a list of times for each node, got {shown(given)}"
        raise ParameterError(message(what, hint="for example [[1.0, 1.2], [0.9]]")) from None
    for node, own in enumerate(times):
        if not own or not all(isfinite(time) and time > 0 for time in own):
            what = f"node {node} of the trace must have times above 0, got {shown(own)}"
            raise ParameterError(message(what, hint="give every node one or more"))
    return times


def _from_file(name: str, folders: Sequence[Path]) -> Trace:
    path = next((f / name for f in folders if (f / name).is_file()), Path(name))
    try:
        text = plain_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"a CSV file with the columns {' and '.join(COLUMNS)}"
        raise FileFormatError(
            message(f"the trace {path} cannot be read: {error}", hint=hint)
        ) from error
    rows = csv.DictReader(StringIO(text))
    if not {*COLUMNS} <= {*(rows.fieldnames or ())}:
        hint = "its first line is node,compute"
        raise FileFormatError(message(f"{path} lacks a column of {shown(COLUMNS)}", hint=hint))
    times: dict[int, list[float]] = {}
    for line, row in enumerate(rows, 2):
        try:
            node, time = int(row["node"]), float(row["compute"])
        except (TypeError, ValueError):
            what = f"{path}, line {line}: {row.get('node')!r}, {row.get('compute')!r}"
            hint = "a node's number and the time of a gradient"
            raise FileFormatError(message(what, hint=hint)) from None
        times.setdefault(node, []).append(time)
    if sorted(times) != list(range(len(times))):
        what = f"{path} has times of the nodes {shown(sorted(times))}"
        raise FileFormatError(message(what, hint="number them 0, 1, 2, ... without a gap"))
    try:
        return read_trace([times[node] for node in range(len(times))], ())
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error
