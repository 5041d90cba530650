"""Graphs from lists of edges or neighbours, and from GraphML."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import FileFormatError, NetworkError, message
from digrad.base.files import text_of
from digrad.base.memory import check_memory
from digrad.networks.digraph import LARGEST_N, Digraph

COMMENT = re.compile(r"[#%](?<![^\s,].)[^\n]*")
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # int() refuses more than 4300 digits

# Bytes that these take on the way to a graph, measured from above.
LINE_BYTES, NAMED_BYTES, WORD_BYTES, TAG_BYTES = 120, 250, 300, 900
TEXT_COPIES = 9  # of a text, in bytes for each of its letters


def check_reading(raw: bytes, items: int, each: int, what: str) -> None:
    """Refuse a text whose reading would take more memory than there may be."""
    said = f"reading {items:,} {what} in {len(raw) / 2**20:,.3g} MiB"
    check_memory(TEXT_COPIES * len(raw) + each * items, said, error=FileFormatError)


def edge_list(raw: bytes) -> Digraph:
    """Read lines ``sender receiver``."""
    lines = raw.count(b"\n") + raw.count(b"\r") + 1
    check_reading(raw, lines, LINE_BYTES, "lines")
    text = COMMENT.sub("", text_of(raw)).replace(",", " ")
    # Integers take the fast way; whatever that stumbles over, the slow way reads or explains.
    with suppress(ValueError, OverflowError, Warning), warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = np.loadtxt(io.StringIO(text), dtype=np.int64, comments=None, ndmin=2)
        if numbers.shape[1] in (2, 3):
            nodes, edges = np.unique(numbers[:, :2], return_inverse=True)
            return _graph(nodes.tolist(), edges.reshape(-1, 2))
    check_reading(raw, lines, NAMED_BYTES, "lines of names")
    return named_edges(_rows(text))


def named_edges(rows: Iterable[tuple[int, list[str]]]) -> Digraph:
    """Build a graph from numbered rows ``sender, receiver``, perhaps with a number."""
    labels: list[str] = []
    for line, row in rows:
        if not (len(row) == 2 or (len(row) == 3 and _is_number(row[2]))) or "" in row:
            raise FileFormatError(f"line {line}: no edge in {' '.join(row)[:60]!r}")
        labels += row[:2]
    return _named(labels)


def adjacency_list(raw: bytes) -> Digraph:
    """Read lines ``sender receiver receiver ...``."""
    check_reading(raw, len(raw.split()), WORD_BYTES, "words")
    labels: list[str] = []
    for _, (sender, *receivers) in _rows(COMMENT.sub("", text_of(raw)).replace(",", " ")):
        for receiver in (sender, *receivers):  # the self-loop keeps a node without edges
            labels += sender, receiver
    return _named(labels)


def graphml(raw: bytes) -> Digraph:
    """Read the one graph of a GraphML file, its nodes named by label where that is clear."""
    import networkx as nx

    check_reading(raw, raw.count(b"<") + raw.count(b"="), TAG_BYTES, "tags and attributes")
    scan = expat.ParserCreate()
    scan.EntityDeclHandler = _refuse_entities
    scan.Parse(raw, True)
    graph = nx.read_graphml(io.BytesIO(raw))
    if not graph:
        raise NetworkError("a graph without nodes")
    digraph = Digraph.from_networkx(graph)
    labels = [None if label is None else str(label) for _, label in graph.nodes(data="label")]
    counts, ids = Counter(labels), map(str, graph)
    names = [a if a and counts[a] == 1 else b for a, b in zip(labels, ids, strict=True)]
    clear = len(set(names)) == digraph.n  # an id may be another node's label
    return Digraph(digraph.n, digraph.edges, names) if clear else digraph


def _refuse_entities(*_: object) -> None:
    raise FileFormatError(
        message("declares XML entities, which can expand without end", hint="write them out")
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


def _named(labels: list[str]) -> Digraph:
    """Build a graph from sender, receiver, sender, receiver ..."""
    keys: list[Any] = labels
    if all(map(INTEGER.fullmatch, labels)):
        keys = list(map(int, labels))
    nodes = list(dict.fromkeys(keys)) if keys is labels else sorted(set(keys))
    place = {node: k for k, node in enumerate(nodes)}
    return _graph(nodes, np.array([place[key] for key in keys], dtype=np.int64).reshape(-1, 2))


def _graph(nodes: list[Any], edges: NDArray[np.int64]) -> Digraph:
    if not 1 <= len(nodes) <= LARGEST_N:
        raise NetworkError(f"{len(nodes)} nodes found, but a graph has 1 to {LARGEST_N}")
    return Digraph(len(nodes), edges, None if nodes == list(range(len(nodes))) else nodes)
