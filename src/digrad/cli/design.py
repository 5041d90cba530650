"""The command that chooses weights and links."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.cli import completion
from digrad.cli.networks import draw
from digrad.cli.options import LoadOptions, NetworkOptions, PageOptions, with_groups
from digrad.cli.output import print_json, show, show_notes
from digrad.cli.report import write_network_page

CERTIFIED = 128  # nodes up to which the theory's constants are certified as well


@dataclass(frozen=True, kw_only=True)
class DesignOptions(NetworkOptions):
    """The network to start from, and the seed of the reference problems."""

    seed: Annotated[
        int | None,
        typer.Option(help="Which graph of a random topology, and which reference problems."),
    ] = None

    def make(self) -> Any:
        """Return the network; a seed that it has no use for is that of the problems alone."""
        from digrad.networks import TOPOLOGIES, build, star
        from digrad.networks.registry import is_file, takes_seed

        drawn = not is_file(self.what) and takes_seed(TOPOLOGIES.get(self.what, star))
        return self.build(build, seed=self.seed if drawn else None)


@with_groups
def design(
    source: DesignOptions,
    load: LoadOptions,
    output: PageOptions,
    goal: Annotated[
        str,
        typer.Option(
            help="What counts: `accuracy`, `noise` or `time`.", autocompletion=completion.goals
        ),
    ] = "accuracy",
    max_step: Annotated[float, typer.Option(help="The largest step γ nπ L to be good at.")] = 1.0,
    condition: Annotated[float, typer.Option(help="Condition number to be good at.")] = 20.0,
    local: Annotated[
        bool, typer.Option("--local", help="Weights that nodes choose by their own links.")
    ] = False,
    keep_links: Annotated[
        int | None, typer.Option(help="Use at most so many links, pull and push together.")
    ] = None,
    add_links: Annotated[int, typer.Option(help="Add the links that help most.")] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds to optimise at most.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the network (.npz or .graphml).")
    ] = None,
) -> None:
    """Choose weights, and links, that make Stochastic Push-Pull best on a network.

    Ctrl-C ends it with the best so far.

    Example: digrad design multi-sub-ring -n 22 --out designed.npz
    """
    from digrad.analysis.designs import design
    from digrad.networks import save
    from digrad.networks.files import check_network_suffix

    if out is not None:
        check_network_suffix(out)
    carried, network = load.load(), source.make()
    with _progress(f"designing {network.n} nodes") as progress:
        result = design(
            network,
            goal=goal,
            max_step=max_step,
            condition=condition,
            seed=source.seed or 0,
            budget=budget,
            local=local,
            keep_links=keep_links,
            add_links=add_links,
            load=carried,
            progress=progress,
        )
    if out is not None:
        save(result.network, out)
    _show(result, source.what, output)
    if out is not None and not output.json:
        show(f"network: {out}")


def _show(made: Any, what: str, output: PageOptions) -> None:
    from rich.text import Text

    from digrad.analysis import analyze
    from digrad.analysis.designs.designing import report

    small = made.network.n <= CERTIFIED
    both = [analyze(m.network, rtol=1e-4) for m in (made.before, made.after)] if small else []
    if output.figure is not None:
        last = (both or [analyze(made.network, rtol=1e-2)])[-1]
        draw(last, f"{what} designed", output.figure)
    if output.html is not None:
        names = {"before": both[0], "after": both[1]} if both else {}
        write_network_page(names or {"after": analyze(made.network, rtol=1e-2)}, output.html)
    if output.json:
        print_json(made.to_dict() | {"certified": _certified(both)})
        return
    show_notes(made.network, what)
    show(Text(f"{what}: {made.network!r}", style="bold"))
    show(report(made, _certified(both)))
    for written, path in (("figure", output.figure), ("report", output.html)):
        if path is not None:
            show(f"{written}: {path}")


def _certified(both: list[Any]) -> dict[str, Any]:
    """Return constants of the theory that both networks have, before and after."""
    if not both:
        return {}
    rows = {
        "Q/(nπ²)": "speedup_ratio",
        "transient time": "transient_time",
        "our transient time": "transient_certified",
    }
    found = [a.to_dict() for a in both]
    known = {name: key for name, key in rows.items() if key in found[0]}
    return {name: tuple(data[key] for data in found) for name, key in known.items()}


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    """Show a bar with the time left, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), TextColumn("{task.fields[left]}")
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(what, total=1.0, left="")
        yield lambda share, left: bar.update(
            task, completed=share, left=f"{left:.0f} s left (Ctrl-C: best so far)"
        )
