"""Commands about run folders as they are now: watch, runs."""

import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any

import typer

from digrad.base.errors import ParameterError
from digrad.cli.output import command_to_resume, show, warn

SECONDS = 2.0  # from one look to the next
EVERY = 30.0  # seconds from one line to the next where there is no terminal


def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where run folders are.")] = Path(
        "runs"
    ),
) -> None:
    """List run folders: finished, running, interrupted or damaged; size; best last value.

    Example: digrad runs
    """
    from digrad.results.run_state import states
    from digrad.show.watching import list_states

    found = states(folder)
    if not found:
        show(f"no run folders in {folder}; `digrad run` writes one")
        return
    show(list_states(found), width=160)
    for run in found:
        if run.state == "interrupted":
            show(f"go on with: {command_to_resume(run.experiment, run.path)}")


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    metric: Annotated[str, typer.Option(help="What to draw [default: the first].")] = "",
    page: Annotated[
        bool, typer.Option("--page", help="Also serve a page that updates itself, to this machine.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Of the page [default: a free one].", min=0, max=65535)
    ] = 0,
) -> None:
    """Watch a run under way: curves and time left, until it ends.

    The page is served to this machine alone, at an address that nobody can guess.

    Example: digrad watch runs/first --page
    """
    from digrad.show.watching import RunView

    if port and not page:
        raise ParameterError(f"--port {port} is of a page", hint="add --page")
    sight = RunView.of(folder)
    if metric and sight.results is not None:
        sight.results.curves(metric)  # which says what there is
    try:
        if page:
            _with_page(sight, metric, port)
        else:
            _until_the_end(sight, metric)
    except KeyboardInterrupt:  # the run goes on
        raise typer.Exit(130) from None


def _with_page(sight: Any, metric: str, port: int) -> None:
    from digrad.show.pages.server import Server

    with Server(sight, port=port) as server:
        show(f"page: {server.address}")
        sys.stdout.flush()  # whoever reads a pipe wants to open it now
        _until_the_end(sight, metric, server.update)
        if server.asked:  # somebody may be looking: the last state is to reach them
            sleep(2 * SECONDS)


def _until_the_end(first: Any, metric: str, also: Any = lambda sight: None) -> None:
    """Show a run until it ends: on a terminal in one place, elsewhere a line now and then."""
    from rich.console import Console
    from rich.live import Live

    from digrad.base.text import Harmless
    from digrad.show.watching import as_text

    console, due, sight = Console(highlight=False), monotonic(), first
    if not console.is_terminal:
        for sight in _looks(first, also):
            if sight.under_way and monotonic() >= due:
                warn(sight.line)
                due = monotonic() + EVERY
        show(as_text(sight, metric))
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for sight in _looks(first, also):
            live.update(Harmless(as_text(sight, metric, console.width)), refresh=True)


def _looks(sight: Any, also: Any) -> Any:
    """Look again and again, until the run has ended."""
    from digrad.show.watching import RunView

    while sight.under_way:
        yield sight
        sleep(SECONDS)
        sight = RunView.of(sight.run.path)
        also(sight)
    yield sight
