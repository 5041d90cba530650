"""The command that finds each method's best step size."""

from pathlib import Path
from typing import Annotated

import typer

from digrad.cli.output import show, warn
from digrad.cli.runs import (
    Checkpoint,
    Device,
    Resume,
    Trust,
    Workers,
    interruptible,
    print_best,
)
from digrad.cli.selecting import read
from digrad.cli.trust import ask_to_trust


def tune(
    file: Annotated[Path, typer.Argument(help="An experiment (TOML); `digrad init` writes one.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the final run [default: runs/NAME-tuned].")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="What is to be best at the end [default: the first recorded].")
    ] = "",
    grid: Annotated[
        str, typer.Option(metavar="LEAST:MOST:POINTS", help="Step sizes to choose from.")
    ] = "0.001:10:16",
    edits: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the experiment: problem.batch=16."),
    ] = None,
    device: Device = "cpu",
    resume: Resume = False,
    workers: Workers = None,
    checkpoint: Checkpoint = 5.0,
    trust: Trust = False,
) -> None:
    """Find each method's best step size, then compare the methods with seeds of their own.

    Step sizes of a grid run for a short while, the better half twice as long, and so on. Every
    method gets the same budget. The final run has the experiment's seeds, which chose nothing.

    Example: digrad tune experiment.toml --grid 0.001:1:16
    """
    from digrad.results.experiment import load_experiment
    from digrad.results.folder import RunFolder
    from digrad.runs.tuning import Grid, TuningFolders
    from digrad.runs.tuning import tune as go
    from digrad.show.progress import progress_bar

    sizes = Grid.parse(grid)
    experiment = load_experiment(file, ["lr=[1.0]", *(edits or ())])  # none is needed
    ask_to_trust(experiment, file, trust)
    folder = out or Path("runs") / f"{experiment.name}-tuned"
    if not resume:
        RunFolder(folder).check(experiment, resume=False)  # now, not after all rounds
    options = {"device": device, "workers": workers, "checkpoint_seconds": checkpoint}
    again = f"digrad tune {file} --out {folder} --grid {grid} --resume"
    with interruptible(again):
        place = TuningFolders(folder, resume, options, progress_bar)
        tuning = go(experiment, place, metric=metric, grid=sizes, device=device)
    show(str(tuning))
    for advice in tuning.advice:
        warn(f"  {advice} with --grid")
    show(f"run: {folder}; rounds: {folder}.tuning\n")
    print_best(read([folder]), tuning.by.metric, "text", None)
