"""Links from lists of edges or neighbours, and from GraphML."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.errors import FileFormatError, NetworkError, param
from digrad.base.files import text_of
from digrad.base.machine import check_memory
from digrad.networks.capacities import Columns, LinkAttributes, read_capacities
from digrad.networks.digraph import LARGEST_N, Digraph
from digrad.networks.network import Network

COMMENT = re.compile(r"[#%](?<![^\s,].)[^\n]*")
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # int() refuses more than 4300 digits
HEADERS = (["sender", "receiver"], ["source", "target"])
WEIGHTS = {"R": "pull_weight", "C": "push_weight"}  # attributes that make a graph a network

Lines = list[tuple[int, list[str]]]  # the cells of each line, with its number

# Bytes that these take on the way to a graph, measured from above.
LINE_BYTES, NAMED_BYTES, WORD_BYTES, TAG_BYTES = 120, 250, 300, 900
TEXT_COPIES = 9  # of a text, in bytes for each of its letters


def check_reading(raw: bytes, items: int, each: int, what: str) -> None:
    """Refuse a text whose reading would take more memory than there may be."""
    said = f"reading {items:,} {what} in {len(raw) / 2**20:,.3g} MiB"
    check_memory(TEXT_COPIES * len(raw) + each * items, said, error=FileFormatError)


class LinkList(NamedTuple):
    """The links of a file as they stand there, self-loops and repeated ones included."""

    n: int
    edges: NDArray[np.int64]
    names: tuple[str, ...] | None
    columns: Columns  # what the file says about each link

    def read(self, attributes: LinkAttributes) -> Digraph | Network:
        """Return the graph, with capacities; a network, where the links have weights."""
        shown = self.names or tuple(map(str, range(self.n)))
        columns = dict(self.columns)
        weighed = all(name in columns for name in WEIGHTS.values())
        entries = [columns.pop(name) for name in WEIGHTS.values()] if weighed else []
        known, unused = read_capacities(self.n, self.edges, columns, attributes, shown)
        options: dict[str, Any] = {"capacities": known, "notes": [_unused(unused)] * bool(unused)}
        if not weighed:
            return Digraph(self.n, self.edges, self.names, **options)
        weights = [np.array([float(v or 0) for v in values]) for values in entries]
        places = self.edges[:, 1], self.edges[:, 0]
        R, C = (csr_array((v, places), shape=(self.n, self.n)) for v in weights)
        return Network(R, C, self.names, **options)


def edge_list(raw: bytes) -> LinkList:
    """Read lines ``sender receiver``, perhaps with a number, or with columns below their names."""
    lines = raw.count(b"\n") + raw.count(b"\r") + 1
    check_reading(raw, lines, LINE_BYTES, "lines")
    text = COMMENT.sub("", text_of(raw)).replace(",", " ")
    # Integers take the fast way; whatever that stumbles over, the slow way reads or explains.
    with suppress(ValueError, OverflowError, Warning), warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = np.loadtxt(io.StringIO(text), dtype=np.int64, comments=None, ndmin=2)
        if numbers.shape[1] in (2, 3):
            nodes, edges = np.unique(numbers[:, :2], return_inverse=True)
            columns = {str(k + 1): numbers[:, k].tolist() for k in range(2, numbers.shape[1])}
            return _links(nodes.tolist(), edges.reshape(-1, 2), columns)
    check_reading(raw, lines, NAMED_BYTES, "lines of names")
    return named_edges(list(_rows(text)))


def named_edges(rows: Lines) -> LinkList:
    """Build links from rows ``sender, receiver``, a number perhaps, or columns below names."""
    head: list[str] | None = None
    if rows and [cell.lower() for cell in rows[0][1][:2]] in HEADERS:
        head, rows = rows[0][1], rows[1:]
    for line, row in rows:
        # More nameless numbers might as well be neighbours.
        number = len(row) == 2 or (len(row) == 3 and _is_number(row[2]))
        clear = number if head is None else len(row) <= len(head)
        if len(row) < 2 or "" in row[:2] or not clear:
            raise FileFormatError(f"line {line}: no edge in {' '.join(row)[:60]!r}")
    width = max([len(row) for _, row in rows], default=2) if head is None else len(head)
    titles = list(map(str, range(1, width + 1))) if head is None else head
    columns = {
        titles[k]: [row[k] if k < len(row) else "" for _, row in rows] for k in range(2, width)
    }
    return _named([cell for _, row in rows for cell in row[:2]], columns)


def adjacency_list(raw: bytes) -> LinkList:
    """Read lines ``sender receiver receiver ...``."""
    check_reading(raw, len(raw.split()), WORD_BYTES, "words")
    labels: list[str] = []
    for _, (sender, *receivers) in _rows(COMMENT.sub("", text_of(raw)).replace(",", " ")):
        for receiver in (sender, *receivers):  # the self-loop keeps a node without edges
            labels += sender, receiver
    return _named(labels, {})


def graphml(raw: bytes) -> LinkList:
    """Read the one graph of a GraphML file, its nodes named by label where that is clear."""
    import networkx as nx

    check_reading(raw, raw.count(b"<") + raw.count(b"="), TAG_BYTES, "tags and attributes")
    scan = expat.ParserCreate()
    scan.EntityDeclHandler = _refuse_entities
    scan.Parse(raw, True)
    graph = nx.read_graphml(io.BytesIO(raw))
    if not graph:
        raise NetworkError("a graph without nodes")
    labels = [None if label is None else str(label) for _, label in graph.nodes(data="label")]
    counts, ids = Counter(labels), tuple(map(str, graph))
    names = tuple(a if a and counts[a] == 1 else b for a, b in zip(labels, ids, strict=True))
    names = names if len(set(names)) == len(ids) else ids  # an id may be another node's label
    order = {node: k for k, node in enumerate(graph)}
    said = [(order[j], order[i], data) for j, i, data in graph.edges(data=True)]
    if not graph.is_directed():
        said += [(i, j, data) for j, i, data in said]
    titles = dict.fromkeys(title for *_, data in said for title in data)
    columns = {title: [data.get(title) for *_, data in said] for title in titles}
    edges = np.array([(j, i) for j, i, _ in said], dtype=np.int64).reshape(-1, 2)
    return LinkList(len(ids), edges, names, columns)


def _unused(columns: list[str]) -> str:
    shown = ", ".join(f"column {name}" if name.isdigit() else name for name in columns)
    return (
        f"not used: {shown} ({param('latency_attr')}, {param('bandwidth_attr')}, "
        f"{param('cost_attr')} say what a link's attributes are)"
    )


def _refuse_entities(*_: object) -> None:
    raise FileFormatError(
        "declares XML entities, which can expand without end", hint="write them out"
    )


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = ((line, row.split()) for line, row in enumerate(text.split("\n"), 1))
    return ((line, row) for line, row in rows if row)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(labels: list[str], columns: Columns) -> LinkList:
    """Build links from sender, receiver, sender, receiver ..."""
    keys: list[Any] = labels
    if all(map(INTEGER.fullmatch, labels)):
        keys = list(map(int, labels))
    nodes = list(dict.fromkeys(keys)) if keys is labels else sorted(set(keys))
    place = {node: k for k, node in enumerate(nodes)}
    edges = np.array([place[key] for key in keys], dtype=np.int64).reshape(-1, 2)
    return _links(nodes, edges, columns)


def _links(nodes: list[Any], edges: NDArray[np.int64], columns: Columns) -> LinkList:
    if not 1 <= len(nodes) <= LARGEST_N:
        raise NetworkError(f"{len(nodes)} nodes found, but a graph has 1 to {LARGEST_N}")
    plain = nodes == list(range(len(nodes)))
    return LinkList(len(nodes), edges, None if plain else tuple(map(str, nodes)), columns)
