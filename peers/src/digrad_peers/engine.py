"""One node here, its neighbours at the other ends of its links: a mixer like the simulator."""

from collections.abc import Sequence
from time import monotonic

import torch
from scipy.sparse import csr_array
from torch import Tensor

from digrad.base.errors import ParameterError
from digrad.engines.processes.exchange import Exchange, RankMatrix
from digrad.engines.processes.faults import Naming, PeerError
from digrad.engines.processes.linked import LinkedRows
from digrad.engines.processes.routes import bounds_of, route
from digrad.engines.transports.buffers import keep_freed_memory
from digrad.engines.transports.transport import LinkError
from digrad.networks import AnyNetwork, Network
from digrad_peers.frames import ProtocolError
from digrad_peers.link_ends import LinkEnd, waiting_for
from digrad_peers.link_listener import EpochLinks
from digrad_peers.link_transport import LinkTransport
from digrad_peers.tree_collectives import TreeCollectives

EXACT = torch.float64
KINDS = {"pull": 1, "push": 2}  # of exchanges; 3: among all nodes
LAST_WORDS = 10.0  # seconds in which neighbours take what was sent before a node leaves


class PeerEngine(LinkedRows):
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

    network: AnyNetwork
    world: int
    blocks: tuple[int, ...]

    def __init__(
        self,
        net: Network,
        numbers: Sequence[int],
        rank: int,
        links: EpochLinks,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        message_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dtype, message_dtype)
        self.network, self.n, self.world = net, net.n, net.n
        self.rank, self.blocks, self.links = rank, (1,) * net.n, links
        self._faults = LinkFaults(links)
        self.rows, self._device = slice(rank, rank + 1), torch.device(device)
        # Who draws does so by its number in the network of all, which no epoch changes.
        self._numbers = torch.tensor(numbers)
        self.nodes = self._numbers[rank : rank + 1].to(device)
        keep_freed_memory()
        self._mixing = {"pull": self._route(net.R), "push": self._route(net.C)}
        self._transport, self._exchanges = LinkTransport(links), 0
        self._collectives = TreeCollectives(net, self._transport, rank, self._number)

    def _route(self, W: csr_array) -> RankMatrix:
        own = route(W, bounds_of(self.n, self.n), self.rank)
        return RankMatrix.make(own, self._device, self.dtype, self._message_dtype)

    def at(self, t: int) -> "PeerEngine":
        """Return the mixer of step t: this one, as long as the epoch lasts."""
        return self

    def _finish(self, exchange: Exchange, out: Tensor | None = None) -> Tensor:
        mixed = super()._finish(exchange)
        # Only now: a model that an exchange was cut off in must stay what it was.
        return mixed if out is None else out.copy_(mixed)

    def _check(self, rows: Tensor) -> None:
        if rows.dim() < 2 or rows.shape[-2] != 1 or rows.dtype != self.dtype:
            what = f"a peer holds one node in {self.dtype}, but was given rows of shape "
            what += f"{tuple(rows.shape)} in {rows.dtype}"
            hint = "rows are (..., 1, dim), in the engine's dtype"
            raise ParameterError(what, hint=hint)

    def _number(self, verb: str) -> tuple[int, Naming]:
        """Return the tag of the next exchange, and the block that names who fails in it."""
        self._exchanges += 1
        tag = 4 * self._exchanges + KINDS.get(verb, 3)
        return tag, Naming(self._faults, f"in exchange {self._exchanges} ({verb})")

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
        with Naming(self._faults, "handing over"):
            self._collectives.hand(rows, peer)
        self.links.outlets[peer].flush(monotonic() + LAST_WORDS)

    def inherit(self, like: Tensor, peer: int) -> Tensor:
        """Take rows over from a neighbour."""
        with Naming(self._faults, "taking over"):
            return self._collectives.inherit(like, peer)

    def fail(self, reason: str) -> None:
        """Tell the neighbours why this node stops, so that their errors can say so."""
        self.links.leave(f"stopped: {reason}", LAST_WORDS)

    def close(self) -> None:
        """Send what is on its way, then hang up."""
        self._begun.clear()
        self.links.leave("", LAST_WORDS)


class LinkFaults:
    """Makes of a link that failed an error that names the neighbour behind it."""

    def __init__(self, links: EpochLinks) -> None:
        self._links = links

    def check(self) -> None:
        """Do nothing: after a failure the next epoch has other links."""

    def name_culprit(self, error: BaseException, doing: str) -> PeerError | None:
        """Name who was behind a failure."""
        if isinstance(error, ProtocolError):
            return PeerError(str(error), doing)
        if not isinstance(error, LinkError):
            return None
        ends: dict[int, LinkEnd] = {**self._links.outlets, **self._links.inlets}
        names = " and ".join(ends[rank].peer for rank in error.peers)
        hint = f"look at the output of {names}"
        if error.timed_out:
            hint += "; if it only takes longer, raise the timeout in the membership file"
        return PeerError(waiting_for(error, ends), doing, hint=hint)
