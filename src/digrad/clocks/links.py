"""The links over which messages travel, numbered by sender and then receiver, and their delays."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from digrad.clocks.clock import Clock
from digrad.clocks.draws import Floats, Integers
from digrad.networks.network import Network
from digrad.networks.timetable import Timetable

NEVER = -np.inf  # the delay of what is not sent: no node waits for it


@dataclass(frozen=True, eq=False)
class LinkDelays:
    """All links of a network that a method uses, with the steady part of their delays."""

    n: int
    edges: Integers  # (links, 2): sender, receiver; sorted
    delays: Floats  # (links,)

    @classmethod
    def of(
        cls, net: Network, clock: Clock, pull_bytes: float, push_bytes: float, scalars: float = 0.0
    ) -> "LinkDelays":
        """Take the links of R and of C, each if something travels over it; one message for both.

        Args:
            net: the network.
            clock: for the delays.
            pull_bytes: of a message over the links of R; 0 if nothing is sent there.
            push_bytes: the same for C.
            scalars: bytes that go along in every message.
        """
        clock.check(net.n)
        pulls = net.pull_graph.edges if pull_bytes else np.zeros((0, 2), dtype=np.int64)
        pushes = net.push_graph.edges if push_bytes else np.zeros((0, 2), dtype=np.int64)
        both = np.vstack([pulls, pushes])
        each = np.repeat([pull_bytes, push_bytes], [len(pulls), len(pushes)])
        edges, place = np.unique(both, axis=0, return_inverse=True)
        sizes = np.bincount(place.ravel(), each, minlength=len(edges)) + scalars
        return cls(
            net.n, edges, clock.steady_delays(edges, np.asarray(sizes, np.float64), net.capacities)
        )

    def over(self, steps: range) -> Floats:
        """Return the steady part of the delays in some steps, (steps, links): always the same."""
        return np.broadcast_to(self.delays, (len(steps), len(self.delays)))

    @cached_property
    def first_out(self) -> Integers:
        """The links of sender j are number ``first_out[j] .. first_out[j + 1] - 1``, (n + 1,)."""
        return np.searchsorted(self.edges[:, 0], np.arange(self.n + 1)).astype(np.int64)

    @cached_property
    def inward(self) -> tuple[list[int], ...]:
        """The links that end at each node, by their senders."""
        order = np.lexsort((self.edges[:, 0], self.edges[:, 1]))
        bounds = np.searchsorted(self.edges[order, 1], np.arange(1, self.n))
        return tuple(part.tolist() for part in np.split(order, bounds))

    @cached_property
    def outward(self) -> tuple[range, ...]:
        """The links that start at each node."""
        return tuple(range(a, b) for a, b in pairwise(self.first_out.tolist()))


@dataclass(frozen=True, eq=False)
class ChangingLinkDelays:
    """All links of a timetable that a method ever uses; ``over`` has the delays of each step.

    A message that the timetable loses is waited for as long as it would have taken. Messages
    that the clock loses are sent again, as on networks that stay as they are.
    """

    n: int
    edges: Integers  # (links, 2): sender, receiver
    _net: Timetable
    _times: Floats  # (slots, 4, links): nothing, a pull, a push or both in one message

    @classmethod
    def of(
        cls, net: Timetable, clock: Clock, pull_bytes: float, push_bytes: float
    ) -> "ChangingLinkDelays":
        """Take the links of all slots; arguments as in ``Links.of``."""
        clock.check(net.n)
        receivers, senders = net.links // net.n, net.links % net.n
        edges = np.stack([senders, receivers], axis=1)
        times = np.full((len(net.slots), 4, len(edges)), NEVER)
        for k, slot in enumerate(net.slots):
            for sent, size in enumerate((0.0, pull_bytes, push_bytes, pull_bytes + push_bytes)):
                if size:
                    sizes = np.full(len(edges), size)
                    times[k, sent] = clock.steady_delays(edges, sizes, slot.capacities)
        return cls(net.n, edges, net, times)

    def over(self, steps: range) -> Floats:
        """Return the steady part of the delays, (steps, links)."""
        pulls, pushes = self._net.sent(steps)
        places = np.array([self._net.place(t) or 0 for t in steps])
        kinds = pulls + 2 * pushes
        return np.asarray(self._times[places[:, None], kinds, np.arange(len(self.edges))])

    @property
    def delays(self) -> Floats:
        """The longest steady delay of each link in any slot."""
        return np.asarray(self._times.max(axis=(0, 1), initial=0.0))
