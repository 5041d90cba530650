"""Who sends which rows to whom when the nodes live on several ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.errors import ParameterError

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Packet:
    """Rows that leave together, to every rank that needs exactly these."""

    rows: Integers  # places among the sender's own nodes, ascending
    peers: tuple[int, ...]  # ranks, ascending


@dataclass(frozen=True, eq=False)
class Arrival:
    """What comes from one rank, and what each row is worth here."""

    peer: int
    weights: csr_array  # (own nodes, rows that arrive)
    nodes: Integers  # whose rows these are


@dataclass(frozen=True, eq=False)
class Route:
    """One rank's part of a product W X.

    A row travels once to a rank, however many nodes there listen to it, and only if a link
    leads there.
    """

    own: csr_array  # weights among the rank's own nodes
    packets: tuple[Packet, ...]
    arrivals: tuple[Arrival, ...]  # by rank, the order in which they are added up
    links: int  # of the network, that leave the rank's own nodes; self-loops not counted
    crossings: int  # rows that really leave the rank
    widest: int  # most rows that any rank sends to any other: the same on every rank

    @property
    def peers(self) -> set[int]:
        """The ranks to which rows go, or from which they come."""
        to = {peer for packet in self.packets for peer in packet.peers}
        return to | {arrival.peer for arrival in self.arrivals}


def bounds_of(n: int, world: int, blocks: Sequence[int] | None = None) -> Integers:
    """Return where each rank's nodes begin, and n at the end.

    >>> bounds_of(7, 3).tolist(), bounds_of(7, 3, [1, 5, 1]).tolist()
    ([0, 3, 5, 7], [0, 1, 6, 7])
    """
    if blocks is None:
        if n < world:
            what = f"{world} ranks cannot share {n} nodes: some would hold none"
            hint = f"start at most {n} processes, or take a network of {world} nodes"
            raise ParameterError(what, hint=hint)
        blocks = [n // world + (rank < n % world) for rank in range(world)]
    if len(blocks) != world or sum(blocks) != n or min(blocks) < 1:
        what = f"blocks {list(blocks)} do not share {n} nodes among {world} ranks"
        hint = "give one size per rank, each at least 1, that add up to the number of nodes"
        raise ParameterError(what, hint=hint)
    return np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64)


def route(W: csr_array, bounds: Integers, rank: int) -> Route:
    """Work out one rank's part of the product with W.

    >>> from digrad.networks import build
    >>> mine = route(build("directed-ring", 6).R, bounds_of(6, 3), rank=1)
    >>> [(packet.rows.tolist(), packet.peers) for packet in mine.packets]
    [([1], (2,))]
    >>> [(arrival.peer, arrival.weights.toarray().tolist()) for arrival in mine.arrivals]
    [(0, [[0.5], [0.0]])]
    """
    n, world = W.shape[0], len(bounds) - 1
    # Weights of 0 among them: those messages are sent, and lost.
    receivers, senders = (index.astype(np.int64) for index in W.tocoo().coords)
    home = np.repeat(np.arange(world), np.diff(bounds))
    crossing = home[receivers] != home[senders]
    # One key for (from rank, to rank, node): sorted and without doubles, it is the whole plan.
    pair = home[senders[crossing]] * world + home[receivers[crossing]]
    keys = np.unique(pair * n + senders[crossing])
    pairs, nodes = keys // n, keys % n
    low, high = int(bounds[rank]), int(bounds[rank + 1])
    block = W[low:high]
    arrivals = []
    for peer in range(world):
        wanted = nodes[pairs == peer * world + rank]
        if len(wanted):
            arrivals.append(Arrival(peer, csr_array(block[:, wanted]), wanted))
    packets = _packets({peer: nodes[pairs == rank * world + peer] - low for peer in range(world)})
    own_links = (senders >= low) & (senders < high) & (senders != receivers)
    return Route(
        own=csr_array(block[:, low:high]),
        packets=packets,
        arrivals=tuple(arrivals),
        links=int(own_links.sum()),
        crossings=sum(len(packet.rows) * len(packet.peers) for packet in packets),
        widest=int(np.unique(pairs, return_counts=True)[1].max(initial=0)),
    )


def _packets(wanted: dict[int, Integers]) -> tuple[Packet, ...]:
    """Group the ranks that want the same rows: those are packed once."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for peer, rows in wanted.items():
        if len(rows):
            groups.setdefault(tuple(rows.tolist()), []).append(peer)
    return tuple(Packet(np.array(rows), tuple(peers)) for rows, peers in groups.items())
