"""Graphs and networks from files, and networks to files.

The suffix says the format, in upper or lower case; ``.gz`` may follow it:

- ``.graphml``: undirected edges count both ways, parallel ones once; or what ``save`` wrote;
- ``.txt .edges .edgelist .el .tsv``: edges, a line ``sender receiver`` each, separated by
  blanks or a comma; a third column holds numbers, and further ones, or words, need a first line
  ``sender receiver ...`` that names them;
- ``.adj .adjlist``: neighbours, a line ``a b c`` for a -> b and a -> c;
- ``.csv``: a square matrix, or edges under a first line ``sender,receiver`` or ``source,target``,
  which may name further columns;
- ``.mtx .npy``: a matrix;
- ``.npz``: what ``save`` or ``scipy.sparse.save_npz`` wrote, or arrays R and C.

In lists, ``#`` or ``%`` after a blank starts a comment, and ``a a`` adds a node but no edge.
Nodes named by integers are numbered in their order, others as they first appear.
"""

import csv
import gzip
import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.checks import flag, kind_of
from digrad.base.errors import DigradError, FileFormatError, NetworkError, ParameterError, message
from digrad.base.files import check_bytes, read_bounded, text_of, write_whole
from digrad.networks.capacities import UNITS, LinkAttributes, check_unnamed
from digrad.networks.digraph import Digraph
from digrad.networks.lists import (
    HEADERS,
    WEIGHTS,
    LinkList,
    adjacency_list,
    check_reading,
    edge_list,
    graphml,
    named_edges,
)
from digrad.networks.matrices import PARTS, csv_matrix, matrix_market, npy, npz
from digrad.networks.network import SUM_TOLERANCE, Network, Slot
from digrad.networks.timetable import Timetable
from digrad.networks.weights import pushed_alone

CELL_BYTES = 130  # that a cell takes as text and as a number of Python's
Content: TypeAlias = LinkList | Network | Timetable | csr_array  # what a file may hold


def load(
    *paths: str | Path, undirected: bool = False, attributes: LinkAttributes | None = None
) -> Digraph | Network | Timetable:
    """Read a graph or a network from one file, or a network from matrix files R and C.

    One matrix of zeros and ones (its diagonal aside) is the adjacency matrix of a graph:
    A[i, j] = 1 where j sends to i, so row i is what i receives. One doubly stochastic
    matrix W is the network with R = C = W; one whose columns alone sum to 1 is C, see
    ``pushed_alone``.

    Args:
        paths: One file, or two.
        undirected: Whether every link of the graph works both ways.
        attributes: Which attributes of the links are latency, bandwidth and cost.

    Raises:
        FileFormatError: A file is not there, or not what its suffix says.
        NetworkError: A file can be read, but holds no graph or network.
    """
    flag(undirected, "undirected")
    for path in paths:
        kind_of(path, "a file", str, Path)
    if len(paths) not in (1, 2):
        raise ParameterError(f"load takes one file, or two for R and C, got {len(paths)}")
    found = [_read(Path(path)) for path in paths]
    with _naming_the_file(" and ".join(map(_path_text, paths))):
        if not isinstance(found[0], LinkList):
            check_unnamed(attributes, "the file holds weights, not a list of links")
        read = attributes or LinkAttributes()
        loaded = _one(found[0], read) if len(found) == 1 else _pair(found)
        if not undirected:
            return loaded
        if not isinstance(loaded, Digraph):
            raise ParameterError("weights have directions", hint="leave out undirected")
        return loaded.both_ways()


def load_slot(
    path: str | Path, undirected: bool = False, attributes: LinkAttributes | None = None
) -> Digraph | Slot:
    """Read one slot of a timetable: as ``load``, but it need not be connected."""
    content = _read(Path(path))
    with _naming_the_file(_path_text(path)):
        if isinstance(content, Timetable):
            hint = "give it alone"
            raise ParameterError("the file holds a whole timetable", hint=hint)
        loaded = _one(content, attributes or LinkAttributes(), Slot)
        if undirected and isinstance(loaded, Digraph):
            return loaded.both_ways()
        return cast(Digraph | Slot, loaded)


def save(network: Network | Timetable, path: str | Path) -> None:
    """Write a network, its names and capacities: ``load`` reads them back bit for bit.

    The suffix is ``.npz``, or ``.graphml`` for other programs to read, where it does not change.
    The file is written whole or not at all, and replaces an older one.
    """
    kind_of(network, "network", Network, Timetable, hint="`weigh` makes one of a graph")
    path = Path(kind_of(path, "path", str, Path))
    with _naming_the_file(_path_text(path)):
        check_network_suffix(path)
        if path.suffix.lower() == ".npz":
            write_whole(path, _as_npz(network))
        elif isinstance(network, Network):
            write_whole(path, _as_graphml(network))
        else:
            what = "a timetable does not fit into GraphML, which holds one graph"
            raise FileFormatError(what, hint="end it in .npz")


def check_network_suffix(path: Path) -> None:
    """Refuse a file that no network is saved to."""
    if path.suffix.lower() not in (".npz", ".graphml"):
        what = f"networks are saved as .npz or .graphml, not as {path.name!r}"
        raise FileFormatError(what, hint="end it in .npz")


def _as_npz(network: Network | Timetable) -> bytes:
    parts = dict[str, Any]()
    slots: dict[str, Slot] = {"": network} if isinstance(network, Network) else {}
    if isinstance(network, Timetable):
        slots = {f"slot{k}_": slot for k, slot in enumerate(network.slots)}
    for within, slot in slots.items():
        for name, W in (("R", slot.R), ("C", slot.C)):
            parts |= {f"{within}{name}_{part}": getattr(W, part) for part in PARTS}
    if isinstance(network, Timetable):
        about: dict[str, Any] = {"slots": len(network.slots), "every": network.exchange_every}
        about |= {"chances": asdict(network.chances), "names": network.names}
        parts["timetable"] = _as_json(about)
    else:
        if network.names is not None:
            parts["names"] = _as_json(network.names)
        if network.capacities is not None:
            parts |= {name: getattr(network.capacities, name) for name in ("links", *UNITS)}
    content = BytesIO()
    np.savez(content, **parts)
    return content.getvalue()


def _as_json(value: Any) -> NDArray[np.uint8]:
    """Return a value as JSON, since an array of strings pads each to the longest."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _as_graphml(network: Network) -> bytes:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((str(i), {"label": network.name(i)}) for i in range(network.n))
    for name, W in (("R", network.R), ("C", network.C)):
        for i, j, weight in zip(*W.nonzero(), W.data.tolist(), strict=True):
            graph.add_edge(str(j), str(i), **{WEIGHTS[name]: weight})
    if network.capacities is not None:
        links = [tuple(map(str, link)) for link in network.capacities.links.tolist()]
        for kind in UNITS:
            for link, value in zip(links, getattr(network.capacities, kind).tolist(), strict=True):
                if not np.isnan(value):
                    graph.add_edge(*link, **{kind: value})
    content = BytesIO()
    nx.write_graphml(graph, content)
    return content.getvalue()


@contextmanager
def _naming_the_file(where: str, hint: str = "") -> Iterator[None]:
    """Turn whatever goes wrong inside into one error that names the file."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    except DigradError as error:
        hint = "" if "  hint: " in str(error) else hint
        raise type(error)(message(f"{where}: {error}", hint=hint)) from error
    except Exception as error:  # parsers raise anything on damaged input
        said = " ".join(f"cannot be read ({type(error).__name__}: {error})".split())[:200]
        if isinstance(error, OSError) and error.strerror:  # the system's word, not a parser's
            said, hint = error.strerror, "check the path, and who may read and write there"
        raise FileFormatError(f"{where}: {said}", hint=hint) from error


def _one(
    content: Content, attributes: LinkAttributes, kind: type[Slot] = Network
) -> Digraph | Network | Timetable:
    """Say what a single matrix means."""
    if isinstance(content, LinkList):
        return content.read(attributes)
    if not isinstance(content, csr_array):
        return content
    receivers, senders = content.nonzero()
    if (content.data[receivers != senders] == 1).all():
        edges = np.stack([senders, receivers], axis=1).astype(np.int64)
        return Digraph(content.shape[0], edges)
    by_column, by_row = (_furthest(content, axis) for axis in (0, 1))
    if by_column is None and by_row is not None and kind is Network:
        return pushed_alone(content)
    for line, wrong in (("row", by_row), ("column", by_column)):
        if wrong is not None:
            raise NetworkError(
                f"not all entries are 0 or 1, as in an adjacency matrix, and {line} {wrong[0]} "
                f"sums to {wrong[1]:.10g}",
                hint="a single weight matrix must be doubly stochastic, or C, whose columns "
                "sum to 1; otherwise give two files, R and C",
            )
    return cast(Network, kind(content, content))  # a slot, where one is read


def _furthest(W: csr_array, axis: int) -> tuple[int, float] | None:
    """Return the line whose sum is furthest from 1, and the sum; none if all are 1."""
    sums = np.asarray(W.sum(axis=axis)).ravel()
    worst = int(np.abs(sums - 1).argmax())
    return None if abs(sums[worst] - 1) <= SUM_TOLERANCE else (worst, float(sums[worst]))


def _pair(found: list[Content]) -> Network:
    if not all(isinstance(content, csr_array) for content in found):
        raise FileFormatError(
            "two files must be matrices, R and C", hint="give one file for a graph"
        )
    R, C = found
    return Network(R, C)


def _path_text(path: str | Path) -> str:
    return str(path).encode(errors="backslashreplace").decode()  # a file's name may be no text


def _read(path: Path) -> Content:
    suffix = (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()
    reader, hint = FORMATS.get(suffix, (None, f"known suffixes: {' '.join(FORMATS)}"))
    with _naming_the_file(_path_text(path), hint):
        raw = _bytes(path)
        if reader is None:
            raise FileFormatError(f"unknown suffix {suffix!r}")
        return reader(raw)


def _bytes(path: Path) -> bytes:
    if not path.is_file():  # a pipe, say, might keep us waiting for ever
        kind = "a folder, not a file" if path.is_dir() else "not a plain file"
        raise FileFormatError(
            kind if path.exists() else "no such file",
            hint="check the path; `digrad list topologies` shows the built-in names",
        )
    check_bytes(path.stat().st_size)
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
        raw = read_bounded(cast(BinaryIO, stream))
    if not raw:
        raise FileFormatError("the file is empty")
    return raw


def _csv(raw: bytes) -> Content:
    cells = raw.count(b",") + raw.count(b"\n") + raw.count(b"\r") + 1
    check_reading(raw, cells, CELL_BYTES, "cells")
    reader = csv.reader(io.StringIO(text_of(raw)))
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    if rows and [cell.lower() for cell in rows[0][1][:2]] in HEADERS:
        return named_edges(rows)
    return csv_matrix(rows)


_LIST = (
    edge_list,
    "each line holds `sender receiver`, and perhaps a number; a first line `sender receiver "
    "latency ...` names further columns",
)
_NEIGHBOURS = (adjacency_list, "each line holds a sender and its receivers")
FORMATS = {
    ".graphml": (graphml, "a GraphML file holds one graph; was it written completely?"),
    ".txt": _LIST,
    ".edges": _LIST,
    ".edgelist": _LIST,
    ".el": _LIST,
    ".tsv": _LIST,
    ".adj": _NEIGHBOURS,
    ".adjlist": _NEIGHBOURS,
    ".csv": (_csv, "a CSV file holds a square matrix, or edges below a line `sender,receiver`"),
    ".mtx": (matrix_market, "a Matrix Market file here holds one square real matrix"),
    ".npy": (npy, "an .npy file here holds one square real matrix"),
    ".npz": (npz, "an .npz file comes from digrad or scipy.sparse.save_npz, or holds R and C"),
}
