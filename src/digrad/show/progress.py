"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from digrad.base.errors import printable
from digrad.results.experiment import Experiment
from digrad.results.run_state import ProgressMeter, RunAnnouncements

FIRST, THEN = 10.0, 30.0  # seconds until the first line, and from each to the next


@contextmanager
def progress_bar(
    experiment: Experiment, now: Callable[[], float] = monotonic
) -> Iterator[ProgressMeter]:
    """Show how much is done and the time left, on stderr: a bar, or lines where it is piped."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lines(experiment, now)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} trial-steps{task.fields[rate]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        total = experiment.trials * experiment.steps
        task = bar.add_task("starting", total=total, rate="", left="")

        def show(told: RunAnnouncements) -> None:
            speed = bar.tasks[0].speed
            rate = f", {speed:,.0f}/s" if speed else ""
            what = printable(told.job)
            bar.update(task, description=what, completed=told.done, rate=rate, left=told.ahead)

        yield ProgressMeter(experiment, show, now)


def lines(experiment: Experiment, now: Callable[[], float] = monotonic) -> ProgressMeter:
    """Return what prints a line now and then; a run of some seconds prints none."""
    due = now() + FIRST

    def show(told: RunAnnouncements) -> None:
        nonlocal due
        if now() >= due and told.done < told.total:
            due = now() + THEN
            print(printable(line(told)), file=sys.stderr, flush=True)

    return ProgressMeter(experiment, show, now)


def line(told: RunAnnouncements) -> str:
    """Say how far a run is.

    >>> line(RunAnnouncements(1200, 4000, 65.0, "S-PP on ring"))
    '30 % done (1,200 of 4,000 trial-steps), about 65 s left; S-PP on ring'
    """
    left = f", {told.ahead}" if told.ahead else ""
    share = f"{100 * told.done // told.total} % done"
    return f"{share} ({told.done:,} of {told.total:,} trial-steps){left}; {told.job}"
