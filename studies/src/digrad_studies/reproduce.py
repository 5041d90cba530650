"""The command that repeats the paper's figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.base.errors import ParameterError, lookup
from digrad.cli.completion import names_starting_with
from digrad.cli.output import show
from digrad.cli.report import write_network_page, write_run_page
from digrad.cli.runs import Device, Out, Resume, execute, interruptible, plot, print_summary
from digrad.cli.selecting import read
from digrad_studies import measured


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    what: str
    quick: bool
    folder: Path
    device: str
    resume: bool
    data_dir: str
    text: str = ""

    @property
    def command(self) -> str:
        """The command that was given."""
        quick, data = " --quick" * self.quick, f" --data-dir {self.data_dir}" * bool(self.data_dir)
        data += f" --text {self.text}" * bool(self.text)
        return f"digrad reproduce {self.what}{quick}{data} --out {self.folder}"

    @property
    def again(self) -> str:
        """The command that goes on after an interruption."""
        return f"{self.command} --resume"

    @property
    def page(self) -> Path:
        """Where the report goes."""
        return self.folder / "report.html"


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="networks (Figure 1), logistic (Figure 2), mnist (Figure 3), fashion-mnist, "
            "robustness, speedup, practice, cifar, language, asynchrony or compression.",
            metavar="WHAT",
            autocompletion=lambda incomplete: names_starting_with(FIGURES, incomplete),
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, in minutes at most.")] = False,
    out: Out = None,
    device: Device = "cpu",
    data_dir: Annotated[
        str, typer.Option(help="Where the image files are [default: $DIGRAD_DATA, or the cache].")
    ] = "",
    text: Annotated[str, typer.Option(help="The text file that language learns from.")] = "",
    resume: Resume = False,
) -> None:
    """Repeat a figure of the paper, measure what its theorem says, or train deep models.

    Example: digrad reproduce logistic --quick
    """
    make = lookup(FIGURES, what, "figure")
    folder = out or Path("runs") / (f"{what}-quick" if quick else what)
    make(Request(what, quick, folder, device, resume, data_dir, text))
    if quick and what != "networks":
        show(
            "quick: much shorter than the figure itself, so methods may come in another order here"
        )


def _networks(order: Request) -> None:
    from digrad.analysis import analyze
    from digrad.networks import erdos_renyi, multi_sub_ring, weigh
    from digrad_studies.networks import networks
    from digrad_studies.setting import PUSH_GRAPH

    for path in networks(order.folder):
        show(f"figure: {path}")
    graphs = {
        "Erdos-Renyi, n = 8, p = 0.1": erdos_renyi(8, 0.1),
        "Multi. Sub-Ring, n = 8": multi_sub_ring(8),
    }
    found = {name: analyze(weigh(g, push_graph=PUSH_GRAPH)) for name, g in graphs.items()}
    show(f"report: {write_network_page(found, order.page)}")


def _logistic(order: Request) -> None:
    from digrad_studies.logistic import logistic

    with interruptible(order.again):
        execute(logistic(order.quick), order.folder, order.device, order.resume)
    print_summary(read([order.folder]))
    plot([order.folder])
    write_run_page([order.folder], order.page, again=order.command)


def _mnist(order: Request) -> None:
    from digrad_studies.mnist import mnist

    with interruptible(order.again):
        experiment = mnist(order.quick, order.data_dir, order.what)
        execute(experiment, order.folder, order.device, order.resume)
    print_summary(read([order.folder]))
    for metric in ("loss", "test_accuracy"):
        plot([order.folder], metric=metric)
    write_run_page([order.folder], order.page, again=order.command)


def _robustness(order: Request) -> None:
    from digrad.results.trials import Results
    from digrad.show.figures import save_figure
    from digrad_studies.mnist import nodes, step_sizes
    from digrad_studies.robustness_figure import draw_robustness

    by_size = step_sizes(order.quick, order.data_dir)
    by_nodes = nodes(order.quick, order.data_dir)
    folders = [order.folder / e.name for e in (by_size, *by_nodes)]
    with interruptible(order.again):
        for experiment, folder in zip((by_size, *by_nodes), folders, strict=True):
            begun = (folder / "experiment.toml").exists()
            execute(experiment, folder, order.device, order.resume and begun)
    print_summary(read(folders))
    sizes, *others = (Results.read(folder) for folder in folders)
    counts = [experiment.networks[0].n for experiment in by_nodes]
    figure = draw_robustness(sizes, dict(zip(counts, others, strict=True)))
    for suffix in (".png", ".pdf"):
        show(f"figure: {save_figure(figure, order.folder / f'robustness{suffix}')}")
    shown = [order.folder / "robustness.png"]
    write_run_page(folders, order.page, again=order.command, pictures=shown)


def _compression(order: Request) -> None:
    from digrad.results.trials import Results
    from digrad.show.figures import save_figure
    from digrad.show.tables import render
    from digrad_studies.compression import bytes_to, compression, target_of
    from digrad_studies.compression_figure import draw_compression

    with interruptible(order.again):
        execute(compression(order.quick), order.folder, order.device, order.resume)
    results = Results.read(order.folder)
    target = target_of(results)
    show(f"bytes sent by all nodes until the gradient norm reaches {target:.3g}:")
    show(render(bytes_to(results, target)), width=160)
    figure = draw_compression(results, target)
    for suffix in (".png", ".pdf"):
        show(f"figure: {save_figure(figure, order.folder / f'compression{suffix}')}")
    shown = [order.folder / "compression.png"]
    write_run_page([order.folder], order.page, again=order.command, pictures=shown)


def _cifar(order: Request) -> None:
    from digrad_studies.deep import EPOCH, cifar

    experiments = cifar(order.quick, order.data_dir)
    folders = [order.folder / e.name for e in experiments]
    with interruptible(order.again):
        for experiment, folder in zip(experiments, folders, strict=True):
            begun = (folder / "experiment.toml").exists()
            execute(experiment, folder, order.device, order.resume and begun)
    print_summary(read(folders))
    counted = ("step", 1) if order.quick else ("epoch", 1 / EPOCH)
    for x in ("step", "bytes"):
        for folder in folders:
            picture = folder / f"test_accuracy-{x}.png"
            _drawn(folder, picture, "test_accuracy", x=x, counted=counted, log=False)
    pictures = [folder / f"test_accuracy-{x}.png" for folder in folders for x in ("step", "bytes")]
    write_run_page(folders, order.page, again=order.command, pictures=pictures)


def _drawn(folder: Path, picture: Path, metric: str, **look: Any) -> None:
    from digrad.show.figures import draw_curves, save_figure

    show(f"figure: {save_figure(draw_curves(read([folder]), metric, **look), picture)}")


def _language(order: Request) -> None:
    from digrad_studies.deep import language, tokens_of_a_step

    if not order.text:
        what = "language learns from a text file, and there is none"
        raise ParameterError(what, hint="digrad reproduce language --text FILE")
    experiment = language(order.text, order.quick)
    with interruptible(order.again):
        execute(experiment, order.folder, order.device, order.resume)
    print_summary(read([order.folder]))
    counted = "tokens", tokens_of_a_step(experiment)
    _drawn(order.folder, order.folder / "test_loss.png", "test_loss", counted=counted)
    write_run_page([order.folder], order.page, again=order.command)


FIGURES: dict[str, Callable[[Request], None]] = {
    "networks": _networks,
    "logistic": _logistic,
    "mnist": _mnist,
    "fashion-mnist": _mnist,
    "robustness": _robustness,
    "speedup": measured.speedup,
    "practice": measured.practice,
    "cifar": _cifar,
    "language": _language,
    "asynchrony": measured.asynchrony,
    "compression": _compression,
}
