"""The engine of methods that wait for nobody: a calendar replayed on tensors, wave by wave.

All trials share the calendar. Variables are kept with the node first, (nodes, trials, dim), so
that the rows of a wave are whole blocks of memory; methods see them as (trials, rows, dim).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.clocks.calendar import Calendar, Wakes
from digrad.clocks.links import Links
from digrad.clocks.waves import Dispatcher, Wave
from digrad.engines.flights import Flight, Gradient, Steps, Who, by_node, laid_out
from digrad.networks.network import Network

DENSE = 1 << 14  # entries of a wave's weights up to which a dense product is the faster one
STRETCH = 4096  # wakes whose calendar is made at once, at least


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
        calendar: Calendar,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.method, self.calendar = method, calendar
        self.n, self._place = net.n, torch.device(device)
        self.rows, self.nodes = slice(0, net.n), torch.arange(net.n, device=device)
        self._dtype, numbers = dtype, np.float64 if dtype == torch.float64 else np.float32
        self._weights = {
            verb: link_weights(W, calendar.links).astype(numbers)
            for verb, W in (("pull", net.R), ("push", net.C))
        }
        own = (torch.as_tensor(W.diagonal()).to(device, dtype) for W in (net.R, net.C))
        self._own, self._kept = (diagonal[:, None] for diagonal in own)
        self._dispatcher = Dispatcher(calendar.links, every=bool(method.adds))
        self.state_fields = type(method.init(torch.zeros(1, 1, 1)))

    def start(self, x: Tensor) -> Flight:
        """Begin at x, (trials, nodes, dim): everybody holds everybody's first parcel."""
        state = self.method.init(x)
        parcels = by_node(self.method.parcel(state))
        nowhere = {k: torch.cat([torch.zeros_like(v[:1]), v]) for k, v in parcels.items()}
        return Flight(laid_out(state), nowhere, self._dispatcher.start())

    def advance(
        self, flight: Flight, start: int, stop: int, gradient: Gradient, steps: Steps
    ) -> Flight:
        """Do rounds ``start`` .. ``stop`` - 1; the flight given is used up."""
        assert flight.waiting is not None
        self._dispatcher.restore(flight.waiting)
        ahead = max(1, STRETCH // self.n)
        for first in range(start, stop, ahead):
            last = min(stop, first + ahead)
            wakes = self.calendar.rounds(first, last)
            for one in _rounds(wakes, self.n, self.calendar.links):
                self._round(flight, one, gradient, steps)
        flight.waiting = self._dispatcher.waiting()
        return flight

    def _round(self, flight: Flight, wakes: Wakes, gradient: Gradient, steps: Steps) -> None:
        waves = self._dispatcher.waves(wakes)
        _make_room(flight.parcels, self._dispatcher.slots)
        for inbox in self._inboxes(waves, wakes, flight.parcels, steps):
            own = {k: v.index_select(0, inbox.nodes) for k, v in flight.state._asdict().items()}
            s = type(flight.state)(**{k: v.transpose(0, 1) for k, v in own.items()})
            g = gradient(self.method.point(s), inbox.who)
            s, parcel = self.method.give(s, g, inbox, inbox.lr)
            s = self.method.take(s, inbox)
            for name, rows in s._asdict().items():
                getattr(flight.state, name).index_copy_(0, inbox.nodes, rows.transpose(0, 1))
            for name, rows in parcel._asdict().items():
                flight.parcels[name].index_copy_(0, inbox.slots, rows.transpose(0, 1))

    def _inboxes(
        self, waves: Sequence[Wave], wakes: Wakes, parcels: dict[str, Tensor], steps: Steps
    ) -> Iterator["WaveInbox"]:
        """Put all numbers of a round on the device at once, and cut them up."""
        numbers = [wakes.number[wave.wakes] for wave in waves]
        whole: list[Any] = []
        real: list[Any] = []
        for wave, number in zip(waves, numbers, strict=True):
            whole += [wave.nodes, number, wave.slots, wave.rows, wave.newest]
            whole += [wave.fresh, wave.before, wave.fresh_rows]
            real += [self._weights["pull"][wave.links], self._weights["push"][wave.fresh_links]]
            real += [wakes.time[wave.wakes], steps.factors(number)]
        parts = _cut(whole, np.int64, self._place), _cut(real, np.float64, self._place)
        for k in range(len(waves)):
            integers, reals = parts[0][8 * k : 8 * k + 8], parts[1][4 * k : 4 * k + 4]
            pairs = list(zip(waves[k].nodes, numbers[k].tolist(), strict=True))
            yield WaveInbox(self, parcels, steps, integers, reals, pairs)

    def on_the_way(self, flight: Flight) -> dict[str, Tensor]:
        """Return Σ C[i, j] times what was sent over j -> i and not read, (trials, dim) by field."""
        assert flight.waiting is not None
        found = {}
        weights = torch.as_tensor(self._weights["push"]).to(self._place, self._dtype)
        links = self.calendar.links
        for name in (*self.method.sums, *self.method.adds):
            rows = flight.parcels[name]
            if name in self.method.sums:
                sent = getattr(flight.state, name).index_select(
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
        return Standing(self._own, self._kept)


@dataclass(frozen=True, eq=False)
class Standing:
    """The part of an inbox that does not depend on messages, of all nodes."""

    own: Tensor
    kept: Tensor


class WaveInbox:
    """What the nodes of one wave have heard."""

    def __init__(
        self,
        engine: Events,
        parcels: dict[str, Tensor],
        steps: Steps,
        whole: Sequence[Tensor],
        real: Sequence[Tensor],
        pairs: list[tuple[int, int]],
    ) -> None:
        self.nodes, numbers, self.slots, self._rows, self._newest = whole[:5]
        self.who = Who(self.nodes, numbers, pairs)
        self._fresh, self._before, self._fresh_rows = whole[5:]
        self._parcels, self._steps, self._sums = parcels, steps, engine.method.sums
        self._pulls, self._pushes, now, factors = real
        self.own = engine._own.index_select(0, self.nodes)
        self.kept = engine._kept.index_select(0, self.nodes)
        self.now = now[:, None]
        self.lr = steps.base * factors[:, None].to(steps.base.dtype)
        self._pushed: dict[str, Tensor] = {}

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        rows = self._parcels[name].index_select(0, self._newest)
        return self._mixed(self._pulls, self._rows, rows)

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new; the same if asked again."""
        if name not in self._pushed:
            rows = self._parcels[name].index_select(0, self._fresh)
            if name in self._sums:
                rows = rows.sub_(self._parcels[name].index_select(0, self._before))
            self._pushed[name] = self._mixed(self._pushes, self._fresh_rows, rows)
        return self._pushed[name]

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values."""
        rows = self._parcels[name].index_select(0, self._newest)
        most = rows.new_zeros((len(self.nodes), *rows.shape[1:]))
        places = self._rows[:, None, None].expand_as(rows)
        return most.scatter_reduce_(0, places, rows, "amax").transpose(0, 1)

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """The steps number first .. last."""
        return self._steps.total(first, last)

    def _mixed(self, weights: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        """Add up weighted rows by where they end."""
        shape = len(self.nodes), *rows.shape[1:]
        if not len(rows):
            return rows.new_zeros(shape).transpose(0, 1)
        if shape[0] == 1:
            mixed = weights.to(rows.dtype)[None] @ rows.flatten(1)
        elif shape[0] * len(rows) <= DENSE:
            matrix = rows.new_zeros(shape[0], len(rows))
            matrix[places, torch.arange(len(rows), device=rows.device)] = weights.to(rows.dtype)
            mixed = matrix @ rows.flatten(1)
        else:
            mixed = rows.new_zeros(shape).flatten(1)
            mixed.index_add_(0, places, rows.flatten(1) * weights.to(rows.dtype)[:, None])
        return mixed.view(shape).transpose(0, 1)


def link_weights(W: csr_array, links: Links) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return W[i, j] of every link j -> i; 0 for a link that only the other matrix has."""
    senders, receivers = links.edges.T
    return np.asarray(W[receivers, senders], dtype=np.float64).ravel()


def _make_room(parcels: dict[str, Tensor], slots: int) -> None:
    for name, rows in parcels.items():
        if len(rows) < slots:
            more = rows.new_zeros(max(slots, 2 * len(rows)) - len(rows), *rows.shape[1:])
            parcels[name] = torch.cat([rows, more])


def _rounds(wakes: Wakes, n: int, links: Links) -> Iterator[Wakes]:
    degree = np.diff(links.first_out)[wakes.node]
    ends = np.concatenate([[0], np.cumsum(degree)])
    for k in range(0, len(wakes.node), n):
        some = slice(k, k + n)
        reads = wakes.reads[ends[k] : ends[k + n]]
        yield Wakes(wakes.node[some], wakes.number[some], wakes.time[some], reads)


def _cut(parts: Sequence[Any], dtype: Any, device: torch.device) -> Sequence[Tensor]:
    sizes = [len(part) for part in parts]
    flat = np.concatenate([np.asarray(part, dtype=dtype) for part in parts])
    return torch.split(torch.from_numpy(flat).to(device), sizes)
