"""The engine of asynchronous methods: a calendar replayed on tensors, wave by wave.

All trials share the calendar. Variables are kept with the node first, (nodes, trials, dim), so
that the rows of a wave are whole blocks of memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from digrad.algorithms.asynchronous import Asynchronous
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.clocks.calendar import Activations, Calendar
from digrad.clocks.draws import Integers
from digrad.clocks.links import LinkDelays
from digrad.clocks.waves import Dispatcher, Waves
from digrad.engines.event_state import (
    Activation,
    EventState,
    Gradient,
    StepSizes,
    VariableTable,
    put_node_first,
)
from digrad.networks.network import Network


class WeightedSlots(NamedTuple):
    """For each wake of a wave, weighted slots that are added up."""

    slots: Tensor
    places: Tensor  # where those of each wake begin
    weights: Tensor

    def summed(self, values: Tensor) -> Tensor:
        """Add up weighted rows; nothing is copied on the way."""
        table = values.flatten(1)
        found = functional.embedding_bag(
            self.slots, table, self.places, mode="sum", per_sample_weights=self.weights
        )
        return found.view(len(self.places), *values.shape[1:])

    @property
    def rows(self) -> Tensor:
        """Which wake each slot belongs to."""
        ends = torch.cat([self.places[1:], self.places.new_tensor([len(self.slots)])])
        return torch.repeat_interleave(ends - self.places)


class ParcelRoutes(NamedTuple):
    """Where the parcels of a wave go, and come from."""

    slots: Tensor  # of what the nodes give
    pull: WeightedSlots  # the newest of all links that end at them
    push: WeightedSlots  # what is read for the first time


class WaveInbox:
    """What the nodes of one wave have heard."""

    def __init__(
        self,
        sums: tuple[str, ...],
        parcels: VariableTable,
        steps: StepSizes,
        who: Activation,
        mail: ParcelRoutes,
        scales: tuple[Tensor, Tensor, Tensor],
        times: Any,
    ) -> None:
        self.who, self.slots = who, mail.slots
        self.own, self.kept, self.lr = scales
        self._parcels, self._steps, self._sums = parcels, steps, sums
        self._mail, self._times = mail, times
        self._pushed: dict[str, Tensor] = {}

    @property
    def now(self) -> Tensor:
        """When each of them wakes."""
        return torch.from_numpy(self._times).to(self.who.nodes.device)[:, None, None]

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        return self._mail.pull.summed(self._parcels[name])

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new; computed once."""
        if name not in self._pushed:
            bags = self._mail.push
            if self._sums and name not in self._sums:  # a share, not what a sum has grown by
                bags = WeightedSlots(bags.slots[::2], bags.places // 2, bags.weights[::2])
            self._pushed[name] = bags.summed(self._parcels[name])
        return self._pushed[name]

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Σⱼ R[i, j] times the newest value, and Σⱼ R[i, j], of those that sent it since."""
        pull, push = self._mail.pull, self._mail.push
        step = 2 if self._sums else 1
        # The same slot may be old news to one wake and new to another.
        count = len(pull.places)
        fresh = torch.isin(pull.slots * count + pull.rows, (push.slots * count + push.rows)[::step])
        values = self._parcels[name]
        some = pull._replace(weights=pull.weights * fresh)
        return some.summed(values), some.summed(torch.ones_like(values[:, :1, :1]))

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values."""
        bags = self._mail.pull
        rows = self._parcels[name].index_select(0, bags.slots)
        most = rows.new_zeros((len(self.who.pairs), *rows.shape[1:]))
        places = bags.rows[:, None, None].expand_as(rows)
        return most.scatter_reduce_(0, places, rows, "amax")

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """The steps number first .. last."""
        return self._steps.total(first, last)


STRETCH = 4096  # wakes whose calendar is made at once, about
TOGETHER = range(40, 321)  # wakes that are put into waves together, about
CACHED = 1 << 17  # numbers of these that a cache holds
ON_A_GPU = 1 << 28  # the same where waves are to be wide, as each is many launches


class EventEngine:
    """Runs one asynchronous method over one network on one clock.

    Args:
        method: what nodes do.
        net: the weights with which what arrives is mixed.
        calendar: when nodes wake; over the links that the method uses.
        device: where the nodes live.
        dtype: of the variables.
    """

    def __init__(
        self,
        method: Asynchronous[Any, Any],
        net: Network,
        calendar: Calendar | BoundedStalenessCalendar,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.method, self.calendar = method, calendar
        self.n, self._place = net.n, torch.device(device)
        self.rows, self.nodes = slice(0, net.n), torch.arange(net.n, device=device)
        self._dtype = dtype
        self.numbers = np.float64 if dtype == torch.float64 else np.float32
        self.weights = {
            verb: link_weights(W, calendar.links).astype(self.numbers)
            for verb, W in (("pull", net.R), ("push", net.C))
        }
        self.own, self.kept = net.R.diagonal(), net.C.diagonal()
        self.into = np.array([len(links) for links in calendar.links.inward], dtype=np.int64)
        self._dispatcher = Dispatcher(calendar.links, every=bool(method.adds))
        state = method.init(torch.zeros(1, 1, 1))
        self.state_kind, self.parcel_kind = type(state), type(method.parcel(state))

    def start(self, x: Tensor) -> EventState:
        """Begin at x, (trials, nodes, dim): everybody holds everybody's first parcel."""
        state = self.method.init(x)
        first = put_node_first(self.method.parcel(state))
        # The first slot is for parcels without a reader.
        parcels = {k: torch.cat([torch.zeros_like(v[:1]), v]) for k, v in first.items()}
        own = VariableTable(self.state_kind, put_node_first(state))
        return EventState(own, VariableTable(self.parcel_kind, parcels), self._dispatcher.start())

    def advance(
        self,
        flight: EventState,
        start: int,
        stop: int,
        gradient: Gradient,
        steps: StepSizes,
    ) -> EventState:
        """Do rounds ``start`` .. ``stop`` - 1; the flight given is used up."""
        assert flight.waiting is not None
        self._dispatcher.restore(flight.waiting)
        held = ON_A_GPU if self._place.type != "cpu" else CACHED
        together = max(1, self._together(flight, held) // self.n)
        ahead = together * max(1, STRETCH // (self.n * together))
        for first in range(start, stop, ahead):
            wakes = self.calendar.rounds(first, min(stop, first + ahead))
            for part in _cut_up(wakes, together * self.n, self.calendar.links):
                self.play(flight, part, gradient, steps)
        flight.waiting = self._dispatcher.waiting()
        return flight

    def _together(self, flight: EventState, held: int) -> int:
        """Return how many wakes to plan at once: many cost less, but keep more parcels."""
        widest = max(rows[0].numel() for _, rows in flight.state.items())
        return min(max(held // widest, TOGETHER.start), TOGETHER.stop - 1)

    def play(
        self,
        flight: EventState,
        wakes: Activations,
        gradient: Gradient,
        steps: StepSizes,
    ) -> None:
        """Do some wakes; what is on its way is known to the engine alone until the end."""
        assert flight.parcels is not None
        waves = self._dispatcher.waves(wakes)
        flight.parcels.grow(self._dispatcher.slots)
        for inbox in self._inboxes(waves, wakes, flight.parcels, steps):
            s = flight.state.take(inbox.who.nodes)
            g = gradient(self.method.point(s), inbox.who)
            s, parcel = self.method.give(s, g, inbox, inbox.lr)
            flight.state.put(inbox.who.nodes, self.method.take(s, inbox))
            flight.parcels.put(inbox.slots, parcel)

    def _inboxes(
        self, waves: Waves, wakes: Activations, parcels: VariableTable, steps: StepSizes
    ) -> Iterator[WaveInbox]:
        """Put all numbers of some waves on the device at once, and cut them up."""
        each, order = waves.sizes.tolist(), waves.wakes
        node, number, now = wakes.node[order], wakes.number[order], wakes.time[order]
        last = np.cumsum(each)
        nodes, numbers, slots = self._cut([node, number, waves.slots], each)
        scales = [self.own[node], self.kept[node], steps.factors(number)]
        real = torch.from_numpy(np.stack(scales).astype(self.numbers)).to(self._place)
        own, kept, factors = (torch.split(part[:, None, None], each) for part in real)
        pulls = self._bags(waves.newest, waves.into, self.into[node], each)
        pushes = self._bags(waves.fresh, waves.links, waves.reads, each, waves.before)
        who = list(zip(node.tolist(), number.tolist(), strict=True))
        for k, (stop, size) in enumerate(zip(last.tolist(), each, strict=True)):
            some = slice(stop - size, stop)
            yield WaveInbox(
                self.method.sums,
                parcels,
                steps,
                Activation(nodes[k], numbers[k], who[some]),
                ParcelRoutes(slots[k], pulls[k], pushes[k]),
                (own[k], kept[k], steps.base * factors[k]),
                now[some],
            )

    def _cut(self, parts: Sequence[Any], each: Sequence[int]) -> Iterator[Sequence[Tensor]]:
        """Put whole numbers on the device, and cut every part into pieces of these sizes."""
        flat = torch.from_numpy(np.array(parts, dtype=np.int64)).to(self._place)
        return (torch.split(part, list(each)) for part in flat)

    def _bags(
        self,
        slots: Integers,
        links: Integers,
        counts: Integers,
        each: Sequence[int],
        before: Integers | None = None,
    ) -> list[WeightedSlots]:
        """Say wave by wave which slots are added up for each wake, and with which weights.

        ``counts`` has the slots of each wake. With ``before``, a running sum counts for what it
        has grown by.
        """
        verb = "pull" if before is None else "push"
        weights = self.weights[verb][links]
        if before is not None and self.method.sums:
            slots = np.stack([slots, before], axis=1).ravel()
            weights, counts = np.stack([weights, np.negative(weights)], axis=1).ravel(), 2 * counts
        starts = np.cumsum(counts) - counts
        firsts = np.cumsum(each) - np.array(each)
        lengths = np.add.reduceat(counts, firsts).tolist()
        offsets = starts - np.repeat(starts[firsts], each)
        (places,) = self._cut([offsets], each)
        (found,) = self._cut([slots], lengths)
        shares = torch.split(torch.from_numpy(weights).to(self._place), lengths)
        return [WeightedSlots(*bag) for bag in zip(found, places, shares, strict=True)]

    def on_the_way(self, flight: EventState) -> dict[str, Tensor]:
        """Return Σ C[i, j] times what was sent over j -> i and not read, (trials, dim) by field."""
        assert flight.waiting is not None
        assert flight.parcels is not None
        found = {}
        weights = torch.as_tensor(self.weights["push"]).to(self._place, self._dtype)
        links = self.calendar.links
        for name in (*self.method.sums, *self.method.adds):
            rows = flight.parcels[name]
            if name in self.method.sums:
                sent = flight.state[name].index_select(
                    0, torch.as_tensor(links.edges[:, 0], device=self._place)
                )
                newest = torch.as_tensor(flight.waiting.newest, device=self._place)
                moving, share = sent - rows.index_select(0, newest), weights
            else:
                link, _, slot = torch.as_tensor(flight.waiting.pending.T, device=self._place)
                moving, share = rows.index_select(0, slot), weights[link]
            found[name] = (share[:, None, None] * moving).sum(0)
        return found

    def standing(self, flight: EventState) -> "InboxTemplate":
        """Return what is known of all nodes as they stand."""
        own = (torch.as_tensor(v).to(self._place, self._dtype) for v in (self.own, self.kept))
        return InboxTemplate(*(diagonal[:, None, None] for diagonal in own))


@dataclass(eq=False)
class InboxTemplate:
    """The part of an inbox that does not depend on messages, of all nodes."""

    own: Tensor
    kept: Tensor


def link_weights(W: csr_array, links: LinkDelays) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return W[i, j] of every link j -> i; 0 for a link that only the other matrix has."""
    senders, receivers = links.edges.T
    return np.asarray(W[receivers, senders], dtype=np.float64).ravel()


def _cut_up(wakes: Activations, width: int, links: LinkDelays) -> Iterator[Activations]:
    """Cut wakes into parts that are put into waves together."""
    degree = np.diff(links.first_out)[wakes.node]
    ends = np.concatenate([[0], np.cumsum(degree)])
    for k in range(0, len(wakes.node), width):
        last = min(k + width, len(wakes.node))
        some = slice(k, last)
        reads = wakes.reads[ends[k] : ends[last]]
        yield Activations(wakes.node[some], wakes.number[some], wakes.time[some], reads)
