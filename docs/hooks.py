"""What MkDocs does not do by itself: find pages, link names of code, write the commands down."""

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMANDS = "<!-- commands -->"  # the place of the command line in reference/cli.md
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")  # a link that begins by going up
CODE = re.compile(r"```.*?```|`(digrad(?:\.\w+)+)`", re.DOTALL)  # blocks are passed over


def on_config(config: Any) -> Any:
    """Put the pages that a pattern such as ``design/*.md`` finds into the navigation."""
    config.nav = _filled(config.nav)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write every command where it belongs, and link names of code to their reference."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, command_line())
    folder = (HERE / page.file.src_uri).parent
    markdown = OUTSIDE.sub(lambda found: _named(found, folder), markdown)
    return CODE.sub(lambda found: _linked(found[1]) if found[1] else found[0], markdown)


def command_line() -> str:
    """Return the help of every command as Markdown; the code is the only source."""
    import typer

    from digrad.cli import app

    return "\n\n".join(_described(typer.main.get_command(app), "digrad"))


def _named(link: re.Match[str], folder: Path) -> str:
    """Turn a link to a file of the repository that is not on the site into its name."""
    target = (folder / link[2].partition("#")[0]).resolve()
    if target.is_relative_to(HERE) or not target.exists():
        return link[0]
    return f"{link[1]} (`{target.relative_to(HERE.parent)}`)"


def _linked(name: str) -> str:
    """Link a name, if the reference has it."""
    return f'<autoref optional identifier="{name}"><code>{name}</code></autoref>'


def _filled(nav: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            found += sorted(str(path.relative_to(HERE)) for path in HERE.glob(entry))
        elif isinstance(entry, dict):
            found.append({k: _filled(v) if isinstance(v, list) else v for k, v in entry.items()})
        else:
            found.append(entry)
    return found


def _described(command: Any, path: str) -> list[str]:
    """Describe a command, or those of a group one after the other."""
    if hasattr(command, "commands"):
        inner = command.commands.items()
        return [part for name, made in inner for part in _described(made, f"{path} {name}")]
    text, _, example = (command.help or "").partition("Example: ")
    pieces = command.collect_usage_pieces(command.context_class(command))
    usage = " ".join(piece.strip("{}") for piece in (*pieces[1:], pieces[0]))
    return [
        f"## {path}",
        text.strip(),
        f"```text\n{path} {usage}\n```",
        f"Example:\n\n```sh\n{example.strip()}\n```",
        "\n".join(["| name | meaning |", "|---|---|", *map(_row, command.params)]),
    ]


def _row(parameter: Any) -> str:
    """One line of the table: names, what it is for, and the default."""
    argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if argument else parameter.opts
    default = parameter.default
    shown = f" Default: `{default}`." if default not in (None, False, "", [], ()) else ""
    told = "default" in (parameter.help or "")  # by the text itself
    meaning = (parameter.help or "").replace("|", "\\|").replace("[default", "\\[default")
    return f"| {', '.join(f'`{name}`' for name in names)} | {meaning}{'' if told else shown} |"
