"""The command that repeats the paper's figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from digrad.cli.output import show
from digrad.cli.runs import Device, Out, Resume, execute, interruptible, plot, summary
from digrad.errors import lookup


@dataclass(frozen=True)
class Order:
    """What the user asked for."""

    what: str
    quick: bool
    folder: Path
    device: str
    resume: bool

    @property
    def again(self) -> str:
        """The command that goes on after an interruption."""
        flags = f"{' --quick' if self.quick else ''} --out {self.folder} --resume"
        return f"digrad reproduce {self.what}{flags}"


def reproduce(
    what: Annotated[str, typer.Argument(help="networks (Figure 1) or logistic (Figure 2).")],
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, within a minute.")] = False,
    out: Out = None,
    device: Device = "cpu",
    resume: Resume = False,
) -> None:
    """Repeat a figure of the paper.

    Example: digrad reproduce logistic --quick
    """
    make = lookup(FIGURES, what, "figure")
    folder = out or Path("runs") / (f"{what}-quick" if quick else what)
    make(Order(what, quick, folder, device, resume))


def _networks(order: Order) -> None:
    from digrad.reproduction.networks import networks

    for path in networks(order.folder):
        show(f"figure: {path}")


def _logistic(order: Order) -> None:
    from digrad.reproduction.logistic import logistic

    with interruptible(order.again):
        execute(logistic(order.quick), order.folder, order.device, order.resume)
    summary([order.folder])
    plot([order.folder])


FIGURES: dict[str, Callable[[Order], None]] = {"networks": _networks, "logistic": _logistic}
