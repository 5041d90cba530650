"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from digrad.base.errors import printable
from digrad.base.text import duration
from digrad.runs.experiment import Experiment
from digrad.runs.progress import Meter, Told

FIRST, THEN = 10.0, 30.0  # seconds until the first line, and from each to the next

Report = Callable[[Any, int], None]


@contextmanager
def progress_bar(experiment: Experiment) -> Iterator[Report]:
    """Show how much is done and the time left, on stderr: a bar, or lines where it is piped."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lines(experiment)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} trial-steps{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    meter = Meter(experiment)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=experiment.trials * experiment.steps, rate="")

        def report(job: Any, t: int) -> None:
            told, speed = meter.at(job, t), bar.tasks[0].speed
            rate = f", {speed:,.0f}/s" if speed else ""
            bar.update(task, description=printable(told.job), completed=told.done, rate=rate)

        yield report


def lines(experiment: Experiment, now: Callable[[], float] = monotonic) -> Report:
    """Return what prints a line now and then; a run of some seconds prints none."""
    meter, due = Meter(experiment, now), now() + FIRST

    def report(job: Any, t: int) -> None:
        nonlocal due
        told = meter.at(job, t)
        if now() >= due and told.done < told.total:
            due = now() + THEN
            print(printable(line(told)), file=sys.stderr, flush=True)

    return report


def line(told: Told) -> str:
    """Say how far a run is.

    >>> line(Told(1200, 4000, 65.0, "S-PP on ring"))
    '30 % done (1,200 of 4,000 trial-steps), about 65 s left; S-PP on ring'
    """
    left = f", about {duration(told.left)} left" if told.left is not None else ""
    share = f"{100 * told.done // told.total} % done"
    return f"{share} ({told.done:,} of {told.total:,} trial-steps){left}; {told.job}"
