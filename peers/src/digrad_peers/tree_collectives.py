"""Sums over all nodes, by the links there are: up a tree of push links, down one of pull links.

A common root is what the theory asks of every network (Assumption 2.1): each node reaches it by
push links, and it reaches each node by pull links. So a sum needs no link that is not there.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order
from torch import Tensor

from digrad.engines.transports.transport import Batch, Transport
from digrad.networks.network import Network

LEGACY = 2  # the tag of what is handed over; exchanges begin at 4
AT_A_TIME = 1 << 20  # numbers that travel at a time
Numbered = Callable[[str], tuple[int, AbstractContextManager[None]]]


@dataclass(frozen=True)
class Tree:
    """One node's place in a tree: where its sums go, and where they come from."""

    parent: int | None
    children: tuple[int, ...]

    @classmethod
    def around(cls, W: csr_array, root: int, rank: int) -> "Tree":
        """Return a node's place in the tree of shortest ways from a root by W[child, parent].

        >>> from digrad.networks import build
        >>> Tree.around(build("directed-ring", 4).R, 0, rank=2)
        Tree(parent=1, children=(3,))
        """
        _, before = breadth_first_order(csr_array(W.T), root)
        parents: NDArray[np.int64] = np.asarray(before, dtype=np.int64)
        children = tuple(np.flatnonzero(parents == rank).tolist())
        return cls(int(parents[rank]) if rank != root else None, children)


class TreeCollectives:
    """What all nodes do together; every node must ask, in the same order.

    Args:
        number: from a verb to the tag of the next exchange and the block to do it in.
    """

    def __init__(self, net: Network, transport: Transport, rank: int, number: Numbered) -> None:
        root = int(net.roots[0])
        self._up = Tree.around(csr_array(net.C.T), root, rank)
        self._down = Tree.around(net.R, root, rank)
        self._transport, self._number, self._n, self._rank = transport, number, net.n, rank

    def total(self, part: Tensor, verb: str) -> Tensor:
        """Return the sum over all nodes of a tensor, on every node; the same bits everywhere."""
        flat = part.contiguous().view(-1)
        out = torch.empty_like(flat)
        for first in range(0, len(flat), AT_A_TIME):
            out[first : first + AT_A_TIME] = self._sum(flat[first : first + AT_A_TIME], verb)
        return out.view(part.shape)

    def _sum(self, part: Tensor, verb: str) -> Tensor:
        tag, naming = self._number(verb)
        with naming:
            total = part.clone()
            for rows in self._from(self._up.children, part, tag):
                total += rows
            if self._up.parent is not None:
                self._to((self._up.parent,), total, tag)
            if self._down.parent is not None:
                (total,) = self._from((self._down.parent,), part, tag)
            self._to(self._down.children, total, tag)
        return total

    def gather(self, rows: Tensor, verb: str) -> Tensor:
        """Return the rows (..., 1, dim) of all nodes, as (..., n, dim), on every node."""
        whole = rows.new_zeros((*rows.shape[:-2], self._n, rows.shape[-1]))
        whole[..., self._rank, :] = rows[..., 0, :]
        return self.total(whole, verb)  # the others' places hold zeros

    def hand(self, rows: Tensor, peer: int) -> None:
        """Send rows to one neighbour, which ``inherit``s them."""
        self._to((peer,), rows, LEGACY)

    def inherit(self, like: Tensor, peer: int) -> Tensor:
        """Wait for the rows that a neighbour hands over."""
        return self._from((peer,), like, LEGACY)[0]

    def _from(self, peers: Sequence[int], like: Tensor, tag: int) -> list[Tensor]:
        shape = tuple(like.shape)
        incoming = [(peer, shape) for peer in peers]
        _, receiving = self._transport.post(Batch([], incoming, like.dtype, tag))
        came = []
        for each in receiving:
            came.append(each.wait().to(like.device, copy=True))
            each.release()
        return came

    def _to(self, peers: Sequence[int], rows: Tensor, tag: int) -> None:
        self._transport.post(Batch([(tuple(peers), rows)], [], rows.dtype, tag))
