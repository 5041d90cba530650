"""The command line: parse, call, print.

What a command does is in the other rooms, and imported when it runs. Read ``networks`` first.
"""

import os
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer

from digrad.base.errors import DigradError
from digrad.base.former_names import FormerNameWarning
from digrad.base.machine import let_threads_sleep
from digrad.cli import data, networks, runs
from digrad.cli.check import check
from digrad.cli.design import design
from digrad.cli.export import export
from digrad.cli.output import hide_bool_metavars, warn
from digrad.cli.overview import greet
from digrad.cli.plugins import CommandGroup
from digrad.cli.report import report
from digrad.cli.train import train
from digrad.cli.tune import tune
from digrad.cli.watch import list_runs, watch

_SHOW_WARNING = warnings.showwarning

app = typer.Typer(
    cls=CommandGroup,
    add_completion=True,
    rich_markup_mode="markdown",  # "rich" would swallow [default: 16] in a help text
    pretty_exceptions_enable=False,
    help="Decentralized learning over directed networks: does it work, how fast, and who wins?",
)
for command in (networks.analyze, networks.compare, runs.init, runs.run, runs.plot, runs.table):
    app.command()(command)
app.command()(check)
app.command()(design)
app.command()(tune)
app.command()(train)
app.command()(report)
app.command()(export)
app.command()(watch)
app.command("runs")(list_runs)
app.add_typer(networks.listing, name="list")
app.add_typer(data.app, name="data")
for part in (app, networks.listing, data.app):
    hide_bool_metavars(part)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    from digrad import __version__

    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        greet(__version__)


def main() -> None:
    """Run the app; a deliberate error is one message on stderr and exit status 2."""
    if isinstance(sys.stdout, TextIOWrapper):  # a pipe on Windows, say, may know no π
        sys.stdout.reconfigure(errors="replace")
    let_threads_sleep(os.environ)  # before PyTorch is imported
    warnings.simplefilter("always", FormerNameWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        try:
            app()
        finally:
            print(end="", flush=True)  # here, since an error at exit could not be caught
    except DigradError as error:
        _fail(str(error))
    except MemoryError:
        _fail("there is not enough memory for this\n  hint: take a smaller n")
    except OSError as error:
        with suppress(OSError, AttributeError):  # what is left to write goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has gone (`| head`): nothing is wrong
            sys.exit(141)
        _fail(str(error))


def _show_warning(text: Warning | str, category: type[Warning], *about: Any) -> None:
    """Print a warning of a former name as one line, without the line of code behind it."""
    if issubclass(category, FormerNameWarning):
        warn(f"warning: {text}")
    else:
        _SHOW_WARNING(text, category, *about)


def _fail(text: str) -> NoReturn:
    warn(f"error: {text}")
    sys.exit(2)
