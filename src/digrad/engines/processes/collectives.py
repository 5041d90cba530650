"""Sums and collections over all ranks: for measuring, not for the network's own traffic."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from digrad.engines.transports.transport import Batch, Transport

AT_A_TIME = 1 << 18  # numbers that are summed at a time: bounds the buffers


class Collectives:
    """What all ranks do together, by plain messages, so that a failure names a rank.

    Args:
        transport: one that reaches all ranks.
        number: from a verb to the tag of the next exchange and the block to do it in.
    """

    def __init__(
        self,
        transport: Transport,
        rank: int,
        world: int,
        number: Callable[[str], tuple[int, AbstractContextManager[None]]],
    ) -> None:
        self._transport, self._number = transport, number
        self._rank, self._world = rank, world
        self._others = [peer for peer in range(world) if peer != rank]

    def gather(self, rows: Tensor, blocks: Sequence[int], verb: str) -> Tensor:
        """Return the rows of all ranks, which hold ``blocks`` of them, in order."""
        lead, width = rows.shape[:-2], rows.shape[-1]
        shapes = {peer: (*lead, blocks[peer], width) for peer in self._others}
        came = self._swap(dict.fromkeys(self._others, rows), shapes, rows, verb)
        return torch.cat([came[peer] for peer in range(self._world)], dim=-2)

    def total(self, part: Callable[[slice], Tensor], width: int, like: Tensor, verb: str) -> Tensor:
        """Return the sum over all ranks of ``part(columns)``, put together to all columns.

        ``like`` is an empty tensor of the leading axes, dtype and device of the result.
        """
        out = like.new_empty((*like.shape, width))
        step = max(1, AT_A_TIME // max(1, like.numel()))
        for first in range(0, width, step):
            columns = slice(first, min(first + step, width))
            out[..., columns] = self._sum(part(columns), verb)
        return out

    def _sum(self, part: Tensor, verb: str) -> Tensor:
        """Each rank sums its share of the numbers, in the order of the ranks, for all."""
        flat = part.contiguous().view(-1)
        cuts = [len(flat) * rank // self._world for rank in range(self._world + 1)]
        shares = [flat[low:high] for low, high in pairwise(cuts)]
        own = shares[self._rank]
        sends = {peer: shares[peer] for peer in self._others}
        came = self._swap(sends, dict.fromkeys(self._others, own.shape), own, verb)
        total = came[0].clone()
        for peer in range(1, self._world):
            total += came[peer]
        shapes = {peer: shares[peer].shape for peer in self._others}
        sums = self._swap(dict.fromkeys(self._others, total), shapes, total, verb)
        return torch.cat([sums[peer] for peer in range(self._world)]).view_as(part)

    def _swap(
        self,
        sends: Mapping[int, Tensor],
        shapes: Mapping[int, Sequence[int]],
        own: Tensor,
        verb: str,
    ) -> dict[int, Tensor]:
        """Send tensors to ranks, and return those that come from ranks beside one's own."""
        tag, naming = self._number(verb)
        outgoing = [((peer,), rows) for peer, rows in sends.items() if rows.numel()]
        incoming = [(peer, tuple(shape)) for peer, shape in shapes.items() if prod(shape)]
        came = {peer: own.new_empty(tuple(shape)) for peer, shape in shapes.items()}
        with naming:
            sending, receiving = self._transport.post(Batch(outgoing, incoming, own.dtype, tag))
            for (peer, _), rows in zip(incoming, receiving, strict=True):
                came[peer].copy_(rows.wait())
                rows.release()
            for sent in sending:
                sent.wait()
        return {**came, self._rank: own}
