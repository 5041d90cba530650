"""What the commands have in common: progress, text and JSON on the terminal."""

import sys
from pathlib import Path
from typing import Any

from digrad.base.errors import ParameterError, printable


def hide_bool_metavars(app: Any) -> None:
    """Have the help of an app's commands not say <bool> beside options that take no value."""
    for command in app.registered_commands:
        for annotation in command.callback.__annotations__.values():
            for option in getattr(annotation, "__metadata__", ()):
                if annotation.__origin__ is bool and getattr(option, "metavar", "") is None:
                    option.metavar = ""


def status(what: str, *, long: bool = False) -> Any:
    """Show a status line on a terminal; elsewhere print it once, if the work may take long."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if long and not console.is_terminal:
        warn(f"{what} ...")
    return console.status(Text(printable(what)))


def show(what: Any, width: int = 110) -> None:
    """Print a text as it is, or a table: in colour on a terminal, plain and this wide elsewhere."""
    from rich.console import Console
    from rich.text import Text

    from digrad.base.text import Harmless, plain

    if isinstance(what, str):  # a path is not markup, whatever brackets it has
        what = Text(what)
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(Harmless(what), soft_wrap=isinstance(what, Text))
    elif isinstance(what, Text):
        print(printable(what.plain))
    else:  # a pipe has no width of its own, and no use for blanks at the end of a line
        print(plain(what, max(width, _widest(what))))


def _widest(what: Any) -> int:
    """Return the width at which no table of data, which has a head, has to cut or fold a cell."""
    from rich.console import Console, Group
    from rich.measure import Measurement
    from rich.table import Table

    if isinstance(what, Group):
        return max(map(_widest, what.renderables), default=0)
    if not isinstance(what, Table) or not what.show_header:
        return 0  # sentences fold
    console = Console(width=10_000)
    return Measurement.get(console, console.options, what).maximum


def warn(text: str) -> None:
    """Print a line on stderr; names in it may come from anywhere."""
    print(printable(text), file=sys.stderr)


def command_to_resume(experiment: Any, folder: Path) -> str:
    """Return how to go on with an interrupted run: a command, or the call that began it."""
    if experiment.of_objects:
        return f"the same dg.simulate(...) with out={str(folder)!r}, resume=True"
    trust = " --trust" if experiment.own_names else ""
    return f"digrad run {folder / 'experiment.toml'} --out {folder} --resume{trust}"


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object."""
    from json import dumps

    print(dumps(data, indent=1, allow_nan=False))


def show_notes(network: Any, what: str) -> None:
    """Print, beside the output, what was left out when a network was read."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    for note in network.notes:
        console.print(Text(f"note: {what}: {note}", style="dim"), soft_wrap=True)


def check_page(path: Path | None) -> None:
    """Refuse a page that no browser would open before the work starts, not after."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        what = f"cannot write a page as {path.name!r}: its suffix is not that of HTML"
        raise ParameterError(what, hint="end the name in .html")


def check_figure(path: Path | None) -> None:
    """Refuse a picture that cannot be written before the work starts, not after."""
    if path is not None:
        from digrad.show.figures import check_suffix

        check_suffix(path)
