"""Rows of a study as a table on the terminal and as CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType

from digrad.base.text import number
from digrad.show.layout import Columns, write_csv
from digrad_studies.statistics import Estimate

StudyCell = str | float | Estimate
StudyRow = Mapping[str, StudyCell]


def study_table(rows: Sequence[StudyRow], heads: Mapping[str, str]) -> RenderableType:
    """Lay out the columns that have a head; a row need not have all of them."""
    words = [any(isinstance(row.get(name), str) for row in rows) for name in heads]
    lines = [[_text(row.get(name)) for name in heads] for row in rows]
    return Columns([*heads.values()], words, lines).rich()


def _text(cell: StudyCell | None) -> str:
    if cell is None:
        return "-"
    return str(cell) if isinstance(cell, str | Estimate) else number(cell, 3)


def write_study(rows: Sequence[StudyRow], path: Path) -> Path:
    """Write rows with all their digits, whole or not at all; an interval is two more columns."""
    return write_csv([_flat(row) for row in rows], path)


def _flat(row: StudyRow) -> dict[str, str | float]:
    flat: dict[str, str | float] = {}
    for name, cell in row.items():
        if isinstance(cell, Estimate):
            flat |= {name: cell.value, f"{name}_low": cell.low, f"{name}_high": cell.high}
        else:
            flat[name] = cell
    return flat
