"""Runs as they are now: a list of folders, and one run with its curves so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.base.errors import DigradError, param
from digrad.base.text import duration, number, size
from digrad.results.run_state import RunAnnouncements, RunState, state_of
from digrad.results.trials import Curve, Results
from digrad.show.braille import COLOURS, draw, mark_of

MOST_PANELS = 4  # networks that a terminal has room for
STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "damaged": "red"}


@dataclass(frozen=True)
class RunView:
    """What is seen of a run at one moment."""

    run: RunState
    told: RunAnnouncements | None
    results: Results | None  # none before the first checkpoint

    @classmethod
    def of(cls, folder: str | Path) -> "RunView":
        """Look at a run folder; nothing of the user's own is loaded.

        Raises:
            ParameterError: if there is no run in it.
        """
        run = state_of(folder)
        told = RunAnnouncements.read(run.path) if run.state == "running" else None
        try:
            results = Results.read(run.path)
        except DigradError:  # nothing yet, or damaged, which the state says
            results = None
        return cls(run, told, results)

    @property
    def under_way(self) -> bool:
        return self.run.state == "running"

    @property
    def line(self) -> str:
        """How far it is, in a line."""
        run = self.run
        if run.experiment is None:
            return f"{run.path}: {run.state}: {run.why}"
        done = f"{100 * run.done // run.total} % of {run.total:,} trial-steps"
        ahead = f", {self.told.ahead}" if self.told and self.told.ahead else ""
        doing = f"; {self.told.job}" if self.told else ""
        return f"{run.experiment.name}: {run.state}, {done}{ahead}{doing}"

    def leaders(self, metric: str) -> dict[str, list[Curve]]:
        """Return each method's best curve so far, by network."""
        found: dict[tuple[str, str], list[Curve]] = {}
        for key, curve in self.results.curves(metric).items() if self.results else ():
            found.setdefault((key.network, key.algorithm), []).append(curve)
        panels: dict[str, list[Curve]] = {}
        sign = self.results.metric(metric).sign if self.results else 1
        for (network, _), curves in found.items():
            panels.setdefault(network, []).append(min(curves, key=lambda c: _rank(c, sign)))
        return panels


def _rank(curve: Curve, sign: int) -> tuple[int, float]:
    """Return how good a curve is at its last record, the best first."""
    last = curve.values[:, -1]
    last = last[np.isfinite(last)]
    return curve.diverged, sign * float(last.mean()) if len(last) else np.inf


def as_text(sight: RunView, metric: str = "", wide: int = 80) -> RenderableType:
    """Lay out what is seen for a terminal: a line, a bar, the curves of each network."""
    parts: list[RenderableType] = [Text(sight.line, style="bold"), _bar(sight, wide)]
    if sight.results is None or not sight.results.metrics:
        return Group(*parts, Text("nothing recorded yet"))
    metric = metric or sight.results.metrics[0]
    panels = sight.leaders(metric)
    log = bool(sight.results.metric(metric).log)
    for network, curves in list(panels.items())[:MOST_PANELS]:
        parts += [Text(f"\n{metric.replace('_', ' ')} on {network}", style="bold")]
        lines = [(curve.steps.astype(np.float64), curve.mean) for curve in curves]
        parts += [draw(lines, log=log, wide=wide - 4, high=8), _legend(curves)]
    if len(panels) > MOST_PANELS:
        parts.append(
            Text(f"\nand {len(panels) - MOST_PANELS} more networks: see {param('page', True)}")
        )
    return Group(*parts)


def _bar(sight: RunView, wide: int) -> Text:
    """Return how much is done, as a bar: it is there where there are no colours, too."""
    room = max(10, wide - 4)
    full = int(room * min(1.0, sight.run.done / sight.run.total)) if sight.run.total else 0
    return Text("━" * full, style="cyan").append("╌" * (room - full), style="dim")


def _legend(curves: list[Curve]) -> Table:
    out = Table.grid(padding=(0, 2))
    for k, curve in enumerate(curves):
        mark = Text(f"━{mark_of(k)}━", style=COLOURS[k % len(COLOURS)])
        last = curve.values[:, -1]
        mean = float(np.nanmean(last)) if np.isfinite(last).any() else np.nan
        at = f"step {int(curve.steps[-1]):,}"
        fell = f"{curve.diverged} diverged" if curve.diverged else ""
        name = f"{curve.key.algorithm}, γ = {curve.key.lr:g}"
        out.add_row(mark, *map(Text, (name, number(mean, 4), at, fell)))
    return out


def list_states(found: Sequence[RunState]) -> Table:
    """Lay out a row per run folder."""
    out = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    for name in ("folder", "state", "trials", "done", "size", "changed", "last"):
        side = "right" if name in ("trials", "done", "size") else "left"
        whole = name != "last"  # which is the one to break where there is little room
        out.add_column(name, justify=side, no_wrap=whole)  # type: ignore[arg-type]
    for run in found:
        ago = f"{duration(time() - run.changed)} ago"
        state = Text(run.state, style=STYLES[run.state])
        trials = f"{run.trials:,}/{run.experiment.trials:,}" if run.experiment else "-"
        share = f"{100 * run.done // run.total} %" if run.total else "-"
        last = run.why or "nothing recorded yet"
        if run.metric and not run.why:
            last = f"{run.metric.replace('_', ' ')} {number(run.value, 3)} ({run.best})"
        rest = (trials, share, size(run.size), ago, last)
        out.add_row(Text(str(run.path)), state, *map(Text, rest))
    return out
