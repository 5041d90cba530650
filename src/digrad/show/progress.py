"""How far a run is, on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from digrad.base.errors import printable
from digrad.runs.experiment import Experiment


@contextmanager
def progress_bar(experiment: Experiment) -> Iterator[Any]:
    """Show trial-steps done, their rate and the time left; nothing when not on a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} trial-steps{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal
    done: dict[int, int] = {}  # trial-steps of each job
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("starting", total=experiment.trials * experiment.steps, rate="")

        def report(job: Any, t: int) -> None:
            done[job.index] = t * len(job.trials)
            speed = bar.tasks[0].speed
            bar.update(
                task,
                description=printable(f"{job.algorithm} on {job.network}"),
                completed=sum(done.values()),
                rate=f", {speed:,.0f}/s" if speed else "",
            )

        yield report
