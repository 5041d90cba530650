"""One product W X whose rows live on several ranks: what travels, and how it is added up.

Rows travel as they are, rounded, or in a code: few bytes, which stand for rows.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod

import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from digrad.algorithms.contract import Code
from digrad.engines.processes.routes import Packet, Route
from digrad.engines.simulator import WeightMatrix
from digrad.engines.transports.transport import Batch, Receiving, Sending, Transport

CHUNK_BYTES = 1 << 24  # of one message: bounds the buffers; smaller ones cost more in waking up
WINDOW = 2  # chunks whose sending need not be over when the next but one is added up


def in_one_chunk(rows: Tensor) -> bool:
    """Whether rows of one node per rank travel as a whole."""
    return rows.numel() * rows.element_size() <= CHUNK_BYTES


class WeightBlock:
    """One block of weights: its product with rows is put or added somewhere."""

    def __init__(self, W: csr_array, device: torch.device, dtype: torch.dtype) -> None:
        # A single weight needs no matrix, and then nothing but the result is allocated.
        self.weight = float(W.toarray()[0, 0]) if W.shape == (1, 1) else None
        self._product = WeightMatrix.of(W, device, dtype)
        self._dtype = dtype

    def put(self, rows: Tensor, into: Tensor) -> None:
        """Write W X."""
        if self.weight is not None:
            torch.mul(rows, self.weight, out=into)
        else:
            into.copy_(self._product(rows))

    def add(self, rows: Tensor, into: Tensor) -> None:
        """Add W X; the rows may be of a shorter type."""
        if self.weight is not None:
            into.add_(rows, alpha=self.weight)
        else:
            into.add_(self._product(rows.to(self._dtype)))


@dataclass(frozen=True, eq=False)
class RankMatrix:
    """One matrix as one rank uses it, with its weights on the device."""

    route: Route
    own: WeightBlock  # all weights among own nodes, or the diagonal alone when messages are rounded
    local: WeightBlock | None  # what own nodes send each other, rounded like any message
    arrivals: tuple[WeightBlock, ...]
    packets: tuple[tuple[tuple[int, ...], slice | Tensor | None], ...]  # ranks, rows (or all)
    expected: tuple[tuple[int, int], ...]  # rank, rows
    moves: tuple[float, ...] | None  # how far to go towards each row that arrives; see below

    @property
    def whole(self) -> bool:
        """Whether all own rows leave, together and as they are."""
        return len(self.packets) == 1 and self.packets[0][1] is None

    @classmethod
    def make(
        cls, route: Route, device: torch.device, dtype: torch.dtype, message_dtype: torch.dtype
    ) -> "RankMatrix":
        """Put the weights where the rows are."""
        diagonal = csr_array(diags_array(route.own.diagonal()))
        between = csr_array(route.own - diagonal)
        between.eliminate_zeros()
        rounded = message_dtype != dtype and between.nnz > 0
        own = WeightBlock(diagonal if rounded else route.own, device, dtype)
        arrivals = tuple(WeightBlock(arrival.weights, device, dtype) for arrival in route.arrivals)
        return cls(
            route,
            own,
            WeightBlock(between, device, dtype) if rounded else None,
            arrivals,
            tuple((packet.peers, _places(packet, route, device)) for packet in route.packets),
            tuple((arrival.peer, arrival.weights.shape[1]) for arrival in route.arrivals),
            averaging([own.weight, *(share.weight for share in arrivals)]),
        )


def averaging(weights: Sequence[float | None]) -> tuple[float, ...] | None:
    """Say how a weighted mean of rows comes about by moving from one row towards the next.

    From w₀x₀ + .. + wₖxₖ with Σw = 1: start at x₀ and go w₁/(w₀ + w₁) of the way to x₁, and
    so on. That reads every row once, one pass less than scaling and adding, and rows that
    agree stay as they are to the last bit. None where the sum is no mean of single rows.

    >>> averaging([0.5, 0.25, 0.25])
    (0.3333333333333333, 0.25)
    """
    known = [weight for weight in weights if weight is not None]
    if len(known) < len(weights) or known[0] == 0 or abs(sum(known) - 1) > 1e-12:
        return None
    return tuple(weight / sum(known[: k + 2]) for k, weight in enumerate(known[1:]))


def _places(packet: Packet, route: Route, device: torch.device) -> slice | Tensor | None:
    """Rows as a slice where they lie side by side, as none if all: they are not copied then."""
    first, last = int(packet.rows[0]), int(packet.rows[-1])
    if len(packet.rows) == route.own.shape[0]:
        return None
    if last - first + 1 == len(packet.rows):
        return slice(first, last + 1)
    return torch.from_numpy(packet.rows).to(device)


def rows_at(part: Tensor, places: slice | Tensor | None) -> Tensor:
    """Return some of the rows; all, if no places are given."""
    if places is None:
        return part
    return part[..., places, :] if isinstance(places, slice) else part.index_select(-2, places)


class Exchange:
    """One mixing under way: rows leave and come in chunks of columns.

    Own rows are counted first and then those of each rank in order, so that the result does
    not depend on who came first.

    Args:
        naming: a block for all that can fail; see ``faults``.
        early: whether all rows leave now, whenever the others come to read them.
    """

    def __init__(
        self,
        mixing: RankMatrix,
        transport: Transport,
        rows: Tensor,
        message_dtype: torch.dtype,
        tag: int,
        naming: AbstractContextManager[None],
        *,
        early: bool,
    ) -> None:
        self.rows = rows
        self._mixing, self._transport, self._naming = mixing, transport, naming
        self._dtype, self._tag, self._early = message_dtype, tag, early
        self._lead, self._width = tuple(rows.shape[:-2]), rows.shape[-1]
        # Every rank comes to the same chunks.
        each = message_dtype.itemsize * prod(self._lead) * max(1, mixing.route.widest)
        self._step = min(self._width, max(1, CHUNK_BYTES // max(1, each)))
        self._started = 0  # columns of chunks that are under way
        self._sending: deque[list[Sending]] = deque()
        self._receiving: deque[list[Receiving]] = deque()
        with naming:
            self._start()
            while early and self._started < self._width:
                self._start()

    def _columns(self, rows: Tensor, first: int) -> Tensor:
        """Return the columns of the chunk that begins there."""
        whole = self._step == self._width
        return rows if whole else rows.narrow(-1, first, min(self._step, self._width - first))

    def _start(self) -> None:
        """Post the messages of the next chunk, if there is one."""
        if self._started >= self._width:
            return
        part, mixing = self._columns(self.rows, self._started), self._mixing
        self._started += self._step
        outgoing = [(peers, rows_at(part, places)) for peers, places in mixing.packets]
        width = part.shape[-1]
        incoming = [(peer, (*self._lead, count, width)) for peer, count in mixing.expected]
        batch = Batch(outgoing, incoming, self._dtype, self._tag, self._early)
        sending, receiving = self._transport.post(batch)
        self._sending.append(sending)
        self._receiving.append(receiving)

    def finish(self, out: Tensor) -> Tensor:
        """Wait for what is under way, start the rest, and return the product in ``out``."""
        with self._naming:
            for first in range(0, self._width, max(1, self._step)):
                self._start()
                self._add_up(self._columns(self.rows, first), self._columns(out, first))
                if len(self._sending) > WINDOW:
                    self._sent()
            while self._sending:
                self._sent()
        return out

    def _add_up(self, own: Tensor, out: Tensor) -> None:
        mixing, receiving = self._mixing, self._receiving.popleft()
        if mixing.moves and self._dtype == own.dtype:
            here = own
            for move, rows in zip(mixing.moves, receiving, strict=True):
                torch.lerp(here, rows.wait().to(out.device), move, out=out)
                here = out
                rows.release()
            return
        mixing.own.put(own, out)
        if mixing.local is not None:
            mixing.local.add(own.to(self._dtype), out)
        for share, rows in zip(mixing.arrivals, receiving, strict=True):
            share.add(rows.wait().to(out.device), out)
            rows.release()

    def _sent(self) -> None:
        for rows in self._sending.popleft():
            rows.wait()


class CodedExchange:
    """One mixing under way; a row's bytes travel as a whole, since they are few.

    Args:
        rows: the own rows as the others will decode them.
        naming: a block for all that can fail; see ``faults``.
        numbers: by rank, the numbers by which nodes draw, if those are not their ranks.
    """

    def __init__(
        self,
        mixing: RankMatrix,
        transport: Transport,
        rows: Tensor,
        code: Code,
        tag: int,
        naming: AbstractContextManager[None],
        numbers: Tensor | None = None,
    ) -> None:
        self._numbers = numbers
        self._mixing, self._rows, self._code, self._naming = mixing, rows, code, naming
        lead, size = tuple(rows.shape[:-2]), code.row_bytes(rows)
        with naming:
            content = code.bytes() if mixing.packets else None
            outgoing = [
                (peers, rows_at(content, places))
                for peers, places in mixing.packets
                if content is not None
            ]
            incoming = [(peer, (*lead, count, size)) for peer, count in mixing.expected]
            batch = Batch(outgoing, incoming, torch.uint8, tag)
            self._sending, self._receiving = transport.post(batch)

    def finish(self, out: Tensor) -> Tensor:
        """Wait for what is under way and return the product in ``out``."""
        mixing, rows = self._mixing, self._rows
        mixing.own.put(rows, out)
        if mixing.local is not None:
            mixing.local.add(rows, out)
        with self._naming:
            arrivals = zip(mixing.arrivals, mixing.route.arrivals, self._receiving, strict=True)
            for share, arrival, receiving in arrivals:
                content = receiving.wait().to(out.device)
                nodes = torch.from_numpy(arrival.nodes)
                nodes = nodes if self._numbers is None else self._numbers[nodes]
                like = out.new_empty(()).expand(*out.shape[:-2], len(nodes), out.shape[-1])
                share.add(self._code.rows(content, like, nodes), out)
                receiving.release()
            for sending in self._sending:
                sending.wait()
        return out
