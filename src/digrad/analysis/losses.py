"""Single points of failure: nodes and links whose loss cuts others off, and what remains."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from digrad.base.errors import ParameterError, param
from digrad.networks import Network
from digrad.networks.digraph import Nodes
from digrad.networks.structure import largest_rooted_part, roots

MOST = 20_000  # nodes and links that are taken away, one after the other


@dataclass(frozen=True)
class WeakPoint:
    """A node or link whose loss cuts others off, and what remains without it."""

    node: int | None
    link: tuple[int, int] | None
    remains: Nodes  # the most nodes that still have a common root among themselves
    cut_off: Nodes  # the others, the lost node not counted

    def name(self, net: Network) -> str:
        """Say what was lost."""
        if self.link is None:
            return f"node {net.name(self.node or 0)}"
        j, i = self.link
        return f"link {net.name(j)} -> {net.name(i)}"


@dataclass(frozen=True)
class Losses:
    """All single points of failure of a network."""

    network: Network
    nodes: list[WeakPoint]
    links: list[WeakPoint]

    def to_dict(self) -> dict[str, Any]:
        """Return them ready for JSON, by names."""
        net = self.network
        told = {"nodes": self.nodes, "links": self.links}
        return {
            kind: [
                {
                    "lost": loss.name(net),
                    "remain": len(loss.remains),
                    "cut_off": [net.name(int(i)) for i in loss.cut_off],
                }
                for loss in found
            ]
            for kind, found in told.items()
        }


def find_losses(network: Network) -> Losses:
    """Take away every node and every link in turn, from the pull and the push graph alike.

    >>> from digrad.networks import build
    >>> [loss.node for loss in find_losses(build("star", 4)).nodes]
    [0]
    """
    links = np.unique(np.vstack([network.pull_graph.edges, network.push_graph.edges]), axis=0)
    if network.n + len(links) > MOST:
        what = f"{network.n:,} nodes and {len(links):,} links are too many to lose in turn"
        raise ParameterError(what, hint=f"{param('losses')} takes up to {MOST:,} of them together")
    everybody = np.arange(network.n)
    nodes = [
        WeakPoint(i, None, remains, np.setdiff1d(everybody, [*remains, i]))
        for i, remains in _without_nodes(network)
    ]
    cut = [
        WeakPoint(None, link, remains, np.setdiff1d(everybody, remains))
        for link, remains in _without_links(network, links)
    ]
    return Losses(network, nodes, cut)


def _without_nodes(net: Network) -> Iterator[tuple[int, Nodes]]:
    for i in range(net.n if net.n > 1 else 0):
        rest = np.delete(np.arange(net.n), i)
        R, C = (W[rest][:, rest] for W in (net.R, net.C))
        if not _has_common_root(R, C):
            yield i, rest[largest_rooted_part(R, C)]


def _without_links(net: Network, links: Nodes) -> Iterator[tuple[tuple[int, int], Nodes]]:
    for j, i in links.tolist():
        R, C = (_cut(W, i, j) for W in (net.R, net.C))
        if not _has_common_root(R, C):
            yield (j, i), largest_rooted_part(R, C)


def _cut(W: csr_array, i: int, j: int) -> csr_array:
    entries = W.tocoo()
    row, column = entries.coords
    kept = (row != i) | (column != j)
    return csr_array((entries.data[kept], (row[kept], column[kept])), shape=W.shape)


def _has_common_root(R: csr_array, C: csr_array) -> bool:
    """Whether all nodes still have a common root (Assumption 2.1)."""
    return len(np.intersect1d(roots(R), roots(csr_array(C.T)))) > 0
