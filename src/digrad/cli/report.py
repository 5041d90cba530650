"""The command that makes a page to look at."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.cli.output import check_page, show, status
from digrad.cli.runs import Folders
from digrad.cli.selecting import Best, Label, Only, Where, read


def report(
    folders: Folders,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file [default: DIR/report.html].")
    ] = None,
    title: Annotated[str, typer.Option(help="What the page is called.")] = "",
    best: Best = "",
    where: Where = None,
    only: Only = None,
    label: Label = None,
) -> None:
    """Make one page of runs: who won, curves, the sweep, networks and how to repeat it.

    The page needs nothing else: no network, no other file.

    Example: digrad report runs/first -o first.html
    """
    target = out or folders[0] / "report.html"
    check_page(target)
    trace = read(folders, where, only, label)
    if best:
        from digrad.results import judge

        judge(trace, best)  # what cannot be compared is said here; on a page it would be too late
    write_run_page(folders, target, title=title, by=best, trace=trace)


def write_run_page(folders: list[Path], target: Path, **options: Any) -> None:
    """Write the page of some run folders and say where it is."""
    from digrad.show.pages import run_page, write_page

    with status("analyzing the networks"):
        page = run_page(folders, **options)
    show(f"report: {write_page(page, target)}")


def write_study_page(target: Path, parts: dict[str, list[Any]], *, title: str, again: str) -> None:
    """Write the page of the study in the target's folder and say where it is."""
    from digrad.show.pages import study_page, write_page

    page = study_page(target.parent, parts, title=title, again=again)
    show(f"report: {write_page(page, target)}")


def write_network_page(analyses: dict[str, Any], target: Path) -> Path:
    """Write the page of some analyses, by name, with the command that is being run."""
    from shlex import join

    from digrad.show.pages import network_page, write_page

    return write_page(network_page(analyses, again=join(["digrad", *sys.argv[1:]])), target)
