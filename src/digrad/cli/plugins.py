"""Commands of other distributions, found by their entry points; imported when they are used."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from digrad.base.errors import UnknownNameError, as_key, lookup, spelling
from digrad.base.former_names import present_name
from digrad.cli.output import hide_bool_metavars

GROUP = "digrad.commands"
ELSEWHERE = {  # commands of ours that are installed by themselves
    "reproduce": "digrad-studies",
    **dict.fromkeys(("peers", "hub", "keys"), "digrad-peers"),
}


class CommandGroup(TyperGroup):
    """digrad's own commands, and those of entry points."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(plugin_commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; for one of a plugin a stand-in, which the list of commands shows."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or (point := plugin_commands().get(cmd_name)) is None:
            return own
        return _command(cmd_name, lambda: None, help=f"From {_origin(point)}.")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run; one of a plugin is imported here.

        From here on errors name parameters as this command does.
        """
        args = [present_name(word, "command") for word in args]
        name, command, rest = self._resolve(ctx, args)
        ctx.with_resource(spelling(partial(as_option, command)))
        return name, command, rest

    def _resolve(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if super().get_command(ctx, name) is None:
            if (point := plugin_commands().get(name)) is not None:
                return name, _command(name, point.load()), args[1:]
            if name in ELSEWHERE:
                what = f"{name} is a command of {ELSEWHERE[name]}, which is not installed"
                raise UnknownNameError(what, hint=f"pip install {ELSEWHERE[name]}")
            if not name.startswith("-"):
                lookup(dict.fromkeys(self.list_commands(ctx)), name, "command")
        return super().resolve_command(ctx, args)


def as_option(command: Any, name: str, value: Any = None) -> str:
    """Write a parameter as an option of a command; one it does not have is a key of its file."""
    wanted = f"no_{name}" if value is False else name
    for each in getattr(command, "commands", {}).values() or [command]:
        for option in each.params:
            for flag in map(str, (*option.opts, *option.secondary_opts)):
                if flag.lstrip("-").replace("-", "_") == wanted:
                    bare = value is None or isinstance(value, bool)
                    return flag if bare else f"{flag} {value}"
    return as_key(name, value)


def plugin_commands() -> dict[str, EntryPoint]:
    """Return the entry points that are commands, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def _command(name: str, made: Callable[..., None] | typer.Typer, **about: Any) -> Any:
    """Make a command of a function, or of an app with commands of its own."""
    app = made
    if not isinstance(app, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        app.command(name, **about)(made)
    hide_bool_metavars(app)
    return typer.main.get_command(app)


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
