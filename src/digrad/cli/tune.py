"""The command that finds each method's best step size."""

from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.cli.output import busy, show, warn
from digrad.cli.runs import (
    Checkpoint,
    Device,
    Resume,
    Trust,
    Workers,
    interruptible,
    summary_of_best,
)
from digrad.cli.selecting import read
from digrad.cli.trust import ask


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
    from digrad.answers.tuning import Grid
    from digrad.answers.tuning import tune as go
    from digrad.runs.experiment import load_experiment

    sizes = Grid.parse(grid)
    experiment = load_experiment(file, ["step_sizes=[1.0]", *(edits or ())])  # none is needed
    ask(experiment, file, trust)
    folder = out or Path("runs") / f"{experiment.name}-tuned"
    options: dict[str, Any] = {"device": device, "workers": workers}
    again = f"digrad tune {file} --out {folder} --grid {grid} --resume"
    with interruptible(again), busy(f"tuning {experiment.name}", long=True):
        options |= {"checkpoint_seconds": checkpoint, "resume": resume}
        tuning = go(experiment, folder, metric=metric, grid=sizes, **options)
    _say(tuning, len(sizes.sizes))
    show(f"run: {folder}; rounds: {folder}.tuning\n")
    summary_of_best(read([folder]), tuning.by.metric, "text", None)


def _say(tuning: Any, points: int) -> None:
    """Say what was tried and what was chosen."""
    rounds = next(iter(tuning.tried.values()))
    parts = ", ".join(f"{len(t.sizes)} for {t.steps:,} steps" for t in rounds)
    share = f"{100 * tuning.spent / tuning.sweep:.0f} % of the steps of a whole sweep"
    show(f"tried with seed {tuning.seed}, for each method on each network: {parts}; {share}")
    for best in tuning.best:
        show(f"  {best.algorithm} on {best.network}: {best.lr:g} of {points} step sizes")
        if best.edge:
            warn(f"  {best.algorithm} on {best.network}: {best.advice} with --grid")
