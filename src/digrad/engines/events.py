"""The engine of methods that wait for nobody: a calendar replayed on tensors, wave by wave.

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

from digrad.algorithms.asynchronous import Asynchronous
from digrad.clocks.calendar import Calendar, Wakes
from digrad.clocks.links import Links
from digrad.clocks.patient import Patient
from digrad.clocks.waves import Dispatcher, Wave
from digrad.engines.flights import Flight, Gradient, Steps, Table, Who, by_node
from digrad.networks.network import Network

DENSE = 1 << 14  # entries of a wave's weights up to which a dense product is the faster one
STRETCH = 4096  # wakes whose calendar is made at once, about
TOGETHER = 80  # wakes that are put into waves together, about


class Events:
    """Runs one asynchronous method over one network on one clock.

    Args:
        method: what nodes do.
        net: the weights with which what arrives is mixed.
        calendar: who wakes when; over the links that the method uses.
        device: where the nodes live.
        dtype: of the variables.
    """

    def __init__(
        self,
        method: Asynchronous[Any, Any],
        net: Network,
        calendar: Calendar | Patient,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.method, self.calendar = method, calendar
        self.n, self._place = net.n, torch.device(device)
        self.rows, self.nodes = slice(0, net.n), torch.arange(net.n, device=device)
        self._dtype = dtype
        self._numbers = np.float64 if dtype == torch.float64 else np.float32
        self._weights = {
            verb: link_weights(W, calendar.links).astype(self._numbers)
            for verb, W in (("pull", net.R), ("push", net.C))
        }
        self._own, self._kept = net.R.diagonal(), net.C.diagonal()
        self._dispatcher = Dispatcher(calendar.links, every=bool(method.adds))
        state = method.init(torch.zeros(1, 1, 1))
        self.state_kind, self.parcel_kind = type(state), type(method.parcel(state))

    def start(self, x: Tensor) -> Flight:
        """Begin at x, (trials, nodes, dim): everybody holds everybody's first parcel."""
        state = self.method.init(x)
        first = by_node(self.method.parcel(state))
        # The first slot is for what nobody reads.
        parcels = {k: torch.cat([torch.zeros_like(v[:1]), v]) for k, v in first.items()}
        own = Table(self.state_kind, by_node(state))
        return Flight(own, Table(self.parcel_kind, parcels), self._dispatcher.start())

    def advance(
        self, flight: Flight, start: int, stop: int, gradient: Gradient, steps: Steps
    ) -> Flight:
        """Do rounds ``start`` .. ``stop`` - 1; the flight given is used up."""
        assert flight.waiting is not None
        self._dispatcher.restore(flight.waiting)
        together = max(1, TOGETHER // self.n)
        ahead = together * max(1, STRETCH // (self.n * together))
        for first in range(start, stop, ahead):
            wakes = self.calendar.rounds(first, min(stop, first + ahead))
            for part in _cut_up(wakes, together * self.n, self.calendar.links):
                self.play(flight, part, gradient, steps)
        flight.waiting = self._dispatcher.waiting()
        return flight

    def play(self, flight: Flight, wakes: Wakes, gradient: Gradient, steps: Steps) -> None:
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
        self, waves: Sequence[Wave], wakes: Wakes, parcels: Table, steps: Steps
    ) -> Iterator["WaveInbox"]:
        """Put all numbers of some waves on the device at once, and cut them up."""
        order = [w for wave in waves for w in wave.wakes]
        number, now = wakes.number[order], wakes.time[order]
        node = wakes.node[order]
        parts: list[Any] = []
        for wave in waves:
            parts += [wave.nodes, wave.slots, wave.newest, wave.rows]
            parts += [wave.fresh, wave.before, wave.fresh_rows]
        whole, each = self._split([*parts, number]), [len(wave.nodes) for wave in waves]
        table = np.stack([self._own[node], self._kept[node], steps.factors(number)])
        real = torch.from_numpy(table.astype(self._numbers)).to(self._place)
        own, kept, factors = (torch.split(part[:, None, None], each) for part in real)
        numbers, times = torch.split(whole[-1], each), np.split(now, np.cumsum(each)[:-1])
        listed, mixing = iter(number.tolist()), self._matrices(waves)
        for k, wave in enumerate(waves):
            who = Who(whole[7 * k], numbers[k], [(i, next(listed)) for i in wave.nodes])
            mail = Mail._make([*whole[7 * k + 1 : 7 * k + 7], *mixing[k]])
            lr = steps.base * factors[k]
            scales = own[k], kept[k], lr
            yield WaveInbox(self, parcels, steps, wave, who, mail, scales, times[k])

    def _split(self, parts: Sequence[Any]) -> Sequence[Tensor]:
        flat = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        return torch.split(torch.from_numpy(flat).to(self._place), [len(part) for part in parts])

    def _matrices(self, waves: Sequence[Wave]) -> list[tuple[Tensor, Tensor]]:
        """Return for each wave what mixes the rows of its links: dense, or only the weights."""
        parts: list[Any] = []
        for wave in waves:
            for rows, links, W in (
                (wave.rows, wave.links, self._weights["pull"]),
                (wave.fresh_rows, wave.fresh_links, self._weights["push"]),
            ):
                if len(wave.nodes) * len(rows) > DENSE:
                    parts.append(W[links])
                    continue
                matrix = np.zeros((len(wave.nodes), len(rows)), self._numbers)
                matrix[rows, range(len(rows))] = W[links]
                parts.append(matrix)
        flat = torch.from_numpy(np.concatenate([part.ravel() for part in parts])).to(self._place)
        cut = torch.split(flat, [part.size for part in parts])
        found = [one.view(part.shape) for one, part in zip(cut, parts, strict=True)]
        return list(zip(found[::2], found[1::2], strict=True))

    def on_the_way(self, flight: Flight) -> dict[str, Tensor]:
        """Return Σ C[i, j] times what was sent over j -> i and not read, (trials, dim) by field."""
        assert flight.waiting is not None
        assert flight.parcels is not None
        found = {}
        weights = torch.as_tensor(self._weights["push"]).to(self._place, self._dtype)
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

    def standing(self, flight: Flight) -> "Standing":
        """Return what is known of all nodes as they stand."""
        own = (torch.as_tensor(v).to(self._place, self._dtype) for v in (self._own, self._kept))
        return Standing(*(diagonal[:, None, None] for diagonal in own))


@dataclass(eq=False)
class Standing:
    """The part of an inbox that does not depend on messages, of all nodes."""

    own: Tensor
    kept: Tensor


class Mail(NamedTuple):
    """Where the parcels of a wave go, and come from."""

    slots: Tensor  # of what the nodes give
    newest: Tensor  # slots, of all links that end at them
    rows: Tensor  # where each link ends
    fresh: Tensor  # slots that are read for the first time
    before: Tensor  # what was read before on the same link
    fresh_rows: Tensor
    pull: Tensor  # what mixes the newest: (rows, links), or a weight for each link
    push: Tensor  # what mixes the fresh


class WaveInbox:
    """What the nodes of one wave have heard."""

    def __init__(
        self,
        engine: Events,
        parcels: Table,
        steps: Steps,
        wave: Wave,
        who: Who,
        mail: Mail,
        scales: tuple[Tensor, Tensor, Tensor],
        times: Any,
    ) -> None:
        self._engine, self._wave = engine, wave
        self.who, self.slots = who, mail.slots
        self.own, self.kept, self.lr = scales
        self._parcels, self._steps, self._sums = parcels, steps, engine.method.sums
        self._mail, self._times = mail, times
        self._pushed: dict[str, Tensor] = {}

    @property
    def now(self) -> Tensor:
        """When each of them wakes."""
        return torch.from_numpy(self._times).to(self.who.nodes.device)[:, None, None]

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        rows = self._parcels[name].index_select(0, self._mail.newest)
        return self._mixed(self._mail.pull, self._mail.rows, rows)

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new; the same if asked again."""
        if name not in self._pushed:
            parcels = self._parcels[name]
            rows = parcels.index_select(0, self._mail.fresh)
            if name in self._sums:
                rows = rows.sub_(parcels.index_select(0, self._mail.before))
            self._pushed[name] = self._mixed(self._mail.push, self._mail.fresh_rows, rows)
        return self._pushed[name]

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Σⱼ R[i, j] times the newest value, and Σⱼ R[i, j], of those that sent it since."""
        wave, place = self._wave, self.who.nodes.device
        newest = dict(zip(wave.links, wave.newest, strict=True))
        came = zip(wave.fresh_links, wave.fresh, wave.fresh_rows, strict=True)
        found = [(link, slot, row) for link, slot, row in came if newest[link] == slot]
        link, slot, row = torch.tensor(found, dtype=torch.int64).view(-1, 3).T
        weights = torch.from_numpy(self._engine._weights["pull"][link.numpy()]).to(place)
        values, row = self._parcels[name].index_select(0, slot.to(place)), row.to(place)
        shares = self._mixed(weights, row, torch.ones_like(values[:, :1, :1]))
        return self._mixed(weights, row, values), shares

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values."""
        rows = self._parcels[name].index_select(0, self._mail.newest)
        most = rows.new_zeros((len(self.who.pairs), *rows.shape[1:]))
        places = self._mail.rows[:, None, None].expand_as(rows)
        return most.scatter_reduce_(0, places, rows, "amax")

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """The steps number first .. last."""
        return self._steps.total(first, last)

    def _mixed(self, weights: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        """Add up weighted rows by where they end."""
        shape = len(self.who.pairs), *rows.shape[1:]
        flat = rows.flatten(1)
        if weights.dim() == 2:
            mixed = weights @ flat
        else:
            mixed = flat.new_zeros(shape[0], flat.shape[1])
            mixed.index_add_(0, places, flat * weights[:, None])
        return mixed.view(shape)


def link_weights(W: csr_array, links: Links) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return W[i, j] of every link j -> i; 0 for a link that only the other matrix has."""
    senders, receivers = links.edges.T
    return np.asarray(W[receivers, senders], dtype=np.float64).ravel()


def _cut_up(wakes: Wakes, width: int, links: Links) -> Iterator[Wakes]:
    """Cut wakes into parts that are put into waves together."""
    degree = np.diff(links.first_out)[wakes.node]
    ends = np.concatenate([[0], np.cumsum(degree)])
    for k in range(0, len(wakes.node), width):
        last = min(k + width, len(wakes.node))
        some = slice(k, last)
        reads = wakes.reads[ends[k] : ends[last]]
        yield Wakes(wakes.node[some], wakes.number[some], wakes.time[some], reads)
