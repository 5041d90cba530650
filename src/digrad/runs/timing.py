"""When a job's steps end on a clock, what was sent by then, and when nodes computed and waited."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.contract import Algorithm, Method, method_name
from digrad.algorithms.counting import MixerCall, costs, exchanges
from digrad.algorithms.pairwise import Pairwise
from digrad.base.errors import ParameterError
from digrad.clocks import Clock
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.clocks.calendar import Calendar
from digrad.clocks.links import ChangingLinkDelays, LinkDelays
from digrad.clocks.meetings import BlockingMeetings, Meetings
from digrad.clocks.synchronous import SynchronousSchedule, Trip
from digrad.networks.network import Network
from digrad.networks.registry import AnyNetwork
from digrad.networks.timetable import Timetable


class MessageSizes(NamedTuple):
    """Bytes of a vector and of a single number."""

    vector: float
    scalar: float


class Lane(NamedTuple):
    """What one node did: (start, end) of each gradient and of each wait."""

    computing: list[tuple[float, float]]
    waiting: list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class SynchronousTiming:
    """Steps that end when all their messages have arrived."""

    schedule: SynchronousSchedule
    sent: None = None  # each step sends the same

    def time(self, t: int) -> float:
        """When step t has ended."""
        return self.schedule.time(t)

    def rounds(self, t: int) -> float:
        """How many gradients each node has computed by then, on average."""
        return float(t * self.schedule.gradients)

    def bottleneck(self, net: AnyNetwork) -> str:
        """Say what a step waits for longest: a node's gradient or a link."""
        spans = self.schedule.spans(0, 20)
        computing = np.mean([span.computed - span.start for span in spans], axis=0)
        node = int(computing.argmax())
        slowest = [(float(computing[node]), f"gradient of node {net.name(node)}")]
        for trip in self.schedule.trips:
            if len(trip.links.edges):
                link = int(trip.links.delays.argmax())
                j, i = (net.name(int(k)) for k in trip.links.edges[link])
                slowest.append((float(trip.links.delays[link]), f"link {j} -> {i}"))
        seconds, what = max(slowest)
        return f"{what} ({seconds:.3g})"

    def lanes(self, until: float) -> list[Lane]:
        """Return what the nodes do until some time."""
        lanes, step = [Lane([], []) for _ in range(self.schedule.n)], 0
        while (start := self.schedule.starts(step)).min() < until:
            (span,) = self.schedule.spans(step, step + 1)
            for node, lane in enumerate(lanes):
                lane.computing.append((float(start[node]), float(span.computed[node])))
                if span.end[node] > span.computed[node]:
                    lane.waiting.append((float(span.computed[node]), float(span.end[node])))
            step += 1
        return lanes


@dataclass(frozen=True, eq=False)
class AsynchronousTiming:
    """Rounds of n gradients, of whichever nodes."""

    calendar: Calendar | BoundedStalenessCalendar | Meetings | BlockingMeetings
    sent: Callable[[int], tuple[int, int]]  # messages and bytes by the end of a step

    def time(self, t: int) -> float:
        return self.calendar.time(t)

    def rounds(self, t: int) -> float:
        return float(t)

    def bottleneck(self, net: AnyNetwork) -> str:
        bounded = isinstance(self.calendar, BoundedStalenessCalendar)
        return "messages of the exchange before" if bounded else "no node waits"

    def lanes(self, until: float) -> list[Lane]:
        """A gradient began as long before its end as it takes; gaps between gradients are waits.

        With bounded staleness a node waits after a gradient, before it exchanges.
        """
        waits_after = isinstance(self.calendar, BoundedStalenessCalendar)
        lanes = [Lane([], []) for _ in range(self.calendar.links.n)]
        last, rounds = [0.0] * len(lanes), 0
        while rounds == 0 or min(last) < until:
            events = self.calendar.rounds(rounds, rounds + 1)
            spent = self.calendar.clock.compute_times(events.node, events.number)
            for node, end, seconds in zip(events.node, events.time, spent, strict=True):
                start = last[node] if waits_after else float(end - seconds)
                if end - seconds > last[node] + 1e-9:
                    after = (start + float(seconds), float(end))
                    lanes[node].waiting.append(after if waits_after else (last[node], start))
                lanes[node].computing.append((start, start + float(seconds)))
                last[node] = float(end)
            rounds += 1
        return lanes


Timing = SynchronousTiming | AsynchronousTiming


def timing(method: Method[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes) -> Timing:
    """Put a method on a clock.

    Raises:
        ParameterError: the method is asynchronous, and the network changes or messages are lost
            that the method cannot do without.
    """
    clock.check(net.n)
    if isinstance(method, Algorithm):
        return synchronous_timing(method, net, clock, sizes)
    if isinstance(net, Timetable):
        what = f"{method_name(method)} takes a network that stays as it is, not a timetable: "
        what += "nodes that act by themselves have no steps in common"
        hint = "drop every, keep and loss; a clock has delays and losses of its own"
        raise ParameterError(what, hint=hint)
    if isinstance(method, Asynchronous):
        return asynchronous_timing(method, net, clock, sizes)
    if isinstance(method, Pairwise):
        return _pairwise_timing(method, net, clock, sizes)
    what = f"{method_name(method)} is none of the kinds of methods that run on a clock"
    raise ParameterError(what, hint="derive it from Algorithm, Asynchronous or Pairwise")


def synchronous_timing(
    method: Algorithm[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes
) -> SynchronousTiming:
    """Put a synchronous method on a clock."""
    trips = _trips(method, net, clock, sizes)
    return SynchronousTiming(SynchronousSchedule(clock, net.n, trips, method.samples))


def asynchronous_timing(
    method: Asynchronous[Any, Any], net: Network, clock: Clock, sizes: MessageSizes
) -> AsynchronousTiming:
    """Put an asynchronous method on a clock."""
    if method.loses and clock.loss:
        what = f"{method_name(method)} loses for good what is in a lost message, and the clock "
        what += f"loses {clock.loss:g} of them"
        raise ParameterError(what, hint="use r-fast or rasgp, or set loss = 0")
    counts = costs(method).traffic
    by_pull = counts.pull_vectors * sizes.vector + counts.pull_scalars * sizes.scalar
    by_push = counts.push_vectors * sizes.vector + counts.push_scalars * sizes.scalar
    links = LinkDelays.of(net, clock, by_pull, by_push)
    calendar: BoundedStalenessCalendar | Calendar = Calendar(clock, links)
    if method.waits:
        calendar = BoundedStalenessCalendar(clock, links, method.every)
    graphs = net.pull_graph, net.push_graph
    pulls, pushes = (np.bincount(graph.edges[:, 0], minlength=net.n) for graph in graphs)
    vectors = counts.pull_vectors * pulls + counts.push_vectors * pushes
    total = by_pull * pulls + by_push * pushes

    def sent(t: int) -> tuple[int, int]:
        exchanged = calendar.exchanges(t)
        return int(exchanged @ vectors), int(exchanged @ total)

    return AsynchronousTiming(calendar, sent)


def _pairwise_timing(
    method: Pairwise[Any], net: Network, clock: Clock, sizes: MessageSizes
) -> AsynchronousTiming:
    """Put a pairwise method on a clock: a meeting is a vector each way."""
    links = LinkDelays.of(net, clock, sizes.vector, 0.0)
    meetings: BlockingMeetings | Meetings = Meetings(clock, links)
    if method.waits:
        meetings = BlockingMeetings(clock, links, method.every)

    def sent(t: int) -> tuple[int, int]:
        both = 2 * meetings.meetings(t)
        return both, int(both * sizes.vector)

    return AsynchronousTiming(meetings, sent)


def _trips(
    method: Algorithm[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes
) -> list[Trip]:
    """Put exchanges that wait for the same into one message."""
    groups: dict[tuple[Any, ...], list[MixerCall]] = {}
    place: dict[int, int] = {}  # from an exchange to its trip
    for k, one in enumerate(exchanges(method)):
        after = tuple(sorted({place[j] for j in one.after}))
        key = one.after_gradient, after, one.verb == "mean"
        groups.setdefault(key, []).append(one)
        place[k] = list(groups).index(key)
    return [Trip(_links(group, net, clock, sizes), *key) for key, group in groups.items()]


def _links(
    group: list[MixerCall], net: AnyNetwork, clock: Clock, sizes: MessageSizes
) -> LinkDelays | ChangingLinkDelays:
    size = {
        verb: sum(sizes.vector if e.is_vector else sizes.scalar for e in group if e.verb == verb)
        for verb in ("pull", "push", "mean")
    }
    if size["mean"]:  # for the delay; a server stands in between
        whole = net.union if isinstance(net, Timetable) else net
        return LinkDelays.of(whole, clock, size["mean"], 0.0)
    if isinstance(net, Timetable):
        return ChangingLinkDelays.of(net, clock, size["pull"], size["push"])
    return LinkDelays.of(net, clock, size["pull"], size["push"])
