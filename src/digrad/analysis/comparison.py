"""Networks side by side, and how topologies scale."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.analysis.designs import design
from digrad.analysis.network_analysis import Analysis, analyze
from digrad.analysis.timetable_analysis import TimetableAnalysis
from digrad.base.errors import (
    DigradError,
    FileFormatError,
    ParameterError,
    UnknownNameError,
    lookup,
    param,
)
from digrad.base.text import number
from digrad.networks import TIMETABLES, TOPOLOGIES, AnyNetwork, Network, build_any
from digrad.networks.registry import as_network, is_file, takes_seed
from digrad.networks.traffic import Load, traffic
from digrad.theory import Setting

KEYS = ("n_pi", "speedup_ratio", "worth", "transient_time", "largest_degree", "messages")
LAST = float("inf")  # where what is not known is sorted
OWN = (".npz", ".npy", ".mtx")  # files that name no attributes of links
WeightNames = str | Sequence[str] | None


class NetworkLabel(NamedTuple):
    """What a table calls a network."""

    topology: str
    weights: str | None = None  # where several weights are compared
    own_size: bool = False  # a file, or an object: it has its nodes, whatever n is

    def __str__(self) -> str:
        return self.topology if self.weights is None else f"{self.topology}, {self.weights}"


def compare(
    networks: Mapping[NetworkLabel, AnyNetwork],
    setting: Setting | None = None,
    load: Load | None = None,
) -> list[dict[str, Any]]:
    """Analyze networks, and return a row for each; the one expected to learn best comes first."""
    rows = []
    for label, net in networks.items():
        own: dict[str, Any] = {"n": net.n} if label.own_size else {}
        own |= {} if label.weights is None else {"weights": label.weights}
        rows.append(_row(label.topology, analyze(net, setting)) | own | _costs(net, load))
    rows.sort(key=_outlook)
    return rows


def _outlook(row: dict[str, Any]) -> list[float]:
    """Return what rows are sorted by: what is expected, then what is certified, then the paper."""
    known = (_ratio(row), row.get("transient_certified"), row["transient_time"])
    return [LAST if value is None else value for value in known]


def _ratio(row: dict[str, Any]) -> float | None:
    expected = row.get("expected")
    return None if expected is None else float(expected["ratio"])


def make_networks(
    names: Sequence[str],
    n: int,
    *,
    weights: WeightNames = None,
    push_graph: Any = "same",
    seed: int | None = None,
    **files: Any,
) -> tuple[dict[NetworkLabel, AnyNetwork], dict[str, str]]:
    """Make topologies with n nodes, and files as they are, each under all the weights.

    ``files`` are options of ``build`` that belong to files. Returns the networks, and why some do
    not exist at this n or under these weights.
    """
    schemes = [weights] if isinstance(weights, str | None) else list(weights)
    networks, refused = dict[NetworkLabel, AnyNetwork](), dict[str, str]()
    for name, scheme in product(dict.fromkeys(names), dict.fromkeys(schemes)):
        shown = None if isinstance(weights, str) else scheme
        label = NetworkLabel(name, shown, is_file(name))
        try:
            networks[label] = _network(name, n, scheme, push_graph, seed, files)
        except (UnknownNameError, FileFormatError):
            raise
        except DigradError as error:
            refused[str(label)] = str(error).splitlines()[0]
    return networks, refused


def _network(
    name: str,
    n: int,
    weights: str | None,
    push_graph: Any,
    seed: int | None,
    files: dict[str, Any],
) -> AnyNetwork:
    """Make one of the networks; what belongs to files or to random graphs goes nowhere else."""
    if weights == "designed":
        usual = _network(name, n, None, push_graph, seed, files)
        return design(as_network(usual), seed=seed or 0).network
    if is_file(name):
        if Path(name).suffix.lower() in OWN:
            files = {}
        return build_any(name, weights=weights, push_graph=push_graph, **files)
    drawn = takes_seed(lookup({**TOPOLOGIES, **TIMETABLES}, name, "topology"))
    own = seed if drawn else None
    return build_any(name, n, seed=own, weights=weights, push_graph=push_graph)


def scaling(
    names: Sequence[str], largest: int, setting: Setting | None = None, **options: Any
) -> dict[str, list[tuple[int, float]]]:
    """Return (n, transient time) of every topology for n = 2, 4, 8, ... up to ``largest``.

    Raises:
        ParameterError: if none of them has a transient time above 0, so that there is no curve.
    """
    for name in filter(is_file, names):
        hint = f"drop {param('figure')}, or name topologies alone"
        raise ParameterError(f"{name} has one size, so it does not scale", hint=hint)
    sizes = [2**k for k in range(1, max(largest, 2).bit_length())]
    sizes = [n for n in sizes if n < largest] + [largest]
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for n in sizes:
        networks, _ = make_networks(names, n, **options)
        for row in compare(networks, setting):
            if row["transient_time"] is not None:
                curves[row["topology"]].append((n, row["transient_time"]))
    if not any(time > 0 for curve in curves.values() for _, time in curve):
        raise ParameterError(
            f"no transient time above 0 up to n = {largest}: there is nothing to draw",
            hint=f"drop {param('figure')}, or take a larger n and sigma > 0",
        )
    return curves


def table(rows: list[dict[str, Any]], refused: dict[str, str]) -> RenderableType:
    """Lay the comparison out for a terminal; columns that say nothing are left out."""
    out = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    texts: dict[str, Any] = {
        "topology": lambda row: row["topology"],
        "n": lambda row: str(row["n"]) if "n" in row else None,
        "weights": lambda row: row.get("weights"),
        "nπ": lambda row: number(row["n_pi"]),
        "expected": lambda row: _number_or_none(_ratio(row), digits=3, after=" x SGD"),
        "T_z certified": lambda row: _number_or_none(row["transient_certified"], digits=3),
        "T of the paper": lambda row: _number_or_none(row["transient_time"], digits=3),
        "largest degree": lambda row: str(row["largest_degree"]),
        "messages": lambda row: f"{row['messages']:,.6g}",
        "MB": lambda row: _number_or_none(row.get("bytes_per_step"), 1e-6),
        "seconds": lambda row: _number_or_none(row.get("seconds_per_step")),
    }
    cells = {name: [text(row) for row in rows] for name, text in texts.items()}
    shown = {name: column for name, column in cells.items() if any(column) or name == "nπ"}
    for name in shown:
        left = name in ("topology", "weights")
        out.add_column(name, justify="left" if left else "right")
    for row in zip(*shown.values(), strict=True):
        out.add_row(*(Text(cell or "-") for cell in row))
    waits = {row["topology"]: row["bottleneck"] for row in rows if "bottleneck" in row}
    found = [Text(f"\n{name} waits for {what}") for name, what in waits.items()]
    notes = [Text(f"  {name}: {why}", style="dim") for name, why in refused.items()]
    head = [Text("\nnot compared:", style="dim")] if notes else []
    return Group(out, *found, *head, *notes)


def _number_or_none(
    value: float | None, scale: float = 1.0, *, digits: int = 4, after: str = ""
) -> str | None:
    return None if value is None else number(scale * value, digits) + after


def _costs(net: AnyNetwork, load: Load | None) -> dict[str, Any]:
    """Return what a step sends, as far as it is known; of a timetable its vectors alone."""
    if not isinstance(net, Network):
        return {}
    step = traffic(net, load)
    costs = {"bytes_per_step": step.bytes_per_step, "seconds_per_step": step.seconds_per_step}
    known: dict[str, Any] = {key: value for key, value in costs.items() if value is not None}
    return known | ({"bottleneck": str(step.bottleneck)} if step.bottleneck else {})


def _row(name: str, a: Analysis | TimetableAnalysis) -> dict[str, Any]:
    full = a.to_dict()
    more = {key: full.get(key) for key in ("expected", "transient_certified")}
    return {"topology": name, **{key: full[key] for key in KEYS}, **more}
