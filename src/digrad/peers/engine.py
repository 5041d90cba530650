"""One node here, its neighbours at the other ends of its links: a mixer like the simulator."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from time import monotonic, perf_counter
from types import TracebackType

import torch
from torch import Tensor

from digrad.algorithms.contract import Change, Code, Mixer, Verb, changed
from digrad.base.errors import DigradError, ParameterError, message
from digrad.engines.processes.coded import CodedExchange
from digrad.engines.processes.engine import Coded, Sent
from digrad.engines.processes.exchange import Exchange, Mixing
from digrad.engines.processes.faults import PeerError
from digrad.engines.processes.routes import bounds_of, route
from digrad.engines.transports.buffers import TensorPool, keep_freed_memory
from digrad.engines.transports.transport import LinkError
from digrad.networks.network import Network
from digrad.peers.board import Links
from digrad.peers.ends import End, waiting_for
from digrad.peers.frames import RubbishError
from digrad.peers.trees import Collectives
from digrad.peers.wire import Wire

EXACT = torch.float64
KINDS = {"pull": 1, "push": 2}  # of exchanges; 3: among all nodes
LAST_WORDS = 10.0  # seconds in which neighbours take what was sent before a node leaves


class Peers:
    """One node, joined with its neighbours by links; a mixer like ``Simulator``.

    Rows are (..., 1, dim). Neighbours wait for neighbours only: a node may be as many steps ahead
    of another as there are links between them.

    Args:
        net: the network of this epoch.
        numbers: of the members of this epoch in the network of all.
        rank: the number of the node here in this epoch.
        links: its links, connected.
        message_dtype: what rows are rounded to when they travel.
    """

    world: int
    blocks: tuple[int, ...]

    def __init__(
        self,
        net: Network,
        numbers: Sequence[int],
        rank: int,
        links: Links,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        message_dtype: torch.dtype | None = None,
    ) -> None:
        self.n = self.world = net.n
        self.rank, self.blocks, self.links = rank, (1,) * net.n, links
        self.rows, self._numbers = slice(rank, rank + 1), torch.tensor(numbers)
        self.nodes = self._numbers[rank : rank + 1].to(device)
        self._device, self._dtype = torch.device(device), dtype
        self._message_dtype = message_dtype or dtype
        keep_freed_memory()
        bounds = bounds_of(net.n, net.n)
        self._mixing = {
            verb: Mixing.make(route(W, bounds, rank), self._device, dtype, self._message_dtype)
            for verb, W in (("pull", net.R), ("push", net.C))
        }
        self._wire = Wire(links)
        self._collectives = Collectives(net, self._wire, rank, self._number)
        self.sent, self.seconds, self._exchanges, self._results = Sent(), 0.0, 0, TensorPool()
        self._begun: list[tuple[Verb, Exchange]] = []

    def at(self, t: int) -> "Peers":
        """Return the mixer of step t: this one, as long as the epoch lasts."""
        return self

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """R(X + Σ αD); into ``out`` if it is given, of the same shape."""
        return self._mix("pull", rows, changes, out)

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """C(X + Σ αD); into ``out`` as in ``pull``."""
        return self._mix("push", rows, changes, out)

    def coded(self, code: Code) -> Mixer:
        """Return a mixer for the rows that a code stands for: their bytes travel instead."""
        return Coded(self, code)

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X, X being the rows that a code stands for on each node."""
        self._check(rows)
        mixing, start = self._mixing[verb], perf_counter()
        self._count(mixing, rows, code.row_bytes(rows))
        tag, naming = self._number(verb)
        # Who draws does so by its number in the network of all, which no epoch changes.
        exchange = CodedExchange(mixing, self._wire, rows, code, tag, naming, self._numbers)
        mixed = exchange.finish(self._results.take(rows))
        self.seconds += perf_counter() - start
        return mixed

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Send rows now; the next call of the verb with this very tensor ends it."""
        self._begun.append((verb, self._exchange(verb, rows, early=True)))

    def forget(self) -> None:
        """End what was begun and will not be asked for; every node has to."""
        while self._begun:
            self._finish(self._begun.pop(0)[1])

    def _mix(
        self, verb: Verb, rows: Tensor, changes: Sequence[Change], out: Tensor | None
    ) -> Tensor:
        rows = changed(rows, changes)
        start = perf_counter()
        begun = [pair for pair in self._begun if pair[0] == verb and pair[1].rows is rows][:1]
        self._begun = [pair for pair in self._begun if pair not in begun]
        exchange = begun[0][1] if begun else self._exchange(verb, rows, early=False)
        mixed = self._finish(exchange)
        self.seconds += perf_counter() - start
        # Only now: a model that an exchange was cut off in must stay what it was.
        return mixed if out is None else out.copy_(mixed)

    def _finish(self, exchange: Exchange) -> Tensor:
        return exchange.finish(self._results.take(exchange.rows))

    def _exchange(self, verb: Verb, rows: Tensor, *, early: bool) -> Exchange:
        self._check(rows)
        mixing = self._mixing[verb]
        # Every model is divided by its push-sum weight, which is only one number: not rounded.
        dtype = rows.dtype if rows.shape[-1] == 1 else self._message_dtype
        self._count(mixing, rows, rows.shape[-1] * dtype.itemsize)
        tag, naming = self._number(verb)
        return Exchange(mixing, self._wire, rows, dtype, tag, naming, early=early)

    def _count(self, mixing: Mixing, rows: Tensor, row_bytes: int) -> None:
        links = mixing.route.links * prod(rows.shape[:-2])
        size = links * row_bytes
        self.sent.messages, self.sent.bytes = self.sent.messages + links, self.sent.bytes + size
        self.sent.wire_messages, self.sent.wire_bytes = self.sent.messages, self.sent.bytes

    def _check(self, rows: Tensor) -> None:
        if rows.dim() < 2 or rows.shape[-2] != 1 or rows.dtype != self._dtype:
            raise ParameterError(
                message(
                    f"a peer holds one node in {self._dtype}, but was given rows of shape "
                    f"{tuple(rows.shape)} in {rows.dtype}",
                    hint="rows are (..., 1, dim), in the engine's dtype",
                )
            )

    def _number(self, verb: str) -> tuple[int, "Naming"]:
        """Return the tag of the next exchange, and the block that names who fails in it."""
        self._exchanges += 1
        tag = 4 * self._exchanges + KINDS.get(verb, 3)
        return tag, Naming(self.links, f"in exchange {self._exchanges} ({verb})")

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all; not counted."""
        self._check(rows)
        return self._collectives.total(rows / self.n, "mean")

    def weighted(self, rows: Tensor, weights: Tensor, /) -> Tensor:
        """Return Σᵢ wᵢ xᵢ over all nodes, on every node, in float64; not counted."""
        self._check(rows)
        own = rows[..., 0, :].to(EXACT) * weights[self.rank].to(rows.device, EXACT)
        return self._collectives.total(own, "weighted")

    def gather(self, rows: Tensor, /) -> Tensor:
        """Return the rows of all nodes, on every node; not counted."""
        self._check(rows)
        return self._collectives.gather(rows, "gather")

    def hand(self, rows: Tensor, peer: int) -> None:
        """Hand rows to a neighbour, and wait until they are there."""
        with Naming(self.links, "handing over"):
            self._collectives.hand(rows, peer)
        self.links.outlets[peer].flush(monotonic() + LAST_WORDS)

    def inherit(self, like: Tensor, peer: int) -> Tensor:
        """Take rows over from a neighbour."""
        with Naming(self.links, "taking over"):
            return self._collectives.inherit(like, peer)

    def fail(self, reason: str) -> None:
        """Tell the neighbours why this node stops, so that their errors can say so."""
        self.links.leave(f"stopped: {reason}", LAST_WORDS)

    def close(self) -> None:
        """Send what is on its way, then hang up."""
        self._begun.clear()
        self.links.leave("", LAST_WORDS)

    def __enter__(self) -> "Peers":
        """Use the engine in a ``with`` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; neighbours hear of an exception."""
        with suppress(DigradError):
            if error is None:
                self.close()
            else:
                self.fail(str(error).partition("\n")[0] or type(error).__name__)


class Naming:
    """A ``with`` block in which links may fail; ``doing`` says what for."""

    def __init__(self, links: Links, doing: str) -> None:
        self._links, self._doing = links, doing

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Name who was behind a failure."""
        if isinstance(error, LinkError | RubbishError):
            raise PeerError(self._verdict(error)) from error

    def _verdict(self, error: LinkError | RubbishError) -> str:
        if isinstance(error, RubbishError):
            return message(str(error), self._doing)
        ends: Mapping[int, End] = {**self._links.outlets, **self._links.inlets}
        names = " and ".join(ends[rank].peer for rank in error.peers)
        hint = f"look at the output of {names}"
        if error.timed_out:
            hint += "; if it only takes longer, raise the timeout in the membership file"
        return message(waiting_for(error, dict(ends)), self._doing, hint=hint)
