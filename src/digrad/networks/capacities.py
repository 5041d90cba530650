"""What links can carry: latency, bandwidth and cost, read from the attributes of a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import NetworkError, ParameterError, lookup, message, param

Floats = NDArray[np.float64]
Columns = Mapping[str, Sequence[Any]]  # an attribute's value for every link of a file

# What a link has, and how many of digrad's own units (named first) one of each unit is.
UNITS: dict[str, dict[str, float]] = {
    "latency": {"ms": 1.0, "s": 1e3, "us": 1e-3},
    "bandwidth": {"Mbit/s": 1.0, "bit/s": 1e-6, "kbit/s": 1e-3, "Gbit/s": 1e3, "MB/s": 8.0},
    "cost": {"": 1.0},
}


@dataclass(frozen=True)
class LinkAttributes:
    """Which attributes of a file's links are what, each as ``name`` or ``name:unit``.

    By default attributes of the very names ``latency``, ``bandwidth`` and ``cost``
    are taken. The third column of a list without a first line of names is called 3.
    """

    latency: str | None = None  # in ms, or with a unit: s, ms, us
    bandwidth: str | None = None  # in Mbit/s, or with a unit: bit/s, kbit/s, Gbit/s, MB/s
    cost: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """Those that were named."""
        named = {kind: getattr(self, kind) for kind in UNITS}
        return {kind: name for kind, name in named.items() if name is not None}


@dataclass(frozen=True, eq=False, repr=False)
class Capacities:
    """Latency, bandwidth and cost of links; NaN where one is not known.

    A link that is not listed has the numbers of its way back, if that is: most cables are
    two-way, and pushing over reversed links uses the same ones.
    """

    n: int
    links: NDArray[np.int64]  # (links, 2): sender, receiver; sorted, each once
    latency: Floats  # ms
    bandwidth: Floats  # Mbit/s
    cost: Floats  # of having the link, in any unit

    def __repr__(self) -> str:
        """Say how many links have which number."""
        known = (f"{kind}={np.isfinite(getattr(self, kind)).sum()}" for kind in UNITS)
        return f"Capacities(links={len(self.links)}, {', '.join(known)})"

    @classmethod
    def of_links(cls, n: int, links: NDArray[np.int64], **values: Floats) -> "Capacities":
        """Keep links with a number, sorted; of parallel ones least latency and most bandwidth.

        >>> twice = np.array([[1, 0], [1, 0]])
        >>> Capacities.of_links(2, twice, latency=np.array([3.0, 2.0])).latency.tolist()
        [2.0]
        """
        unknown = np.full(len(links), np.nan)
        given = {kind: values.get(kind, unknown) for kind in UNITS}
        told = np.isfinite(list(given.values())).any(axis=0) & (links[:, 0] != links[:, 1])
        codes, place = np.unique(links[told] @ [n, 1], return_inverse=True)
        merged = {}
        for kind, numbers in given.items():
            best = np.full(len(codes), np.nan)
            choose = np.fmax if kind == "bandwidth" else np.fmin
            choose.at(best, place, numbers[told])
            merged[kind] = best
        return cls(n, np.stack([codes // n, codes % n], axis=1), **merged)

    def of(self, edges: NDArray[np.int64]) -> dict[str, Floats]:
        """Return the numbers of these links, in their order."""
        there, back = (self._rows(pairs) for pairs in (edges, edges[:, ::-1]))
        rows = np.where(there >= 0, there, back)
        columns = {kind: np.append(getattr(self, kind), np.nan) for kind in UNITS}
        return {kind: column[rows] for kind, column in columns.items()}  # row -1: not known

    def renumbered(self, place: NDArray[np.int64], n: int) -> "Capacities":
        """Return the links between the nodes that have a new number, ``place[i]`` >= 0."""
        links = place[self.links]
        kept = (links >= 0).all(axis=1)
        values = {kind: getattr(self, kind)[kept] for kind in UNITS}
        return Capacities.of_links(n, links[kept], **values)

    def _rows(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = self.links[:, 0] * self.n + self.links[:, 1]
        wanted = edges[:, 0] * self.n + edges[:, 1]
        at = np.minimum(np.searchsorted(codes, wanted), max(len(codes) - 1, 0))
        found = codes[at] == wanted if len(codes) else np.zeros(len(wanted), dtype=bool)
        return np.where(found, at, -1)


def read_capacities(
    n: int,
    links: NDArray[np.int64],
    columns: Columns,
    attributes: LinkAttributes,
    names: Sequence[str],
) -> tuple[Capacities | None, list[str]]:
    """Return what the columns say about the links, and the columns that were not used."""
    values, used, why = {}, set(), dict[str, str]()
    usual = {name.lower(): name for name in columns}
    for kind in UNITS:
        spec = getattr(attributes, kind)
        column, scale = _asked(spec, kind, columns) if spec else (usual.get(kind), 1.0)
        if column is None:
            continue
        numbers, wrong = _numbers(columns[column], kind)
        if wrong is not None:
            link = " -> ".join(names[k] for k in links[wrong].tolist())
            if spec is not None:
                raise NetworkError(_wrong_number(kind, column, link, columns[column][wrong]))
            # Found by its name alone: skipped, with the reason.
            why[column] = f", as {link} has {str(columns[column][wrong])[:40]!r}"
            continue
        values[kind] = scale * numbers
        used.add(column)
    unused = [name + why.get(name, "") for name in columns if name not in used]
    return (Capacities.of_links(n, links, **values) if values else None), unused


def _asked(spec: str, kind: str, columns: Columns) -> tuple[str, float]:
    """Find the column that an option names, and what its unit is worth."""
    units = UNITS[kind]
    if spec in columns:
        return spec, 1.0
    name, colon, unit = spec.rpartition(":")
    name, unit = (name, unit) if colon else (spec, next(iter(units)))
    near = {key.lower(): key for key in columns}
    column = near.get(name.lower()) or lookup({key: key for key in columns}, name, "link attribute")
    return column, lookup(units, unit, f"unit of {kind}")


def _numbers(cells: Sequence[Any], kind: str) -> tuple[Floats, int | None]:
    """Return the cells as numbers, NaN for an empty one, and the first that cannot be one."""
    numbers = np.full(len(cells), np.nan)
    for k, cell in enumerate(cells):
        if cell is None or cell == "":
            continue
        try:
            numbers[k] = float(cell)
        except (TypeError, ValueError):
            return numbers, k
        if not np.isfinite(numbers[k]):
            return numbers, k
    wrong = np.flatnonzero(numbers <= 0 if kind == "bandwidth" else numbers < 0)
    return numbers, int(wrong[0]) if len(wrong) else None


def _wrong_number(kind: str, column: str, link: str, cell: Any) -> str:
    least = "above 0" if kind == "bandwidth" else "at least 0"
    unit = next(iter(UNITS[kind]))
    said = f"the link {link} has {kind} {str(cell)[:40]!r} (attribute {column!r})"
    return message(
        f"{said}, but it must be a number {least}",
        hint=f"write a number{f' of {unit}' if unit else ''}, or leave it empty where unknown",
    )


def check_unnamed(attributes: LinkAttributes | None, what: str) -> None:
    """Refuse names of attributes for something that has no attributes with names."""
    for kind, name in (attributes.given if attributes else {}).items():
        raise ParameterError(
            f"{what}, so there is no attribute {name!r}", hint=f"drop {param(f'{kind}_attr')}"
        )
