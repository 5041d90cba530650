"""The command line: parse, call, print."""

import sys
from typing import Annotated

import typer

from digrad.cli import networks, runs
from digrad.errors import DigradError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Decentralized learning over directed networks: does it work, how fast, and who wins?",
)
for command in (networks.analyze, networks.compare, runs.init, runs.run, runs.plot, runs.table):
    app.command()(command)
app.command()(runs.reproduce)
app.add_typer(networks.listing, name="list")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from digrad import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the app; a deliberate error is one message on stderr and exit status 2."""
    try:
        app()
    except DigradError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong, nothing is left to say.
        sys.stderr.close()
        sys.exit(141)
