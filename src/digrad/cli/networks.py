"""Commands about networks: analyze, compare, list."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.base.errors import ParameterError
from digrad.cli import completion
from digrad.cli.options import (
    GraphOptions,
    LoadOptions,
    NetworkOptions,
    OutputOptions,
    PageOptions,
    SettingOptions,
    with_groups,
)
from digrad.cli.output import print_json, show, show_notes, status
from digrad.cli.report import write_network_page

LONG_N = 200  # nodes from which an analysis may take more than a few seconds


@dataclass(frozen=True, kw_only=True)
class ChangingOptions(NetworkOptions):
    """Weights, and what changes from step to step."""

    weights: Annotated[
        str | None,
        typer.Option(
            help="`digrad list weights` [default: uniform].", autocompletion=completion.weights
        ),
    ] = None
    slot: Annotated[
        list[str] | None,
        typer.Option(help="A further slot of a timetable: a file or a topology; repeatable."),
    ] = None
    exchange_every: Annotated[int, typer.Option(help="Steps from one exchange to the next.")] = 1
    keep: Annotated[float, typer.Option(help="Probability that a link works in a step.")] = 1.0
    loss: Annotated[float, typer.Option(help="Share of messages that is lost.")] = 0.0
    loss_kind: Annotated[
        str, typer.Option(help="Who hears of a loss: known, returned or silent.")
    ] = "silent"

    def make(self) -> Any:
        """Return a network or a timetable."""
        from digrad.networks import build_any

        return self.build(
            build_any,
            weights=self.weights,
            slots=self.slot or (),
            exchange_every=self.exchange_every,
            keep=self.keep,
            loss={"share": self.loss, "kind": self.loss_kind},
        )


@with_groups
def analyze(
    source: ChangingOptions,
    problem: SettingOptions,
    load: LoadOptions,
    output: PageOptions,
    rtol: Annotated[float, typer.Option(help="Relative width of the brackets.")] = 1e-9,
    tree_rule: Annotated[str, typer.Option(help="When M2~ = 0: auto, paper or never.")] = "auto",
    effort: Annotated[float, typer.Option(help="Times the usual work on slow networks.")] = 1.0,
    losses: Annotated[
        bool, typer.Option("--losses", help="Name single points of failure, and what remains.")
    ] = False,
) -> None:
    """Say whether Stochastic Push-Pull works on a network, how fast, with which step.

    Example: digrad analyze multi-sub-ring -n 20 --figure ring.png
    """
    from rich.text import Text

    from digrad.analysis import analyze

    setting, carried, what = problem.setting(), load.load(), source.what
    network = source.make()
    with status(
        f"certifying the constants of {network.n} nodes (--rtol 1e-4 is faster)",
        long=network.n > LONG_N,
    ):
        options: Any = {"rtol": rtol, "tree_rule": tree_rule, "effort": effort}
        result = analyze(network, setting, load=carried, losses=losses, **options)
    if output.figure is not None:
        draw(result, what, output.figure)
    if output.html is not None:
        write_network_page({Path(what).stem: result}, output.html)
    if output.json:
        print_json(result.to_dict())
        return
    show_notes(network, what)
    show(Text(f"{what}: {network!r}\n", style="bold"))
    show(result.report())
    for name, path in (("\nfigure", output.figure), ("report", output.html)):
        if path is not None:
            show(f"{name}: {path}")


@with_groups
def compare(
    graphs: GraphOptions,
    problem: SettingOptions,
    load: LoadOptions,
    output: OutputOptions,
    topologies: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topologies and files; all topologies when nothing is named.",
            autocompletion=completion.topologies,
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option("--nodes", "-n", min=1, help="Number of nodes of the topologies.")
    ] = 16,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between: `digrad list weights`, or `designed` "
            "[default: uniform, or a file's own].",
            autocompletion=completion.weights,
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            help='Race methods in time on quadratics: "straggler=5.0, latency=0.2", '
            '"capacities=true", ... or "" for the defaults.'
        ),
    ] = None,
    methods: Annotated[str, typer.Option(help="That race, with commas between.")] = "",
    target: Annotated[
        float, typer.Option(help="The share of the first gap at which the race ends.")
    ] = 0.01,
) -> None:
    """Put networks side by side, the one expected to learn best first.

    Example: digrad compare directed-ring exponential binary-tree -n 32 --figure scaling.svg
    """
    from digrad.analysis.comparison import compare, make_networks, scaling, table
    from digrad.networks import TIMETABLES, TOPOLOGIES

    _check_race(clock, methods, output.figure, load.compute_ms)
    names = topologies or [*TOPOLOGIES, *TIMETABLES]
    schemes = [name.strip() for name in weights.split(",")] if weights is not None else []
    options: dict[str, Any] = {
        "weights": schemes if len(schemes) > 1 else weights,
        "push_graph": graphs.push_graph,
        "seed": graphs.seed,
    }
    if clock is not None:
        networks, refused = make_networks(names, nodes, **graphs.of_files(), **options)
        labelled = {str(label): net for label, net in networks.items()}
        chosen = [name.strip() for name in methods.split(",") if name.strip()]
        _race(labelled, refused, clock, chosen, load.model_mb, target, json=output.json)
        return
    setting, carried = problem.setting(), load.load()
    with status(f"comparing {len(names)} networks at n = {nodes}"):
        networks, refused = make_networks(names, nodes, **graphs.of_files(), **options)
        rows = compare(networks, setting, carried)
    if output.figure is not None:
        from digrad.show.figures import draw_scaling, save_figure

        with status(f"measuring how they scale up to n = {nodes}"):
            curves = scaling(names, nodes, setting, **options)
        save_figure(draw_scaling(curves, ylabel="transient time T", title=""), output.figure)
    if output.json:
        print_json({"n": nodes, "topologies": rows, "refused": refused})
        return
    show(table(rows, refused))
    if output.figure is not None:
        show(f"figure: {output.figure}")


def _check_race(clock: str | None, methods: str, figure: Path | None, compute_ms: float) -> None:
    """Refuse options of a race without one, and those that a race has no use for."""
    if clock is None and methods:
        what, hint = "--methods race on a clock, and there is none", 'add --clock ""'
    elif clock is not None and figure is not None:
        what, hint = "a race has no figure", "drop --figure, or --clock"
    elif clock is not None and compute_ms:
        what, hint = (
            "a clock says itself what a gradient takes",
            '--clock "compute=0.03", in seconds',
        )
    else:
        return
    raise ParameterError(what, hint=hint)


def _race(
    networks: Mapping[str, Any],
    missing: Mapping[str, str],
    clock: str,
    methods: list[str],
    model_mb: float | None,
    target: float,
    *,
    json: bool,
) -> None:
    """Race methods on networks, and print who is first."""
    from rich.table import Table

    from digrad.base.text import number
    from digrad.runs.race import METHODS, race, read_clock, settings_of

    times, (course, sizes) = read_clock(clock), settings_of(target, model_mb)
    with status(f"racing {len(methods or METHODS)} methods on {len(networks)} networks"):
        results, refused = race(networks, methods or METHODS, times, sizes, course)
    refused = {**missing, **refused}
    if json:
        print_json({"race": [result._asdict() for result in results], "refused": refused})
        return
    out = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    unit = "seconds" if times.capacities else f"time (a gradient takes {number(times.compute)})"
    for head in ("network", "method", "best step", "gradients", unit, "waits longest for"):
        out.add_column(head, justify="left" if head[0] in "nmw" else "right")
    for one in results:
        cells = ("-" if x is None else number(x, 4) for x in (one.step, one.gradients, one.time))
        out.add_row(one.network, one.method, *cells, one.bottleneck)
    each = f"{number(times.compute)} s" if times.capacities else number(times.compute)
    show(
        f"Until f - f* is {number(target)} of what it was at the start, on quadratics of "
        f"{course.dim} numbers with noise, each method at its best step. A message has "
        f"{number(sizes.vector)} bytes; a gradient takes {each} (compute in --clock), or more."
    )
    show(out, width=160)
    for name, why in refused.items():
        show(f"{name}: {why}")


listing = typer.Typer(no_args_is_help=True, help="Show what there is.")


@listing.command("topologies")
def list_topologies() -> None:
    """List the topologies, their parameters and what they are.

    Example: digrad list topologies
    """
    from digrad.networks import TIMETABLES, TOPOLOGIES

    _print_listing({**TOPOLOGIES, **TIMETABLES}, skip=("n",))


@listing.command("algorithms")
def list_algorithms() -> None:
    """List the algorithms: what they need, keep and send.

    Example: digrad list algorithms
    """
    from rich.table import Table
    from rich.text import Text

    from digrad.algorithms import METHODS, ON_A_CLOCK, costs
    from digrad.algorithms.counting import describe_traffic

    rows = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    for column in ("name", "needs", "exact", "memory", "sends per step", "what it is"):
        rows.add_column(column)
    on_clock = {f"{name}, on a clock": kind for name, kind in ON_A_CLOCK.items()}
    for name, make in (*METHODS.items(), *on_clock.items()):
        method: Any = make()
        needs = [str(flag.name).lower().replace("_", " ") for flag in make.needs]
        needs += ["no loss"] if method.loses else []
        memory = costs(method).memory
        rows.add_row(
            Text(name, style="bold"),
            ", ".join(needs),
            "yes" if make.exact else "no",
            f"{memory} vector{'s' if memory > 1 else ''}",
            describe_traffic(method),
            Text((make.__doc__ or "").splitlines()[0]),
        )
    show(rows, width=220)


@listing.command("problems")
def list_problems() -> None:
    """List the problems of experiment files and their keys.

    Example: digrad list problems
    """
    from digrad.problems import PROBLEMS

    _print_listing(PROBLEMS, skip=("nodes", "device", "dtype"))


@listing.command("schedules")
def list_schedules() -> None:
    """List the schedules of experiment files and their keys.

    Example: digrad list schedules
    """
    from digrad.runs.schedules import SCHEDULES, Constant
    from digrad.theory import Setting

    known: dict[str, Any] = {**SCHEDULES, "theorem": Setting}
    about = {"theorem": "The step of the paper's theorem, of which ``lr`` are factors."}
    _print_listing(known, skip=("T",), about=about, names={Constant(): "constant"})


@listing.command("weights")
def list_weights() -> None:
    """List the weights that a graph can be given.

    Example: digrad list weights
    """
    from digrad.networks import WEIGHTS

    _print_listing(WEIGHTS, skip=("pull", "push", "root", "self_weight"))


def draw(result: Any, what: str, path: Path) -> Path:
    """Draw an analyzed network."""
    from digrad.networks import Timetable
    from digrad.show.figures import draw_network, draw_timetable, save_figure

    title = f"{Path(what).stem}, n = {result.n}"
    if isinstance(result.network, Timetable):
        return save_figure(draw_timetable(result.network, result.vectors, title=title), path)
    return save_figure(draw_network(result.network, result.vectors.pi_R, title=title), path)


def _print_listing(
    table: dict[str, Any],
    skip: tuple[str, ...],
    about: Mapping[str, str] | None = None,
    names: Mapping[Any, str] | None = None,
) -> None:
    """Print names, parameters with their defaults (some of which have names), and what they are."""
    from inspect import signature

    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    for column in ("name", "parameters", "what it is"):
        rows.add_column(column)
    for name, function in table.items():
        params = signature(function).parameters.values()
        shown = " ".join(
            p.name
            if p.default is p.empty
            else f"{p.name}={(names or {}).get(p.default, p.default)}"
            for p in params
            if p.name not in skip
        )
        what = (about or {}).get(name) or (function.__doc__ or "").splitlines()[0]
        rows.add_row(Text(name, style="bold"), Text(shown), Text(what))
    show(rows, width=160)
