"""Options about links that several commands share: what they carry, and what a step costs."""

from typing import Annotated, Any

import typer

LatencyAttr = Annotated[
    str | None,
    typer.Option(help="Attribute or column of a file's links: latency in ms, or NAME:s, NAME:us."),
]
BandwidthAttr = Annotated[
    str | None,
    typer.Option(help="The same for bandwidth, in Mbit/s, or NAME:bit/s, NAME:Gbit/s, NAME:MB/s."),
]
CostAttr = Annotated[str | None, typer.Option(help="The same for the cost of a link.")]
ModelMB = Annotated[float | None, typer.Option("--model-mb", help="Megabytes of a model.")]
ComputeMS = Annotated[
    float, typer.Option("--compute-ms", help="Milliseconds that a gradient takes.")
]
PortMbit = Annotated[
    float | None,
    typer.Option("--port-mbit", help="What a node sends or receives at most, in Mbit/s."),
]


def attributes(latency: str | None, bandwidth: str | None, cost: str | None) -> Any:
    """Say which attributes of a file are which; none if nothing was named."""
    from digrad.networks.capacities import LinkAttributes

    return LinkAttributes(latency, bandwidth, cost) if latency or bandwidth or cost else None


def tell_notes(network: Any, what: str) -> None:
    """Print, beside the output, what was left out when a network was read."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    for note in network.notes:
        console.print(Text(f"note: {what}: {note}", style="dim"), soft_wrap=True)
