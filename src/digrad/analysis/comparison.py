"""Topologies side by side, and how they scale."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.analysis.network_analysis import Analysis, analyze
from digrad.base.errors import DigradError, ParameterError, UnknownNameError, lookup, message
from digrad.base.text import number
from digrad.networks import TOPOLOGIES, build
from digrad.networks.registry import takes_seed
from digrad.theory import Setting


def compare(
    names: Sequence[str],
    n: int,
    setting: Setting | None = None,
    *,
    weights: str | None = None,
    push_graph: Any = "same",
    seed: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Analyze several topologies at one n.

    Returns the rows, shortest transient time first, and why some topologies do not exist at
    this n or under these weights.
    """
    rows, refused = [], {}
    for name in dict.fromkeys(names):
        topology = lookup(TOPOLOGIES, name, "topology")
        try:
            net = build(
                name,
                n,
                seed=seed if takes_seed(topology) else None,
                weights=weights,
                push_graph=push_graph,
            )
        except UnknownNameError:
            raise
        except DigradError as error:
            refused[name] = str(error).splitlines()[0]
            continue
        rows.append(_row(name, analyze(net, setting)))
    rows.sort(key=lambda row: (row["transient_time"] is None, row["transient_time"] or 0))
    return rows, refused


def scaling(
    names: Sequence[str], largest: int, setting: Setting | None = None, **options: Any
) -> dict[str, list[tuple[int, float]]]:
    """Return (n, transient time) of every topology for n = 2, 4, 8, ... up to ``largest``.

    Raises:
        ParameterError: if none of them has a transient time above 0, so that there is no curve.
    """
    sizes = [2**k for k in range(1, max(largest, 2).bit_length())]
    sizes = [n for n in sizes if n < largest] + [largest]
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for n in sizes:
        rows, _ = compare(names, n, setting, **options)
        for row in rows:
            if row["transient_time"] is not None:
                curves[row["topology"]].append((n, row["transient_time"]))
    if not any(time > 0 for curve in curves.values() for _, time in curve):
        raise ParameterError(
            message(
                f"no transient time above 0 up to n = {largest}: there is nothing to draw",
                hint="drop --figure, or take a larger n and sigma > 0",
            )
        )
    return curves


def table(rows: list[dict[str, Any]], refused: dict[str, str]) -> RenderableType:
    """Lay the comparison out for a terminal."""
    out = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    out.add_column("topology")
    for column in ("nπ", "Q/(nπ²)", "worth", "transient time", "largest degree", "messages"):
        out.add_column(column, justify="right")
    for row in rows:
        out.add_row(
            row["topology"],
            number(row["n_pi"]),
            number(row["speedup_ratio"]),
            number(row["worth"], 4),
            number(row["transient_time"]),
            str(row["largest_degree"]),
            f"{row['messages']:,}",
        )
    notes = [Text(f"  {name}: {why}", style="dim") for name, why in refused.items()]
    head = [Text("\nnot compared:", style="dim")] if notes else []
    return Group(out, *head, *notes)


def _row(name: str, a: Analysis) -> dict[str, Any]:
    full = a.to_dict()
    keys = ("n_pi", "speedup_ratio", "worth", "transient_time", "largest_degree", "messages")
    return {"topology": name, **{key: full[key] for key in keys}}
