"""Groups of options that several commands share: dataclasses whose fields typer sees."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from digrad.base.errors import ParameterError
from digrad.cli import completion
from digrad.cli.output import check_figure, check_page


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: for typer, their fields stand in place of them."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if name not in groups:
            annotated = parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            options.append(annotated)
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = Parameter.empty if field.default is MISSING else field.default
            options.append(
                Parameter(
                    field.name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=kinds[field.name],
                )
            )

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        function(**values)

    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


@dataclass(frozen=True)
class GraphOptions:
    """Which graph, and what its links can carry."""

    seed: Annotated[int | None, typer.Option(help="Which graph of a random topology.")] = None
    push_graph: Annotated[
        str,
        typer.Option(
            help="Push over the `same` links, or over their `reverse` as in the paper.",
            autocompletion=completion.push_graphs,
        ),
    ] = "same"
    largest_component: Annotated[
        bool, typer.Option("--largest-component", help="Keep the largest strong part of a graph.")
    ] = False
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Read a file's links as two-way.")
    ] = False
    latency_attr: Annotated[
        str | None,
        typer.Option(
            help="Attribute or column of a file's links: latency in ms, or NAME:s, NAME:us."
        ),
    ] = None
    bandwidth_attr: Annotated[
        str | None,
        typer.Option(
            help="The same for bandwidth, in Mbit/s, or NAME:bit/s, NAME:Gbit/s, NAME:MB/s."
        ),
    ] = None
    cost_attr: Annotated[str | None, typer.Option(help="The same for the cost of a link.")] = None

    def of_files(self) -> dict[str, Any]:
        """Return what belongs to files: options of ``build``."""
        from digrad.networks.capacities import LinkAttributes

        named = self.latency_attr, self.bandwidth_attr, self.cost_attr
        return {
            "attributes": LinkAttributes(*named) if any(named) else None,
            "undirected": self.undirected,
            "largest_component": self.largest_component,
        }


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(GraphOptions):
    """One network: a topology with its parameters, or a file."""

    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A topology (`digrad list topologies`) or a graph or matrix file.",
            autocompletion=completion.topologies,
        ),
    ]
    push_file: Annotated[
        str | None,
        typer.Argument(
            metavar="C_FILE",
            help="The file of C, where the first one holds R.",
            show_default=False,
        ),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", "-n", help="Number of nodes of a topology [default: 16]."),
    ] = None
    param: Annotated[
        list[str] | None, typer.Option("--param", help="A topology's parameter, as key=value.")
    ] = None

    def build(self, make: Callable[..., Any], **more: Any) -> Any:
        """Make the network by ``build`` or ``build_any``."""
        named = {"push_file": self.push_file, "params": pairs(self.param or [])}
        options = {"seed": self.seed, "push_graph": self.push_graph, **named, **self.of_files()}
        return make(self.what, self.nodes, **options | more)


@dataclass(frozen=True)
class SettingOptions:
    """What is known of the problem and of the run."""

    lipschitz: Annotated[
        float, typer.Option("--L", help="Lipschitz constant of the gradients.")
    ] = 1.0
    sigma: Annotated[float, typer.Option(help="Standard deviation of a stochastic gradient.")] = 1.0
    delta_f: Annotated[
        float, typer.Option("--delta-f", help="f at the start minus its minimum.")
    ] = 1.0
    f0: Annotated[float, typer.Option("--F0", help="Mean squared gradient at the start.")] = 1.0
    steps: Annotated[int, typer.Option("--steps", "-T", help="Number of steps T.")] = 10_000

    def setting(self) -> Any:
        """Return them as the theory takes them."""
        from digrad.theory import Setting

        return Setting(self.lipschitz, self.sigma, self.delta_f, self.f0, self.steps)


@dataclass(frozen=True)
class LoadOptions:
    """What a step computes and sends."""

    model_mb: Annotated[float | None, typer.Option("--model-mb", help="Megabytes of a model.")] = (
        None
    )
    compute_ms: Annotated[
        float, typer.Option("--compute-ms", help="Milliseconds that a gradient takes.")
    ] = 0.0
    port_mbit: Annotated[
        float | None,
        typer.Option("--port-mbit", help="What a node sends or receives at most, in Mbit/s."),
    ] = None

    def load(self) -> Any:
        """Return it as an object of the networks."""
        from digrad.networks.traffic import Load

        return Load(self.model_mb, self.compute_ms, self.port_mbit)


@dataclass(frozen=True)
class OutputOptions:
    """Where results go; what cannot be written is refused before the work starts."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    figure: Annotated[Path | None, typer.Option(help="Write a picture (PNG, SVG or PDF).")] = None

    def __post_init__(self) -> None:
        check_figure(self.figure)


@dataclass(frozen=True)
class PageOptions(OutputOptions):
    """A page as well."""

    html: Annotated[Path | None, typer.Option("--html", help="Write a page to look at.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_page(self.html)


def pairs(texts: list[str]) -> dict[str, str]:
    """Split key=value options."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ParameterError(
                f"--param takes key=value, got {text!r}", hint="for example --param p=0.3"
            )
        found[key.strip().replace("-", "_")] = value.strip()
    return found
