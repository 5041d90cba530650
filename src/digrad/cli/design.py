"""The command that chooses weights and links."""

from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.cli import completion
from digrad.cli.links import (
    BandwidthAttr,
    ComputeMS,
    CostAttr,
    LatencyAttr,
    ModelMB,
    PortMbit,
    attributes,
    tell_notes,
)
from digrad.cli.networks import (
    Figure,
    Json,
    LargestComponent,
    NodeCount,
    Params,
    PushFile,
    PushGraphOption,
    Undirected,
    What,
    draw,
    pairs,
)
from digrad.cli.output import check_figure, print_json, show
from digrad.cli.report import Html, check_page, write_network_page

CERTIFIED = 128  # nodes up to which the theory's constants are certified as well
Goal = Annotated[
    str,
    typer.Option(
        "--goal",
        help="What counts: `accuracy`, `noise` or `time`.",
        autocompletion=completion.goals,
    ),
]


def design(
    what: What,
    push_file: PushFile = None,
    nodes: NodeCount = None,
    param: Params = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Which graph of a random topology, and which reference problems."),
    ] = None,
    push_graph: PushGraphOption = "same",
    goal: Goal = "accuracy",
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
    latency_attr: LatencyAttr = None,
    bandwidth_attr: BandwidthAttr = None,
    cost_attr: CostAttr = None,
    model_mb: ModelMB = None,
    compute_ms: ComputeMS = 0.0,
    port_mbit: PortMbit = None,
    largest_component: LargestComponent = False,
    undirected: Undirected = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the network (.npz or .graphml).")
    ] = None,
    figure: Figure = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Choose weights, and links, that make Stochastic Push-Pull best on a network.

    Ctrl-C ends it with the best so far.

    Example: digrad design multi-sub-ring -n 22 --out designed.npz
    """
    from digrad.analysis.designs import design as run
    from digrad.networks import TOPOLOGIES, build, save, star
    from digrad.networks.files import check_network_suffix
    from digrad.networks.registry import is_file, takes_seed
    from digrad.networks.traffic import Load

    check_figure(figure)
    check_page(html)
    if out is not None:
        check_network_suffix(out)
    load = Load(model_mb, compute_ms, port_mbit)
    network = build(
        what,
        nodes,
        push_file=push_file,
        params=pairs(param or []),
        seed=seed if not is_file(what) and takes_seed(TOPOLOGIES.get(what, star)) else None,
        push_graph=push_graph,  # looked up by name, with a suggestion
        largest_component=largest_component,
        undirected=undirected,
        attributes=attributes(latency_attr, bandwidth_attr, cost_attr),
    )
    with _progress(f"designing {network.n} nodes") as progress:
        made = run(
            network,
            goal=goal,
            max_step=max_step,
            condition=condition,
            seed=seed or 0,
            budget=budget,
            local=local,
            keep_links=keep_links,
            add_links=add_links,
            load=load,
            progress=progress,
        )
    if out is not None:
        save(made.network, out)
    _show(made, what, json=json, figure=figure, html=html)
    if out is not None and not json:
        show(f"network: {out}")


def _show(made: Any, what: str, *, json: bool, figure: Path | None, html: Path | None) -> None:
    from rich.text import Text

    from digrad.analysis import analyze
    from digrad.analysis.designs.text import report

    small = made.network.n <= CERTIFIED
    both = [analyze(m.network, rtol=1e-4) for m in (made.before, made.after)] if small else []
    if figure is not None:
        draw((both or [analyze(made.network, rtol=1e-2)])[-1], f"{what} designed", figure)
    if html is not None:
        names = {"before": both[0], "after": both[1]} if both else {}
        write_network_page(names or {"after": analyze(made.network, rtol=1e-2)}, html)
    if json:
        print_json(made.to_dict() | {"certified": _certified(both)})
        return
    tell_notes(made.network, what)
    show(Text(f"{what}: {made.network!r}", style="bold"))
    show(report(made, _certified(both)))
    for written, path in (("figure", figure), ("report", html)):
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


class _progress:  # noqa: N801 (used like a function)
    """A bar with the time left, on a terminal."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = TextColumn(what), BarColumn(), TextColumn("{task.fields[left]}")
        hidden = not console.is_terminal
        self._bar = Progress(*columns, console=console, transient=True, disable=hidden)
        self._task = self._bar.add_task(what, total=1.0, left="")

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda share, left: self._bar.update(
            self._task, completed=share, left=f"{left:.0f} s left (Ctrl-C: best so far)"
        )

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
