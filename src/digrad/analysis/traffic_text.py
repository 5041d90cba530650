"""What a step sends, for people."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.base.errors import param
from digrad.base.text import number
from digrad.networks.traffic import Traffic


def report(step: Traffic) -> RenderableType:
    """Lay out messages, bytes and seconds of a step, and what it waits for."""
    table = Table.grid(padding=(0, 2))
    for key, text in _lines(step):
        table.add_row(Text(f"  {key}", style="green"), Text(text))
    return Group(Text("\nTraffic", style="bold"), table)


def _lines(step: Traffic) -> Iterator[tuple[str, str]]:
    counts = f"{step.pull_links:,} to pull, {step.push_links:,} to push"
    yield "messages", f"{step.links:,} a step ({counts}); {step.busiest_port} at the busiest port"
    if step.bytes_per_step is not None:
        yield "bytes", f"{number(step.bytes_per_step / 1e6, 4)} MB a step"
    if step.seconds_per_step is not None:
        parts = {"computing": step.compute, "latency": step.latency, "sending": step.transfer}
        told = " + ".join(f"{name} {number(t, 4)}" for name, t in parts.items() if t is not None)
        yield "seconds", f"{number(step.seconds_per_step, 4)} a step ({told})"
        yield "waits for", str(step.bottleneck)
    elif step.bytes_per_step is None:
        yield "seconds", f"unknown: {param('model_mb')} says how large a model is"
    else:
        yield "seconds", "unknown: no latency or bandwidth of a link is known"
    if step.cost is not None:
        yield "cost", f"{number(step.cost)} for the links in use"
    if step.unknown:
        yield "careful", f"{step.unknown} links lack a number: they are taken to be no limit"
