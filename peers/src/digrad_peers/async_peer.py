"""A node that waits for nobody: an asynchronous method on the links of one node.

The method is the same object as in the event engine; here it sees one node, and its inbox is what
has come over that node's links. What counts as the newest value or as a running sum may be
replaced before it leaves, so a slow or broken link delays nobody; shares all arrive, once each.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.engines.event_state import StepSizes
from digrad.engines.processes.faults import PeerError
from digrad.engines.transports.transport import LinkError
from digrad.networks.network import Network
from digrad_peers.frames import ProtocolError
from digrad_peers.link_listener import EpochLinks
from digrad_peers.links import memory_of

TAG = 1  # no exchange of the synchronous engine has it
Gradient = Callable[[Tensor], Tensor]
Fields = dict[str, Tensor]


class ActivationRecord(NamedTuple):
    """One wake, for a replay: when, which of the node's, and which parcels it had before it."""

    time: float
    number: int
    read: dict[int, int]  # by sender: the number of its newest parcel; -1: only the first


class AsyncPeer:
    """One node of an asynchronous run.

    Args:
        method: what nodes do.
        net: the network of this epoch.
        rank: the node's number in it.
        links: its links, connected.
        x: where it starts, (dim,); the others may start elsewhere.
        steps: step sizes.
        record: whether to keep every wake in ``woken``.
    """

    def __init__(
        self,
        method: Asynchronous[Any, Any],
        net: Network,
        rank: int,
        links: EpochLinks,
        x: Tensor,
        steps: StepSizes,
        *,
        record: bool = False,
    ) -> None:
        self.method, self.links, self.steps = method, links, steps
        self.state = method.init(x.reshape(1, 1, -1).clone())
        self.activations, self._record, self._rank = list[ActivationRecord](), record, rank
        self.counts = torch.zeros(
            net.n, dtype=torch.int64
        )  # gradients of all nodes, as far as known
        self._began = time.monotonic()
        like = x.new_empty(0)
        self._own, self._kept = (like.new_tensor([[W[rank, rank]]]) for W in (net.R, net.C))
        self._pull = {j: float(net.R[rank, j]) for j in links.inlets}
        self._push = {j: float(net.C[rank, j]) for j in links.inlets}
        self._send(method.parcel(self.state), firm=True)
        self._newest: dict[int, Fields] = {}
        self._read = dict.fromkeys(links.inlets, -1)
        self.heard = time.monotonic()  # when anything came last
        self._await_first()
        self._looked = {j: dict(parcel) for j, parcel in self._newest.items()}

    def _await_first(self) -> None:
        """Wait for every neighbour's first parcel: what all hold of it before the first message."""
        for rank, inlet in self.links.inlets.items():
            try:
                buffer, size = inlet.take(TAG)
            except LinkError as error:
                raise PeerError(f"{inlet.peer} has sent nothing: {error}") from error
            self._newest[rank] = self._parse_parcel(buffer, size, inlet.peer)[1]
            inlet.give(buffer)

    @property
    def count(self) -> int:
        """How many gradients this node has given."""
        return int(self.counts[self._rank])

    @property
    def point(self) -> Tensor:
        """Where the next gradient is wanted, (dim,)."""
        return self.method.point(self.state).reshape(-1)

    @torch.no_grad()
    def step(self, gradient: Gradient) -> None:
        """Compute a gradient, read what has come meanwhile, give and take."""
        if any(end.over for end in self.links.ends):
            raise PeerError("the epoch is over")
        g = gradient(self.point).reshape(1, 1, -1)
        inbox = self._look()
        lr = self.steps.base * float(self.steps.factors(torch.tensor([self.count]).numpy())[0])
        self.state, parcel = self.method.give(self.state, g, inbox, lr)
        self.state = self.method.take(self.state, inbox)
        self.counts[self._rank] += 1
        self._send(parcel, firm=bool(self.method.adds))

    def _look(self) -> "LinkInbox":
        """Read what has come since the last time."""
        shares, came = dict[str, Tensor](), set[int]()
        for rank, inlet in self.links.inlets.items():
            for buffer, size in inlet.arrived(TAG):
                counts, fields = self._parse_parcel(buffer, size, inlet.peer)
                inlet.give(buffer)
                came.add(rank)
                self.counts, self.heard = torch.maximum(self.counts, counts), time.monotonic()
                self._read[rank], self._newest[rank] = int(counts[rank]) - 1, fields
                for name in self.method.adds:
                    share = self._push[rank] * fields[name]
                    shares[name] = shares[name] + share if name in shares else share
        for name in self.method.sums:
            for rank, fields in self._newest.items():
                grown = self._push[rank] * (fields[name] - self._looked[rank][name])
                shares[name] = shares[name] + grown if name in shares else grown
                self._looked[rank][name] = fields[name]
        now = time.monotonic()  # not before: what was read had been sent by then
        if self._record:
            self.activations.append(ActivationRecord(now, self.count, dict(self._read)))
        return LinkInbox(self, shares, came, now - self._began)

    def _send(self, parcel: Any, *, firm: bool) -> None:
        parts = [part.contiguous().reshape(-1).view(torch.uint8) for part in (self.counts, *parcel)]
        memory = memory_of(torch.cat(parts))
        for outlet in self.links.outlets.values():
            with suppress(LinkError):  # one that is lost, or done, needs nothing any more
                (outlet.send if firm else outlet.replace)(TAG, memory)

    def _parse_parcel(self, buffer: Tensor, size: int, whose: str) -> tuple[Tensor, Fields]:
        """Read a parcel; its parts are as long as one's own, or it is none."""
        like = {"": self.counts, **self.method.parcel(self.state)._asdict()}
        sizes = [part.numel() * part.element_size() for part in like.values()]
        if size != sum(sizes):
            raise ProtocolError(f"{whose} sent {size} bytes where {sum(sizes)} belong")
        parts = torch.split(buffer[:size], sizes)
        fields = {
            name: part.clone().view(own.dtype).view(own.shape)
            for (name, own), part in zip(like.items(), parts, strict=True)
        }
        return fields.pop("").clamp(min=0), fields


class LinkInbox:
    """What has come over the links of one node; see ``digrad.algorithms.asynchronous.Inbox``."""

    def __init__(
        self, node: AsyncPeer, shares: dict[str, Tensor], came: set[int], now: float
    ) -> None:
        self._node, self._shares, self._came = node, shares, came
        self.own, self.kept = node._own, node._kept
        self.now = torch.tensor([[now]], dtype=torch.float64)

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        return self._weighted_sum(name, self._node._newest)

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Σⱼ R[i, j] times the newest value, and Σⱼ R[i, j], of those that sent it since."""
        share = sum(self._node._pull[rank] for rank in self._came)
        return self._weighted_sum(name, self._came), torch.full_like(self.own, share)

    def _weighted_sum(self, name: str, ranks: Iterable[int]) -> Tensor:
        node = self._node
        total = torch.zeros_like(getattr(node.method.parcel(node.state), name))
        for rank in ranks:
            total = total + node._pull[rank] * node._newest[rank][name]
        return total

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new."""
        node = self._node
        none = torch.zeros_like(getattr(node.method.parcel(node.state), name))
        return self._shares.get(name, none)

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values."""
        rows = [fields[name] for fields in self._node._newest.values()]
        none = torch.zeros_like(getattr(self._node.method.parcel(self._node.state), name))
        return torch.stack([none, *rows]).amax(0)

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """The steps number first .. last."""
        return self._node.steps.total(first, last)
