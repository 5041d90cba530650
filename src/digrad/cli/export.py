"""The command that hands records on to other tools."""

from pathlib import Path
from typing import Annotated

import typer

from digrad.cli.output import show
from digrad.cli.runs import Folders
from digrad.cli.selecting import Label, Only, Where, read


def export(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", "-o", help="A file: .parquet or .csv.")],
    where: Where = None,
    only: Only = None,
    label: Label = None,
) -> None:
    """Write the records of runs into one file, a row per trial and recorded step.

    The columns are those of metrics.csv, and `run` before them if there are several.

    Example: digrad export runs/first runs/second -o both.parquet
    """
    from digrad.show.exports import check_export, write_export

    check_export(out)
    show(f"records: {write_export(read(folders, where, only, label), out)}")
