"""Options that choose what of some runs is shown, and under which names."""

from pathlib import Path
from typing import Annotated, Any

import typer

Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE,...",
        help="Only trials with these: run, network, algorithm, lr, seed; may be repeated.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this run, network or algorithm; may be repeated."),
]
Label = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="Call it otherwise; may be repeated."),
]
Best = Annotated[
    str,
    typer.Option(
        metavar="METRIC[@STEP|@target=V]",
        help="Each method at its own best step size, by this: loss, loss@200, loss@target=0.1.",
    ),
]


def read(
    folders: list[Path],
    where: list[str] | None = None,
    only: list[str] | None = None,
    label: list[str] | None = None,
) -> Any:
    """Read run folders and keep what is asked for."""
    from digrad.results.best import select
    from digrad.results.trials import Results

    return select(Results.read(*folders), where or (), only or (), label or ())
