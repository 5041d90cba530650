"""``digrad check``: does an algorithm or a problem of yours keep the contract?"""

from typing import Annotated

import typer


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="mine.py:Name or package.module:Name, whose code is run, or a listed name.",
        ),
    ],
) -> None:
    """Hold an algorithm or a problem to its contract, and say what is wrong.

    Ends with status 1 if a check fails.

    Example: digrad check push-pull
    """
    from digrad.cli.output import show, status
    from digrad.runs.conformance import check_target

    failed = 0
    with status(f"checking {target}", long=True):
        for name, about, failure in check_target(target):
            failed += bool(failure)
            show(f"failed  {name}: {failure}" if failure else f"ok      {name}: {about}")
    if failed:
        show(f"{target} fails {failed} check{'s' if failed > 1 else ''}")
        raise typer.Exit(1)
