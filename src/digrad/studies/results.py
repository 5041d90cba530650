"""Rows of a study as a table on the terminal and as CSV."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from digrad.base.atomic import write_whole
from digrad.base.text import number
from digrad.studies.statistics import Estimate

Cell = str | float | Estimate
Row = Mapping[str, Cell]


def render(rows: Sequence[Row], heads: Mapping[str, str]) -> RenderableType:
    """Lay out the columns that have a head; a row need not have all of them."""
    out = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    for name, head in heads.items():
        words = any(isinstance(row.get(name), str) for row in rows)
        side: Literal["left", "right"] = "left" if words else "right"
        out.add_column(head, justify=side, overflow="fold")
    for row in rows:
        out.add_row(*(Text(_text(row.get(name))) for name in heads))
    return out


def _text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return str(cell) if isinstance(cell, str | Estimate) else number(cell, 3)


def to_csv(rows: Sequence[Row], path: Path) -> Path:
    """Write rows with all their digits, whole or not at all; an interval is two more columns."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    out = StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return write_whole(path, out.getvalue().encode())


def _flat(row: Row) -> dict[str, str | float]:
    flat: dict[str, str | float] = {}
    for name, cell in row.items():
        if isinstance(cell, Estimate):
            flat |= {name: cell.value, f"{name}_low": cell.low, f"{name}_high": cell.high}
        else:
            flat[name] = cell
    return flat
