"""When a job's steps end on a clock, and what was sent by then."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.contract import Algorithm, Method, Needs, method_name
from digrad.algorithms.exchanges import MixingCall, exchanges
from digrad.algorithms.pairwise import Pairwise
from digrad.base.errors import ParameterError, message
from digrad.clocks import Clock
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.clocks.calendar import Calendar
from digrad.clocks.changing import ChangingLinkDelays
from digrad.clocks.links import LinkDelays
from digrad.clocks.meetings import Meetings, WaitingMeetings
from digrad.clocks.synchronous import SynchronousSchedule, Trip
from digrad.networks.network import Network
from digrad.networks.registry import AnyNetwork
from digrad.networks.timetable import Timetable


class MessageSizes(NamedTuple):
    """Bytes of a vector and of a single number."""

    vector: float
    scalar: float


class Timing(Protocol):
    """The axes of a run beside its steps."""

    def time(self, t: int) -> float:
        """When step t has ended."""
        ...

    def rounds(self, t: int) -> float:
        """How many gradients each node has computed by then, on average."""
        ...


@dataclass(frozen=True, eq=False)
class SynchronousTiming:
    """A method that waits."""

    waiting: SynchronousSchedule

    def time(self, t: int) -> float:
        """When the last node has done it."""
        return self.waiting.time(t)

    def rounds(self, t: int) -> float:
        """As many as steps, if a step takes one."""
        return float(t * self.waiting.gradients)


@dataclass(frozen=True, eq=False)
class AsynchronousTiming:
    """A method that waits for nobody."""

    calendar: Calendar | BoundedStalenessCalendar | Meetings | WaitingMeetings
    sent: Callable[[int], tuple[int, int]]  # messages and bytes by the end of a round

    def time(self, t: int) -> float:
        """When the last wake of the round was."""
        return self.calendar.time(t)

    def rounds(self, t: int) -> float:
        """A round is n gradients."""
        return float(t)


def timing(method: Method[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes) -> Timing:
    """Put a method on a clock.

    Raises:
        ParameterError: the method waits for nobody, and the network changes.
    """
    clock.check(net.n)
    if isinstance(method, Algorithm):
        return in_step(method, net, clock, sizes)
    if isinstance(net, Timetable):
        what = f"{method_name(method)} takes a network that stays as it is, not a timetable: "
        what += "nodes that act by themselves have no steps in common"
        hint = "drop every, keep and loss; a clock has delays and losses of its own"
        raise ParameterError(message(what, hint=hint))
    if isinstance(method, Asynchronous):
        return alone(method, net, clock, sizes)
    assert isinstance(method, Pairwise)
    return in_pairs(method, net, clock, sizes)


def in_step(
    method: Algorithm[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes
) -> SynchronousTiming:
    """Put a synchronous method on a clock."""
    return SynchronousTiming(
        SynchronousSchedule(clock, net.n, _trips(method, net, clock, sizes), method.samples)
    )


def _trips(
    method: Algorithm[Any], net: AnyNetwork, clock: Clock, sizes: MessageSizes
) -> list[Trip]:
    """Put exchanges that wait for the same into one message."""
    groups: dict[tuple[Any, ...], list[MixingCall]] = {}
    place: dict[int, int] = {}  # from an exchange to its trip
    for k, one in enumerate(exchanges(method)):
        after = tuple(sorted({place[j] for j in one.after}))
        key = one.after_gradient, after, one.verb == "mean"
        groups.setdefault(key, []).append(one)
        place[k] = list(groups).index(key)
    return [Trip(_links(group, net, clock, sizes), *key) for key, group in groups.items()]


def _links(
    group: list[MixingCall], net: AnyNetwork, clock: Clock, sizes: MessageSizes
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


def alone(
    method: Asynchronous[Any, Any], net: Network, clock: Clock, sizes: MessageSizes
) -> AsynchronousTiming:
    """Put an asynchronous method on a clock."""
    refuse_loss(method, clock)
    pull, push = parcel_sizes(method)
    by_pull, by_push = (part[0] * sizes.vector + part[1] * sizes.scalar for part in (pull, push))
    links = LinkDelays.of(net, clock, by_pull, by_push)
    calendar = (
        BoundedStalenessCalendar(clock, links, method.every)
        if method.waits
        else Calendar(clock, links)
    )
    degrees = [
        np.bincount(graph.edges[:, 0], minlength=net.n)
        for graph in (net.pull_graph, net.push_graph)
    ]
    vectors = pull[0] * degrees[0] + push[0] * degrees[1]
    total = by_pull * degrees[0] + by_push * degrees[1]

    def sent(t: int) -> tuple[int, int]:
        gives = calendar.exchanges(t)
        return int(gives @ vectors), int(gives @ total)

    return AsynchronousTiming(calendar, sent)


def in_pairs(
    method: Pairwise[Any], net: Network, clock: Clock, sizes: MessageSizes
) -> AsynchronousTiming:
    """Put a method of meetings on a clock: a meeting is a vector each way."""
    links = LinkDelays.of(net, clock, sizes.vector, 0.0)
    found = WaitingMeetings(clock, links, method.every) if method.waits else Meetings(clock, links)

    def sent(t: int) -> tuple[int, int]:
        both = 2 * found.meetings(t)
        return both, int(both * sizes.vector)

    return AsynchronousTiming(found, sent)


def kept_vectors(method: Method[Any]) -> int:
    """Count the vectors that a node keeps."""
    state: Any = method.init(torch.zeros(1, 1, 2))
    return int(sum(v.shape[-1] > 1 for v in state))


def simulated_vectors(method: Method[Any]) -> int:
    """Count them with some parcels of it that are on their way."""
    kept = kept_vectors(method)
    if not isinstance(method, Asynchronous):
        return kept
    pull, push = parcel_sizes(method)
    return kept + 3 * (pull[0] + push[0])


def parcel_sizes(method: Asynchronous[Any, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Count vectors and single numbers that go over a link of R, and over one of C."""
    x = torch.zeros(1, 1, 2)
    parcel = method.parcel(method.init(x))._asdict()
    shares = (*method.sums, *method.adds)
    pulls = {k for k in parcel if k not in shares and Needs.PULL in method.needs}
    counts = []
    for names in (pulls, parcel.keys() - pulls):
        wide = sum(parcel[name].shape[-1] > 1 for name in names)
        counts.append((wide, len(names) - wide))
    return counts[0], counts[1]


def refuse_loss(method: Method[Any], clock: Clock) -> None:
    """Refuse a clock that loses messages where each of them counts.

    Raises:
        ParameterError: that says so.
    """
    if isinstance(method, Asynchronous) and method.loses and clock.loss:
        what = f"{method_name(method)} loses for good what is in a lost message, and the clock "
        what += f"loses {clock.loss:g} of them"
        raise ParameterError(message(what, hint="use r-fast or rasgp, or set loss = 0"))
