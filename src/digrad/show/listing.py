"""Run folders as a table: what has become of each."""

from collections.abc import Sequence
from time import time

from rich.table import Table
from rich.text import Text

from digrad.base.text import duration, number, size
from digrad.results.run_state import RunState

STYLES = {"finished": "green", "running": "cyan", "interrupted": "yellow", "damaged": "red"}


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
        rest = (_trials(run), _share(run), size(run.size), ago, _last(run))
        out.add_row(Text(str(run.path)), state, *map(Text, rest))
    return out


def _trials(run: RunState) -> str:
    return f"{run.trials:,}/{run.experiment.trials:,}" if run.experiment else "-"


def _share(run: RunState) -> str:
    return f"{100 * run.done // run.total} %" if run.total else "-"


def _last(run: RunState) -> str:
    """Say the best last value, or what is wrong."""
    if run.why or not run.metric:
        return run.why or "nothing recorded yet"
    return f"{run.metric.replace('_', ' ')} {number(run.value, 3)} ({run.best})"
