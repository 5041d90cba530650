"""When nodes meet: gradients one after the other, some of which end in a meeting."""

import heapq
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from digrad.clocks.calendar import Calendar
from digrad.clocks.clock import Clock
from digrad.clocks.draws import PARTNER, Floats, Integers, uniform
from digrad.clocks.links import LinkDelays


class MeetingEvents(NamedTuple):
    """Gradients in the order in which they end, and the partner each node then meets; -1: none."""

    node: Integers
    number: Integers
    time: Floats
    partner: Integers


class Meetings:
    """Nodes that meet a neighbour at random after each gradient, without waiting."""

    def __init__(self, clock: Clock, links: LinkDelays) -> None:
        self.clock, self.links = clock, links
        self._others = [links.edges[list(out), 1] for out in links.outward]
        apart = LinkDelays(links.n, np.zeros((0, 2), np.int64), np.zeros(0))
        self._calendar = Calendar(clock, apart)

    def rounds(self, start: int, stop: int) -> MeetingEvents:
        """Return the gradients of rounds start .. stop - 1."""
        node, number, time, _ = self._calendar.rounds(start, stop)
        return MeetingEvents(node, number, time, self.partners(node, number))

    def partners(self, node: Integers, number: Integers) -> Integers:
        """Return a neighbour at random, as a function of node and number."""
        u = uniform(self.clock.seed, PARTNER, node, number, -1)
        return np.array(
            [
                self._others[i][int(x * len(self._others[i]))] if len(self._others[i]) else -1
                for i, x in zip(node.tolist(), u.tolist(), strict=True)
            ],
            dtype=np.int64,
        )

    def time(self, rounds: int) -> float:
        """Return when so many rounds are done."""
        return self._calendar.time(rounds)

    def meetings(self, rounds: int) -> int:
        """Return how many meetings there have been by then."""
        return rounds * self.links.n


@dataclass
class _MeetingState:
    """The state of the simulation."""

    queue: list[tuple[float, int]]  # when a gradient ends, and whose
    done: list[int]  # gradients
    met: list[int]  # meetings that each node has requested
    left: list[int]  # gradients until the next meeting
    waiting: list[list[int]]  # for each node, the nodes that wait for it
    wanted: list[int]  # whom each node waits for; -1: it computes
    time: float = 0.0
    meetings: int = 0


@dataclass
class BlockingMeetings:
    """Nodes that wait for a neighbour after ``every`` gradients."""

    clock: Clock
    links: LinkDelays
    every: int
    _known: dict[int, _MeetingState] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Find the neighbours of all nodes."""
        self._free = Meetings(self.clock, self.links)
        pairs = map(tuple, self.links.edges.tolist())
        self._delay = dict(zip(pairs, self.links.delays.tolist(), strict=True))

    def rounds(self, start: int, stop: int) -> MeetingEvents:
        """Return the gradients of rounds start .. stop - 1."""
        now = deepcopy(self._position(start))
        acts = [act for _ in range((stop - start) * self.links.n) for act in self._next(now)]
        self._known[stop] = now
        node, number, time, partner = zip(*acts, strict=True)
        whole = (np.array(part, np.int64) for part in (node, number, partner))
        n, k, p = whole
        return MeetingEvents(n, k, np.array(time), p)

    def time(self, rounds: int) -> float:
        """Return when so many rounds are done."""
        return self._position(rounds).time

    def meetings(self, rounds: int) -> int:
        """Return how many meetings there have been by then."""
        return self._position(rounds).meetings

    def _position(self, rounds: int) -> _MeetingState:
        self._known.setdefault(0, self._begin())
        if rounds not in self._known:
            self.rounds(max(r for r in self._known if r <= rounds), rounds)
        return self._known[rounds]

    def _begin(self) -> _MeetingState:
        n = self.links.n
        queue = [(self._computing(i, 0), i) for i in range(n)]
        heapq.heapify(queue)
        return _MeetingState(
            queue, [0] * n, [0] * n, [self.every] * n, [[] for _ in range(n)], [-1] * n
        )

    def _computing(self, node: int, number: int) -> float:
        return float(self.clock.compute_times(np.array([node]), np.array([number]))[0])

    def _next(self, now: _MeetingState) -> Iterator[tuple[int, int, float, int]]:
        """Play one gradient."""
        time, i = heapq.heappop(now.queue)
        number = now.done[i]
        now.done[i] += 1
        now.left[i] -= 1
        now.time = time
        if now.left[i]:
            self._compute(now, i, time)
            yield i, number, time, -1
            return
        other = self._other(now, i)
        if other >= 0:
            now.meetings += 1
            later = time + max(self._delay[i, other], self._delay[other, i])
            for node in (i, other):
                now.left[node] = self.every
                self._compute(now, node, later)
        yield i, number, time, other

    def _compute(self, now: _MeetingState, node: int, start: float) -> None:
        heapq.heappush(now.queue, (start + self._computing(node, now.done[node]), node))

    def _other(self, now: _MeetingState, i: int) -> int:
        """Return whom a node meets that is ready to; -1 if it has to wait."""
        if now.waiting[i]:
            other = now.waiting[i].pop(0)
            now.wanted[other] = -1
            return other
        partner = self._free.partners(np.array([i]), np.array([now.met[i]]))
        now.met[i] += 1
        other = int(partner[0])
        if other >= 0 and now.wanted[other] >= 0:  # it waits for another node
            now.waiting[now.wanted[other]].remove(other)
            now.wanted[other] = -1
            return other
        if other < 0:  # alone in the network
            now.left[i] = self.every
            self._compute(now, i, now.time)
            return -1
        now.wanted[i] = other
        now.waiting[other].append(i)
        return -1
