"""The links of a network that changes: which of them carry something in a step, and how long."""

from dataclasses import dataclass

import numpy as np

from digrad.clocks.clock import Clock
from digrad.clocks.draws import Floats, Integers
from digrad.networks.timetable import Timetable

NEVER = -np.inf  # the delay of what is not sent: nobody waits for it


@dataclass(frozen=True, eq=False)
class ChangingLinkDelays:
    """All links of a timetable that a method ever uses; ``over`` has the delays of each step.

    A message that the timetable loses is waited for as long as it would have taken: who waits
    for it knows by then. A clock's own losses are sent again, here as elsewhere.
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
                    times[k, sent] = clock.steady(edges, sizes, slot.capacities)
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
