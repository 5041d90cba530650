"""When nodes wake under bounded staleness: they wait for messages older than one exchange.

After every so many gradients a node exchanges: it reads what has arrived, and sends. Its m-th
exchange waits until the message of the (m-1)-th has come from each in-neighbour; newer ones that
are there are read too. There is no deadlock: the node with the fewest exchanges has all it needs.
"""

import heapq
from dataclasses import dataclass, field

import numpy as np

from digrad.clocks.calendar import Activations
from digrad.clocks.clock import Clock
from digrad.clocks.draws import Integers
from digrad.clocks.links import LinkDelays

AHEAD = 256  # times of a node that are drawn together


@dataclass
class _Wake:
    """A gradient, and what it sent; it is done with when all of that has been read."""

    node: int
    number: int
    time: float
    reads: list[int]
    unread: int


@dataclass
class _StalenessState:
    """The state of the simulation."""

    queue: list[tuple[float, int]]  # when a gradient or a wait ends, and whose
    done: list[int]  # gradients
    exchanges: list[int]
    arrivals: list[list[float]]  # by link: of all messages so far
    unread: list[list[tuple[float, int, int]]]  # by link: arrival, wake, place in its reads
    held: dict[int, float] = field(
        default_factory=dict
    )  # nodes that wait for a message not sent yet, and since when
    wakes: list[_Wake] = field(default_factory=list)  # but for those already returned
    gone: int = 0  # how many those are
    times: list[float] = field(default_factory=lambda: [0.0])  # by rounds
    sent: list[list[int]] = field(default_factory=list)  # exchanges of each node, by rounds
    settled: int = 0  # wakes whose messages have all been read

    def wake(self, k: int) -> _Wake:
        return self.wakes[k - self.gone]

    @property
    def count(self) -> int:
        return self.gone + len(self.wakes)


@dataclass(eq=False)
class BoundedStalenessCalendar:
    """The wakes of all nodes; the same however they are cut into rounds.

    Args:
        clock: how long things take; it loses nothing.
        links: over which messages go.
        every: gradients from one exchange to the next.
    """

    clock: Clock
    links: LinkDelays
    every: int = 1

    def __post_init__(self) -> None:
        """Let all begin."""
        self._begin()

    def _begin(self) -> None:
        n, links = self.links.n, len(self.links.edges)
        self._spent: list[list[float]] = [[] for _ in range(n)]
        self._jitters: list[list[float]] = [[] for _ in range(links)]
        queue = [(self._computing(i, 0), i) for i in range(n)]
        heapq.heapify(queue)
        lists: list[list[list[float]]] = [[[] for _ in range(links)] for _ in range(2)]
        self._now = _StalenessState(queue, [0] * n, [0] * n, lists[0], lists[1], sent=[[0] * n])  # type: ignore[arg-type]

    def rounds(self, start: int, stop: int) -> Activations:
        """Return the wakes of rounds start .. stop - 1."""
        n = self.links.n
        if start * n < self._now.gone:
            self._begin()
        now = self._now
        while now.settled < stop * n:
            self._play()
        del now.wakes[: start * n - now.gone]
        now.gone = start * n
        some = now.wakes[: (stop - start) * n]
        node, number = (
            np.array([getattr(w, k) for w in some], np.int64) for k in ("node", "number")
        )
        reads: Integers = np.array([read for w in some for read in w.reads], np.int64)
        return Activations(node, number, np.array([w.time for w in some]), reads)

    def time(self, rounds: int) -> float:
        """Return when so many rounds are done: 0 before the first wake."""
        self._until(rounds)
        return self._now.times[rounds]

    def exchanges(self, rounds: int) -> Integers:
        """Return how often each node has exchanged by then."""
        self._until(rounds)
        return np.array(self._now.sent[rounds], np.int64)

    def _until(self, rounds: int) -> None:
        while len(self._now.times) <= rounds:
            self._play()

    def _play(self) -> None:
        """Play the next end of a gradient, or of a wait."""
        time, i = heapq.heappop(self._now.queue)
        number = self._now.done[i]
        due = (number + 1) % self.every == 0
        if due:
            ready = self._ready(i)
            if ready is None:
                self._now.held[i] = time
                return
            if ready > time:
                heapq.heappush(self._now.queue, (ready, i))
                return
            self._read(i, number, time)
        self._wake(i, number, time, due)

    def _wake(self, i: int, number: int, time: float, due: bool) -> None:
        now, out = self._now, self.links.outward[i]
        now.wakes.append(_Wake(i, number, time, [-1] * len(out), len(out) if due else 0))
        now.done[i] += 1
        heapq.heappush(now.queue, (time + self._computing(i, number + 1), i))
        if due:
            now.exchanges[i] += 1
            for place, link in enumerate(out):
                self._send(link, number, time, place)
        if now.count % self.links.n == 0:
            now.times.append(time)
            now.sent.append(now.exchanges.copy())
        while now.settled < now.count and not now.wake(now.settled).unread:
            now.settled += 1

    def _ready(self, i: int) -> float | None:
        """Return when all has come that node i has to wait for; none if some is not sent yet."""
        last = self._now.exchanges[i] - 1
        if last < 0:
            return 0.0
        arrivals = [self._now.arrivals[link] for link in self.links.inward[i]]
        if any(len(found) <= last for found in arrivals):
            return None
        return max((found[last] for found in arrivals), default=0.0)

    def _read(self, i: int, number: int, time: float) -> None:
        now = self._now
        for link in self.links.inward[i]:
            left = []
            for arrival, wake, place in now.unread[link]:
                if arrival > time:
                    left.append((arrival, wake, place))
                    continue
                now.wake(wake).reads[place] = number
                now.wake(wake).unread -= 1
            now.unread[link] = left

    def _send(self, link: int, number: int, time: float, place: int) -> None:
        now = self._now
        sender, receiver = (int(node) for node in self.links.edges[link])
        delay = float(self.links.delays[link]) + self._jitter(link, number)
        arrival = time + delay
        if delay == 0 and sender > receiver:  # there for nodes that wake later in that instant
            arrival = float(np.nextafter(arrival, np.inf))
        now.arrivals[link].append(arrival)
        now.unread[link].append((arrival, now.count - 1, place))
        if receiver in now.held:
            ready = self._ready(receiver)
            if ready is not None:
                heapq.heappush(now.queue, (max(ready, now.held.pop(receiver)), receiver))

    def _computing(self, node: int, number: int) -> float:
        known = self._spent[node]
        if number >= len(known):
            more = np.arange(len(known), len(known) + AHEAD)
            known.extend(self.clock.compute_times(np.full(AHEAD, node), more).tolist())
        return known[number]

    def _jitter(self, link: int, number: int) -> float:
        if not self.clock.jitter:
            return 0.0
        known = self._jitters[link]
        while number >= len(known):
            more = np.arange(len(known), len(known) + AHEAD)
            sender, receiver = (np.full(AHEAD, node) for node in self.links.edges[link])
            known.extend(self.clock.jitters(sender, receiver, more).tolist())
        return known[number]
