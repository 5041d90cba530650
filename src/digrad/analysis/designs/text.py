"""A design for people: before and after, side by side, and what else was compared."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.analysis.designs.forecast import MOST
from digrad.analysis.designs.measures import GOALS, CandidateNetwork
from digrad.base.text import number

if TYPE_CHECKING:
    from digrad.analysis.designs.designing import Design

MOST_NAMED = 12  # new links that are listed


def report(
    made: "Design", certified: dict[str, tuple[float | None, float | None]]
) -> RenderableType:
    """Lay out a design; ``certified`` are constants of the theory, before and after."""
    net = made.network
    parts: list[RenderableType] = [
        Text(f"for {made.task.goal}: {GOALS[made.task.goal]}\n"),
        _table(made, certified),
    ]
    if made.added:
        links = [f"{net.name(j)} -> {net.name(i)}" for j, i in made.added[:MOST_NAMED]]
        parts.append(Text(f"\nlinks worth adding, best first: {', '.join(links)}"))
    scores = ", ".join(f"{m.name} {_score(m)}" for m in made.others)
    parts.append(Text(f"\ncompared (less is better): {scores}", style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in made.notes]
    if any(_worse(pair) for pair in certified.values()):
        parts.append(Text(WHY_WORSE, style="dim"))
    return Group(*parts)


WHY_WORSE = (
    "note: some certified constants look worse after than before. They come from a proof whose "
    "steps are far smaller than those used here; the numbers above them are of S-PP itself."
)


def _worse(pair: tuple[float | None, float | None]) -> bool:
    before, after = pair
    return before is not None and (after is None or after > 1.01 * before)


def _table(
    made: "Design", certified: dict[str, tuple[float | None, float | None]]
) -> RenderableType:
    table = Table(box=None, padding=(0, 2), show_edge=False, header_style="dim")
    for name in ("", "before", "after", ""):
        table.add_column(name, justify="left" if name == "" else "right")
    for name, before, after, meaning in _rows(made):
        table.add_row(name, Text(before), Text(after, style="bold"), Text(meaning, style="dim"))
    for name, (was, now) in certified.items():
        table.add_row(name, number(was, 4), Text(number(now, 4)), Text("certified", style="dim"))
    return table


def _rows(made: "Design") -> Iterator[tuple[str, str, str, str]]:
    b, a = made.before, made.after

    def row(name: str, get: "object", meaning: str) -> tuple[str, str, str, str]:
        return name, str(get(b)), str(get(a)), meaning  # type: ignore[operator]

    bound = "" if made.lower_bound_J is None else f"at least {number(made.lower_bound_J, 4)} here"
    yield row("weights", lambda m: m.name, "")
    yield row("largest stable step", lambda m: number(m.stable_step, 4), "γ nπ L")
    yield row(
        "rate", lambda m: number(m.rate, 3), f"log a step, at γ nπ L ≤ {made.task.max_step:g}"
    )
    yield row("steps without noise", lambda m: _steps(m.forecast.steps), "to 1e-8, predicted")
    yield row("steps with noise", lambda m: _steps(m.forecast.noisy_steps), "to 1e-3, predicted")
    yield row("noise J", lambda m: number(m.J, 4), bound)
    yield row("lag", lambda m: number(m.lag, 3), "")
    yield row("nπ", lambda m: number(m.n_pi, 4), "divide SGD's step by it")
    yield row("messages a step", lambda m: f"{m.traffic.links:,}", "links, pull and push")
    yield row("busiest port", lambda m: str(m.traffic.busiest_port), "messages")
    if a.traffic.bytes_per_step is not None:
        yield row("MB a step", lambda m: number(m.traffic.bytes_per_step / 1e6, 4), "")
    if a.traffic.seconds_per_step is not None:
        yield row("seconds a step", lambda m: number(m.traffic.seconds_per_step, 4), "")
        yield row("waits for", lambda m: str(m.traffic.bottleneck), "")
    if a.traffic.cost is not None:
        yield row("cost", lambda m: number(m.traffic.cost), "of the links in use")


def _steps(steps: float | None) -> str:
    return f"> {MOST}" if steps is None else f"{steps:.0f}"


def _score(measured: CandidateNetwork) -> str:
    return f"{measured.score:.4g}" if isfinite(measured.score) else "does not contract"
