"""When nodes wake, and at which of its own wakes the receiver of each message reads it.

No node waits, so the wakes of a node are the sums of its computing times, and all follows from
sorting. A *round* is n wakes, of whichever nodes: n gradients.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from digrad.base.digests import arrays_digest
from digrad.clocks.clock import Clock
from digrad.clocks.draws import Floats, Integers
from digrad.clocks.links import LinkDelays

SPARE = 8  # wakes of each node that are drawn beyond the number expected


class Activations(NamedTuple):
    """Some wakes in the order in which they happen: by time, then by node."""

    node: Integers
    number: Integers  # which wake of that node: also which gradient, and which messages
    time: Floats
    reads: Integers  # by wake and out-link: the receiver's wake that reads it first; -1: lost


class Position(NamedTuple):
    """Where a calendar is after some rounds."""

    done: Integers  # wakes of each node so far
    time: Floats  # of its last one


@dataclass(frozen=True, eq=False)
class Calendar:
    """The wakes of all nodes, made in stretches; the same however they are cut."""

    clock: Clock
    links: LinkDelays
    _known: dict[int, Position] = field(default_factory=dict, repr=False)  # by rounds

    def rounds(self, start: int, stop: int) -> Activations:
        """Return the wakes of rounds start .. stop - 1."""
        n = self.links.n
        count, time = self._position(start)
        ahead = (stop - start) + SPARE
        while True:
            times = self._times(count, time, ahead)
            order = _first(times, (stop - start) * n)
            if order is not None:
                node, step = order
                found = times[node, step]
                reads = self._reads(node, step, found, count, times)
                if reads is not None:
                    break
            ahead *= 2
        done = np.bincount(node, minlength=n)
        last = np.where(done > 0, times[np.arange(n), np.maximum(done - 1, 0)], time)
        self._known[stop] = Position(count + done, last)
        return Activations(node, count[node] + step, found, reads)

    def time(self, rounds: int) -> float:
        """Return when so many rounds are done: 0 before the first wake."""
        return float(self._position(rounds).time.max(initial=0.0)) if rounds else 0.0

    def exchanges(self, rounds: int) -> Integers:
        """Return how often each node has sent by then: after each of its gradients."""
        return self._position(rounds).done

    def digest(self, rounds: int) -> str:
        """Return a checksum of the first rounds."""
        return arrays_digest(*self.rounds(0, rounds))

    def _position(self, rounds: int) -> Position:
        if rounds not in self._known:
            n = self.links.n
            before = max((r for r in self._known if r <= rounds), default=0)
            self._known.setdefault(0, Position(np.zeros(n, np.int64), np.zeros(n)))
            for start in range(before, rounds, 256):  # only for where it ends
                self.rounds(start, min(rounds, start + 256))
        return self._known[rounds]

    def _times(self, count: Integers, time: Floats, ahead: int) -> Floats:
        """Return when each node wakes next, (n, ahead)."""
        number = count[:, None] + np.arange(ahead)
        node = np.broadcast_to(np.arange(len(count))[:, None], number.shape)
        spent = self.clock.compute_times(node, number)
        return np.cumsum(np.concatenate([time[:, None], spent], axis=1), axis=1)[:, 1:]

    def _reads(
        self, node: Integers, step: Integers, time: Floats, count: Integers, times: Floats
    ) -> Integers | None:
        """Return the first wake of the receiver at or after each arrival; none if unknown yet."""
        first = self.links.first_out
        degree = np.diff(first)[node]
        wake = np.repeat(np.arange(len(node)), degree)
        within = np.arange(len(wake)) - np.repeat(np.cumsum(degree) - degree, degree)
        link = first[node][wake] + within
        sender, receiver = self.links.edges[link].T
        number = (count[node] + step)[wake]
        delay = self.links.delays[link] + self.clock.jitters(sender, receiver, number)
        arrival = time[wake] + delay
        # A message without delay is there for nodes that wake later in that instant.
        late = (delay == 0) & (sender > receiver)
        arrival[late] = np.nextafter(arrival[late], np.inf)
        lost = self.clock.is_lost(sender, receiver, number)
        reads = np.full(len(link), -1)
        order = np.argsort(receiver, kind="stable")
        bounds = np.searchsorted(receiver[order], np.arange(self.links.n + 1))
        for i, (a, b) in enumerate(pairwise(bounds)):
            some = order[a:b]
            found = np.searchsorted(times[i], arrival[some], side="left")
            if len(found) and found[~lost[some]].max(initial=0) >= times.shape[1]:
                return None
            reads[some] = np.where(lost[some], -1, count[i] + found)
        return reads


def _first(times: Floats, wanted: int) -> tuple[Integers, Integers] | None:
    """Return the first wakes by time and node; none if more have to be drawn to know them."""
    horizon = times[:, -1].min()
    node, step = np.nonzero(times <= horizon)
    if len(node) < wanted:
        return None
    order = np.lexsort((node, times[node, step]))[:wanted]
    return node[order], step[order]
