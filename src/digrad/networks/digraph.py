"""Directed graphs: who can send to whom."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.errors import NetworkError, short_repr
from digrad.base.machine import check_memory
from digrad.networks.capacities import Capacities

if TYPE_CHECKING:
    import networkx as nx

Nodes = NDArray[np.int64]

LARGEST_N = 10_000_000  # a larger graph is a slip in a size or in a file's header
LINK_BYTES = 80  # that a link takes while a graph of it is made
PAIR_BYTES = 200  # the same where it comes as a pair of Python's integers


@dataclass(frozen=True, eq=False, repr=False)
class Digraph:
    """A directed graph on nodes 0 .. n - 1; edge (j, i) means that j can send to i.

    Edges are kept sorted, each once. Self-loops are dropped: a node always has its own
    data, and whether it *weighs* them is decided by the weights, not by the graph.

    >>> Digraph(3, [(0, 1), (1, 2), (2, 0), (0, 1)])
    Digraph(n=3, edges=3)
    """

    n: int
    edges: NDArray[np.int64]  # (edges, 2): sender, receiver
    names: tuple[str, ...] | None = None  # what the nodes are called outside digrad
    capacities: Capacities | None = None  # what the links can carry, where that is known
    notes: tuple[str, ...] = ()  # what was left out when the graph was read

    def __init__(
        self,
        n: int,
        edges: Iterable[tuple[int, int]] | NDArray[Any],
        names: Iterable[str] | None = None,
        *,
        capacities: Capacities | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        object.__setattr__(self, "n", size_of(n))
        object.__setattr__(self, "edges", _canonical_edges(self.n, edges))
        object.__setattr__(self, "names", check_names(self.n, names))
        object.__setattr__(self, "capacities", capacities)
        object.__setattr__(self, "notes", tuple(notes))

    def __repr__(self) -> str:
        """Show the size, not the edges: there may be a million."""
        return f"Digraph(n={self.n}, edges={len(self.edges)})"

    def __eq__(self, other: object) -> bool:
        """Two graphs are equal when they have the same nodes and the same edges."""
        if not isinstance(other, Digraph):
            return NotImplemented
        return self.n == other.n and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        """Hash by nodes and edges, as equality compares."""
        return hash((self.n, self.edges.tobytes()))

    @property
    def senders(self) -> Nodes:
        """The sending end of every edge."""
        return self.edges[:, 0]

    @property
    def receivers(self) -> Nodes:
        """The receiving end of every edge."""
        return self.edges[:, 1]

    @property
    def in_degrees(self) -> Nodes:
        """How many nodes send to each node (itself not counted)."""
        return np.bincount(self.receivers, minlength=self.n)

    @property
    def out_degrees(self) -> Nodes:
        """To how many nodes each node sends (itself not counted)."""
        return np.bincount(self.senders, minlength=self.n)

    @property
    def is_symmetric(self) -> bool:
        """Whether every link works in both directions."""
        return self == self.reverse()

    def adjacency(self) -> csr_array:
        """Return A with A[i, j] = 1 where j sends to i: row i is what i receives."""
        ones = np.ones(len(self.edges))
        return csr_array((ones, (self.receivers, self.senders)), shape=(self.n, self.n))

    def reverse(self) -> "Digraph":
        """Return the graph with every link turned round."""
        return self.with_edges(self.edges[:, ::-1])

    def both_ways(self) -> "Digraph":
        """Return the graph with every link made two-way."""
        return self.with_edges(np.vstack([self.edges, self.edges[:, ::-1]]))

    def with_edges(self, edges: Iterable[tuple[int, int]] | NDArray[Any]) -> "Digraph":
        """Return other links among the same nodes, with what is known about both."""
        return Digraph(self.n, edges, self.names, capacities=self.capacities, notes=self.notes)

    def subgraph(self, nodes: Nodes) -> "Digraph":
        """Return the graph on these nodes alone, renumbered in the order given."""
        place = np.full(self.n, -1)
        place[nodes] = np.arange(len(nodes))
        edges = place[self.edges]
        names = [self.name(int(i)) for i in nodes]
        known = None if self.capacities is None else self.capacities.renumbered(place, len(nodes))
        inside = edges[(edges >= 0).all(axis=1)]
        return Digraph(len(nodes), inside, names, capacities=known, notes=self.notes)

    def name(self, node: int) -> str:
        """Return what a node is called in the graph's source; its number if nothing else."""
        return str(node) if self.names is None else self.names[node]

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Any]") -> "Digraph":
        """Read a networkx graph; an undirected edge becomes two directed ones.

        Nodes are numbered in the order of ``graph.nodes``; their labels become names.
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise NetworkError(
                f"{short_repr(graph)} is no networkx graph", hint="pass a networkx.DiGraph"
            )
        order = {node: k for k, node in enumerate(graph.nodes)}
        edges = np.array([(order[j], order[i]) for j, i in graph.edges()], dtype=np.int64)
        digraph = cls(len(order), edges.reshape(-1, 2), map(str, order))
        return digraph if graph.is_directed() else digraph.both_ways()

    def to_networkx(self) -> "nx.DiGraph[int]":
        """Return a ``networkx.DiGraph`` on the same numbers, names as node attribute ``name``."""
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from((i, {"name": self.name(i)}) for i in range(self.n))
        graph.add_edges_from(map(tuple, self.edges.tolist()))
        return graph


def size_of(n: Any) -> int:
    """Return a number of nodes that a graph can have."""
    if not isinstance(n, Integral) or isinstance(n, bool) or int(n) < 1:
        raise NetworkError(
            f"a graph needs a whole number of nodes, at least one, got n = {short_repr(n)}",
            hint="n >= 1",
        )
    if int(n) > LARGEST_N:
        many = f"{int(n):,}" if int(n) < 10**30 else "a larger number"
        raise NetworkError(
            f"digrad takes at most {LARGEST_N:,} nodes, got n = {many}", hint="a smaller n"
        )
    return int(n)


def check_links(links: float, what: str) -> None:
    """Refuse a graph whose links memory has no room for, before they are made."""
    said = (
        f"{what}, with {links:,.0f} links," if links < 1e15 else f"{what}, with {links:.2g} links,"
    )
    check_memory(links * LINK_BYTES, said, hint="fewer nodes or links", error=NetworkError)


def check_names(n: int, names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return one name for each node, if there are names."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise NetworkError(f"names are a list of {n} texts, got {short_repr(names)}")
    listed = tuple(map(str, islice(names, n + 1)))
    if len(listed) != n:
        more = "more" if len(listed) > n else str(len(listed))
        raise NetworkError(f"{n} nodes need {n} names, got {more}")
    return listed


def _pairs(edges: Iterable[tuple[int, int]] | NDArray[Any]) -> NDArray[Any]:
    try:
        if isinstance(edges, np.ndarray):
            return edges
        listed = list(islice(edges, (2 << 30) // PAIR_BYTES))  # what memory has room for
        check_memory(len(listed) * PAIR_BYTES, f"{len(listed):,} edges or more", error=NetworkError)
        return np.asarray(listed)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"edges must be pairs (sender, receiver): {error}") from error


def _canonical_edges(n: int, edges: Iterable[tuple[int, int]] | NDArray[Any]) -> NDArray[np.int64]:
    pairs = _pairs(edges)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise NetworkError(
            f"edges must be pairs (sender, receiver) of integers, got an array of shape "
            f"{pairs.shape} and type {pairs.dtype}"
        )
    check_memory(len(pairs) * LINK_BYTES, f"a graph of {len(pairs):,} edges", error=NetworkError)
    outside = pairs[(pairs < 0).any(axis=1) | (pairs >= n).any(axis=1)]
    if len(outside):
        raise NetworkError(
            f"edge {tuple(outside[0].tolist())} names a node outside 0 .. {n - 1}",
            hint="nodes are numbered from 0",
        )
    codes = np.sort(pairs[:, 0].astype(np.int64) * n + pairs[:, 1])
    first = np.ones(len(codes), dtype=bool)  # sorting is far faster here than numpy.unique
    first[1:] = codes[1:] != codes[:-1]
    codes = codes[first]
    codes = codes[codes // n != codes % n]  # a self-loop says nothing about who can reach whom
    canonical = np.stack([codes // n, codes % n], axis=1)
    canonical.flags.writeable = False
    return canonical
