"""Commands about networks: analyze, compare, list."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.base.errors import ParameterError, message
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
from digrad.cli.output import busy, check_figure, print_json, show
from digrad.cli.report import Html, check_page, write_network_page

LONG_N = 200  # nodes from which an analysis may take more than a few seconds

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="A topology (`digrad list topologies`) or a graph or matrix file.",
        autocompletion=completion.topologies,
    ),
]
PushFile = Annotated[
    str | None,
    typer.Argument(
        metavar="C_FILE", help="The file of C, where the first one holds R.", show_default=False
    ),
]
NodeCount = Annotated[
    int | None, typer.Option("--nodes", "-n", help="Number of nodes of a topology [default: 16].")
]
Params = Annotated[
    list[str] | None, typer.Option("--param", help="A topology's parameter, as key=value.")
]
Seed = Annotated[int | None, typer.Option(help="Which graph of a random topology.")]
WeightsName = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="`digrad list weights` [default: uniform].",
        autocompletion=completion.weights,
    ),
]
PushGraphOption = Annotated[
    str,
    typer.Option(
        help="Push over the `same` links, or over their `reverse` as in the paper.",
        autocompletion=completion.push_graphs,
    ),
]
Lipschitz = Annotated[float, typer.Option("--L", help="Lipschitz constant of the gradients.")]
Sigma = Annotated[float, typer.Option(help="Standard deviation of a stochastic gradient.")]
DeltaF = Annotated[float, typer.Option("--delta-f", help="f at the start minus its minimum.")]
F0 = Annotated[float, typer.Option("--F0", help="Mean squared gradient at the start.")]
Steps = Annotated[int, typer.Option("--steps", "-T", help="Number of steps T.")]
LargestComponent = Annotated[
    bool, typer.Option("--largest-component", help="Keep the largest strong part of a graph.")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Read a file's links as two-way.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Slots = Annotated[
    list[str] | None,
    typer.Option("--slot", help="A further slot of a timetable: a file or a topology; repeatable."),
]
ExchangeEvery = Annotated[int, typer.Option(help="Steps from one exchange to the next.")]
Keep = Annotated[float, typer.Option(help="Probability that a link works in a step.")]
Loss = Annotated[float, typer.Option(help="Share of messages that is lost.")]
LossKind = Annotated[str, typer.Option(help="Who hears of a loss: known, returned or silent.")]
Figure = Annotated[Path | None, typer.Option(help="Write a picture (PNG, SVG or PDF).")]


def analyze(
    what: What,
    push_file: PushFile = None,
    nodes: NodeCount = None,
    param: Params = None,
    seed: Seed = None,
    weights: WeightsName = None,
    push_graph: PushGraphOption = "same",
    lipschitz: Lipschitz = 1.0,
    sigma: Sigma = 1.0,
    delta_f: DeltaF = 1.0,
    f0: F0 = 1.0,
    steps: Steps = 10_000,
    json: Json = False,
    figure: Figure = None,
    html: Html = None,
    rtol: Annotated[float, typer.Option(help="Relative width of the brackets.")] = 1e-9,
    tree_rule: Annotated[str, typer.Option(help="When M2~ = 0: auto, paper or never.")] = "auto",
    effort: Annotated[float, typer.Option(help="Times the usual work on slow networks.")] = 1.0,
    largest_component: LargestComponent = False,
    undirected: Undirected = False,
    latency_attr: LatencyAttr = None,
    bandwidth_attr: BandwidthAttr = None,
    cost_attr: CostAttr = None,
    model_mb: ModelMB = None,
    compute_ms: ComputeMS = 0.0,
    port_mbit: PortMbit = None,
    slot: Slots = None,
    exchange_every: ExchangeEvery = 1,
    keep: Keep = 1.0,
    loss: Loss = 0.0,
    loss_kind: LossKind = "silent",
    losses: Annotated[
        bool, typer.Option("--losses", help="Name single points of failure, and what remains.")
    ] = False,
) -> None:
    """Say whether Stochastic Push-Pull works on a network, how fast, with which step.

    Example: digrad analyze multi-sub-ring -n 20 --figure ring.png
    """
    from digrad.analysis import analyze as run
    from digrad.analysis import losses as losing
    from digrad.networks import Network, build_any
    from digrad.networks.traffic import Load, traffic
    from digrad.theory import Setting

    check_figure(figure)
    check_page(html)
    setting = Setting(lipschitz, sigma, delta_f, f0, steps)
    load = Load(model_mb, compute_ms, port_mbit)
    network = build_any(
        what,
        nodes,
        slots=slot or (),
        exchange_every=exchange_every,
        keep=keep,
        loss={"share": loss, "kind": loss_kind},
        push_file=push_file,
        params=pairs(param or []),
        seed=seed,
        weights=weights,
        push_graph=push_graph,
        largest_component=largest_component,
        undirected=undirected,
        attributes=attributes(latency_attr, bandwidth_attr, cost_attr),
    )
    if not isinstance(network, Network) and (losses or load != Load()):
        said = "--losses" if losses else "--model-mb, --compute-ms and --port-mbit"
        what = f"{said} look at a network that stays as it is, and {what} changes"
        raise ParameterError(message(what, hint="drop them, or look at its slots one by one"))
    with busy(
        f"certifying the constants of {network.n} nodes (--rtol 1e-4 is faster)",
        long=network.n > LONG_N,
    ):
        rule: Any = tree_rule  # looked up by name, as above
        result = run(network, setting, rtol=rtol, tree_rule=rule, effort=effort)
    stays = network if isinstance(network, Network) else None
    lost = losing.losses(stays) if losses and stays else None
    step = traffic(stays, load) if stays else None
    asked = stays is not None and (load != Load() or stays.capacities is not None)
    drawn = None if figure is None else draw(result, what, figure)
    if html is not None:
        write_network_page({Path(what).stem: result}, html)
    if json:
        more = {"traffic": step.to_dict()} if asked and step else {}
        more |= {"losses": lost.to_dict()} if lost else {}
        print_json(result.to_dict() | more)
        return
    tell_notes(network, what)
    _report(result, f"{what}: {network!r}", drawn, step if asked else None)
    if lost is not None:
        show(losing.report(lost))
    if html is not None:
        show(f"report: {html}")


def compare(
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
            "--weights",
            help="Names with commas between: `digrad list weights`, or `designed` "
            "[default: uniform, or a file's own].",
            autocompletion=completion.weights,
        ),
    ] = None,
    push_graph: PushGraphOption = "same",
    seed: Seed = None,
    lipschitz: Lipschitz = 1.0,
    sigma: Sigma = 1.0,
    delta_f: DeltaF = 1.0,
    f0: F0 = 1.0,
    steps: Steps = 10_000,
    json: Json = False,
    figure: Figure = None,
    latency_attr: LatencyAttr = None,
    bandwidth_attr: BandwidthAttr = None,
    cost_attr: CostAttr = None,
    model_mb: ModelMB = None,
    compute_ms: ComputeMS = 0.0,
    port_mbit: PortMbit = None,
    largest_component: LargestComponent = False,
    undirected: Undirected = False,
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
    from digrad.analysis.comparison import compare as run
    from digrad.analysis.comparison import scaling, table
    from digrad.networks import TIMETABLES, TOPOLOGIES
    from digrad.networks.traffic import Load
    from digrad.theory import Setting

    check_figure(figure)
    _check_race(clock, methods, figure, compute_ms)
    names = topologies or [*TOPOLOGIES, *TIMETABLES]
    setting = Setting(lipschitz, sigma, delta_f, f0, steps)
    load = Load(model_mb, compute_ms, port_mbit)
    read = attributes(latency_attr, bandwidth_attr, cost_attr)
    files = {"attributes": read, "undirected": undirected, "largest_component": largest_component}
    schemes = None if weights is None else [name.strip() for name in weights.split(",")]
    one = schemes[0] if schemes and len(schemes) == 1 else schemes
    options: dict[str, Any] = {"weights": one, "push_graph": push_graph, "seed": seed}
    if clock is not None:
        make = {"n": nodes, **files, **options}
        _race(names, make, clock, methods, target, model_mb, json)
        return
    with busy(f"comparing {len(names)} networks at n = {nodes}"):
        rows, refused = run(names, nodes, setting, load=load, **files, **options)
    if figure is not None:
        from digrad.show.figures import draw_scaling, save_figure

        with busy(f"measuring how they scale up to n = {nodes}"):
            curves = scaling(names, nodes, setting, **options)
        save_figure(draw_scaling(curves, ylabel="transient time T", title=""), figure)
    if json:
        print_json({"n": nodes, "topologies": rows, "refused": refused})
        return
    show(table(rows, refused))
    if figure is not None:
        show(f"figure: {figure}")


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
    raise ParameterError(message(what, hint=hint))


def _race(
    names: list[str],
    make: dict[str, Any],
    said: str,
    methods: str,
    target: float,
    model_mb: float | None,
    json: bool,
) -> None:
    """Race methods on networks, and print who is first."""
    from rich.table import Table

    from digrad.analysis.comparison import each_network
    from digrad.base.checks import real
    from digrad.base.text import number
    from digrad.runs.race import METHODS, RaceSettings, race, read_clock
    from digrad.runs.timing import MessageSizes

    course = RaceSettings(real(target, "target", above=0, most=1, hint="0.01 is a hundredth"))
    times = read_clock(said)
    nets, missing = each_network(names, **make)
    chosen = [name.strip() for name in methods.split(",") if name.strip()] or list(METHODS)
    sizes = MessageSizes(1e6 * model_mb if model_mb else 4.0 * course.dim, 4.0)
    with busy(f"racing {len(chosen)} methods on {len(nets)} networks"):
        found, refused = race(nets, chosen, times, sizes, course)
    refused = missing | refused
    if json:
        print_json({"race": [one._asdict() for one in found], "refused": refused})
        return
    out = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    unit = "seconds" if times.capacities else f"time (a gradient takes {number(times.compute)})"
    for head in ("network", "method", "best step", "gradients", unit, "waits longest for"):
        out.add_column(head, justify="left" if head[0] in "nmw" else "right")
    for one in found:
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


def pairs(params: list[str]) -> dict[str, str]:
    """Split key=value options."""
    pairs = {}
    for text in params:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ParameterError(
                message(f"--param takes key=value, got {text!r}", hint="for example --param p=0.3")
            )
        pairs[key.strip().replace("-", "_")] = value.strip()
    return pairs


def draw(result: Any, what: str, path: Path) -> Path:
    """Draw an analyzed network."""
    from digrad.networks import Timetable
    from digrad.show.figures import draw_network, draw_timetable, save_figure

    title = f"{Path(what).stem}, n = {result.n}"
    if isinstance(result.network, Timetable):
        return save_figure(draw_timetable(result.network, result.vectors, title=title), path)
    return save_figure(draw_network(result.network, result.vectors.pi_R, title=title), path)


def _report(result: Any, title: str, drawn: Path | None, step: Any) -> None:
    from rich.text import Text

    from digrad.analysis import TimetableAnalysis, timetable_analysis, traffic_text
    from digrad.analysis.text import report as of_a_network

    changes = isinstance(result, TimetableAnalysis)
    report: Any = timetable_analysis.report if changes else of_a_network
    show(Text(f"{title}\n", style="bold"))
    show(report(result))
    if step is not None:
        show(traffic_text.report(step))
    if drawn is not None:
        show(f"\nfigure: {drawn}")


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
