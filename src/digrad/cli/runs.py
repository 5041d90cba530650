"""Commands about runs: init, run, plot, table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.base.errors import DigradError, ParameterError, message
from digrad.cli.output import check_figure, show, warn
from digrad.cli.trust import ask

Out = Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/NAME].")]
Device = Annotated[str, typer.Option(help="Where the nodes live: cpu, cuda, cuda:1, ...")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that share the work [default: as many as pay].", min=1),
]
Checkpoint = Annotated[
    float, typer.Option("--checkpoint", help="Seconds from one checkpoint to the next.", min=0)
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the classes of your own that the file names.")
]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")]
Metric = Annotated[
    str,
    typer.Option(help="gradient_norm, loss, gap, consensus, accuracy ... [default: the first]"),
]


def init(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("experiment.toml"),
) -> None:
    """Write a commented example of an experiment.

    Example: digrad init mine.toml
    """
    from digrad.base.atomic import write_whole
    from digrad.runs.example import EXAMPLE

    if file.exists():
        raise ParameterError(message(f"{file} exists", hint="name another file"))
    write_whole(file, EXAMPLE.encode())
    show(f"wrote {file}; run it with: digrad run {file}")


def run(
    file: Annotated[Path, typer.Argument(help="An experiment (TOML); `digrad init` writes one.")],
    out: Out = None,
    device: Device = "cpu",
    resume: Resume = False,
    workers: Workers = None,
    checkpoint: Checkpoint = 5.0,
    trust: Trust = False,
) -> None:
    """Run an experiment: networks x algorithms x step sizes x seeds.

    Ctrl-C keeps what is done; --resume goes on to the same bits as an uninterrupted run.

    Example: digrad run experiment.toml --out runs/first
    """
    from digrad.runs.experiment import load_experiment

    experiment = load_experiment(file)
    ask(experiment, file, trust)
    folder = out or Path("runs") / experiment.name
    with interruptible(f"digrad run {file} --out {folder} --resume{_trusted(experiment)}"):
        options = {"workers": workers, "checkpoint_seconds": checkpoint}
        execute(experiment, folder, device, resume, **options)
    summary([folder])


def plot(
    folders: Folders,
    out: Annotated[
        Path | None, typer.Option(help="PNG, SVG or PDF [default: DIR/METRIC.png].")
    ] = None,
    metric: Metric = "",
    x: Annotated[str, typer.Option(help="step, time, rounds, messages or bytes.")] = "step",
    linear: Annotated[bool, typer.Option("--linear", help="A linear axis.")] = False,
    title: Annotated[str, typer.Option(help="A title above the panels.")] = "",
) -> None:
    """Draw curves: mean and band over seeds, one panel per network.

    Example: digrad plot runs/first --metric loss --out loss.pdf
    """
    from digrad.runs.results import Results
    from digrad.show.figures import save_figure
    from digrad.show.figures.curves import draw_curves

    trace = Results.read(*folders)
    metric = metric or default_metric(trace)
    target = out or folders[0] / f"{metric}.png"
    check_figure(target)
    figure = draw_curves(trace, metric, x=x, log=False if linear else None, title=title)
    show(f"figure: {save_figure(figure, target)}")
    _warn_unfinished(folders)


def table(
    folders: Folders,
    target: Annotated[float | None, typer.Option(help="Also steps to reach this value.")] = None,
    metric: Metric = "",
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV too.")] = None,
) -> None:
    """Print final values, and steps to reach a target.

    Example: digrad table runs/first --target 0.05
    """
    summary(folders, metric, target, csv)


def default_metric(trace: Any) -> str:
    """Return the first metric that was recorded: the gradient norm, where it was."""
    recorded = list(trace.metrics)
    return "gradient_norm" if "gradient_norm" in recorded or not recorded else str(recorded[0])


def execute(experiment: Any, folder: Path, device: str, resume: bool, **options: Any) -> None:
    """Run with a progress bar and say where the results are."""
    from digrad.runs.execute import run as go
    from digrad.show.progress import progress_bar

    with progress_bar(experiment) as report:
        go(experiment, folder, device=device, resume=resume, progress=report, **options)
    show(f"run: {folder}")


def summary(
    folders: list[Path],
    metric: str = "",
    target: float | None = None,
    csv: Path | None = None,
) -> None:
    """Print tables of what runs reached."""
    from digrad.runs.results import Results
    from digrad.show.tables import final_values, render, steps_to, to_csv

    trace = Results.read(*folders)
    metric = metric or default_metric(trace)
    rows = final_values(trace)
    show(render(rows), width=160)
    if target is not None:
        show(f"\nsteps until {metric} reaches {target:g}:")
        rows = steps_to(trace, metric, target)
        show(render(rows), width=160)
    _warn_unfinished(folders)
    if csv is not None:
        show(f"table: {to_csv(rows, csv)}")


def _warn_unfinished(folders: list[Path]) -> None:
    """Say on stderr which runs have not come to their end."""
    from digrad.runs.experiment import load_experiment
    from digrad.runs.results import Results

    for folder in folders:
        try:
            experiment = load_experiment(folder / "experiment.toml")
        except DigradError:  # a folder of plain metrics promises nothing
            continue
        done = Results.read(folder).finished(experiment.steps)
        if done < experiment.trials:
            warn(
                f"unfinished: {done} of {experiment.trials} trials in {folder} have come to step "
                f"{experiment.steps:,}; values are those so far. Go on with: digrad run "
                f"{folder / 'experiment.toml'} --out {folder} --resume{_trusted(experiment)}"
            )


def _trusted(experiment: Any) -> str:
    return " --trust" if experiment.own_names else ""


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """Turn Ctrl-C into exit status 130 and the command that goes on."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; what is done is kept. Go on with: {command}")
        raise typer.Exit(130) from None
