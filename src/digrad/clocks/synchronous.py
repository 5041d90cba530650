"""When the steps of a synchronous method end: nodes wait for neighbours, or at a barrier.

A step is a gradient and some exchanges, of which each may wait for the gradient and for others.
An exchange that waits for nothing leaves when the step begins, and overlaps with the computing.

    ready_j = the end of all that j waits for
    done_i  = max over j in {i} and in-neighbours of ready_j + delay(j -> i)

and the step of a node ends with its last exchange. At a barrier all wait for the last of all,
at the end of computing and of each exchange. A lost message is sent again after a timeout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from digrad.clocks.clock import Clock
from digrad.clocks.draws import LOSS, Floats, Integers, uniform
from digrad.clocks.links import ChangingLinkDelays, LinkDelays

STRETCH = 64  # steps whose times are drawn at once


class Trip(NamedTuple):
    """What leaves a node at one moment of a step."""

    links: LinkDelays | ChangingLinkDelays
    after_gradient: bool
    after: tuple[int, ...]  # earlier trips that it waits for
    to_all: bool = False  # by way of a server: there and back


class ComputeSpan(NamedTuple):
    """What the nodes did in one step: each computed from ``start`` and waited until ``end``."""

    start: Floats
    computed: Floats
    end: Floats


@dataclass(frozen=True, eq=False)
class SynchronousSchedule:
    """The steps of a synchronous method on a clock.

    Args:
        clock: how long things take.
        n: nodes.
        trips: what a step sends.
        gradients: that each node computes in a step.
    """

    clock: Clock
    n: int
    trips: Sequence[Trip]
    gradients: int = 1
    _ends: dict[int, Floats] = field(default_factory=dict, repr=False)  # by steps

    def time(self, steps: int) -> float:
        """Return when the last node has done so many steps."""
        return float(self._end(steps).max())

    def starts(self, step: int) -> Floats:
        """Return when each node begins a step."""
        return self._end(step)

    def spans(self, start: int, stop: int) -> list[ComputeSpan]:
        """Return what happened in steps start .. stop - 1."""
        found, end = [], self._end(start)
        for first in range(start, stop, STRETCH):
            last = min(stop, first + STRETCH)
            computing, delays = self._drawn(first, last)
            for k in range(last - first):
                found.append(self._step(end, computing[k], [d[k] for d in delays]))
                end = found[-1].end
            self._ends[last] = end
        return found

    def _end(self, steps: int) -> Floats:
        if steps not in self._ends:
            self._ends.setdefault(0, np.zeros(self.n))
            self.spans(max(s for s in self._ends if s <= steps), steps)
        return self._ends[steps]

    def _step(self, start: Floats, computing: Floats, delays: list[Floats]) -> ComputeSpan:
        computed = start + computing
        meet = self.clock.waiting == "barrier"
        if meet:
            computed = np.full(self.n, computed.max())
        done: list[Floats] = []
        for trip, delay in zip(self.trips, delays, strict=True):
            ready = np.maximum.reduce([
                start, *([computed] if trip.after_gradient else []), *(done[k] for k in trip.after)
            ])  # fmt: skip
            arrived = ready.copy()
            if trip.to_all:
                arrived[:] = ready.max() + 2 * delay.max(initial=0.0)
            else:
                senders, receivers = trip.links.edges.T
                np.maximum.at(arrived, receivers, ready[senders] + delay)
            done.append(np.full(self.n, arrived.max()) if meet else arrived)
        return ComputeSpan(start, start + computing, np.maximum.reduce([computed, *done]))

    def _drawn(self, start: int, stop: int) -> tuple[Floats, list[Floats]]:
        """Return computing times (steps, nodes), and delays (steps, links) of each trip."""
        number = np.arange(start * self.gradients, stop * self.gradients)
        node = np.arange(self.n)
        spent = self.clock.compute_times(*np.broadcast_arrays(node[None], number[:, None]))
        computing = spent.reshape(stop - start, self.gradients, self.n).sum(1)
        delays = [self._delays(e, trip.links, start, stop) for e, trip in enumerate(self.trips)]
        return computing, delays

    def _delays(
        self, e: int, links: LinkDelays | ChangingLinkDelays, start: int, stop: int
    ) -> Floats:
        number = np.arange(start, stop) * self._rows + e  # of messages on a link
        shape = stop - start, len(links.edges)
        flat = np.repeat(number, shape[1])
        sender, receiver = (np.tile(side, shape[0]) for side in links.edges.T)
        again = self.clock.timeout * self._losses(sender, receiver, flat)
        jitter = self.clock.jitters(sender, receiver, flat)
        return np.asarray(links.over(range(start, stop)) + (jitter + again).reshape(shape))

    @cached_property
    def _rows(self) -> int:
        return max(1, len(self.trips))

    def _losses(self, sender: Integers, receiver: Integers, number: Integers) -> Floats:
        """Return how often each message is lost before it arrives."""
        count = np.zeros(len(number))
        if not self.clock.loss:
            return count
        most = self.clock.losses_in_a_row
        still = np.arange(len(number))
        for attempt in range(most):
            tried = number[still] * (most + 1) + attempt
            u = uniform(self.clock.seed, LOSS, sender[still], tried, receiver[still])
            still = still[u < self.clock.loss]
            count[still] += 1
        return count
