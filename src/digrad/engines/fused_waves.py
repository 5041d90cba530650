"""Waves as one compiled graph: rows are read where they lie, mixed, and written where they go.

Taken operation by operation, a wave passes over its rows some seventy times. Compiled, each is read
and written once, but a graph wants tables of one shape: all links into a node, side by side.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.clocks.calendar import Activations
from digrad.clocks.draws import Integers
from digrad.clocks.waves import Waves
from digrad.engines.event_state import Activation, EventState, StepSizes
from digrad.engines.events import Events

MOST_LINKS = 16  # into a node: each is a line of the graph

Samples = Callable[[Activation], Tensor]
GradientAt = Callable[[Tensor, Tensor, Any], Tensor]  # at points, of samples, of nodes


def fuses(engine: Events) -> bool:
    """Say whether a graph can take the waves of an engine.

    Shares are read as many as there are, so they fit no table; where few nodes hear from many, a
    table would be mostly empty.
    """
    into = engine.into
    near = bool(0 < into.max() <= min(MOST_LINKS, 2 * into.mean() + 1))
    return near and engine.nodes.device.type == "cpu" and _asks_little(engine.method)


def _asks_little(method: Asynchronous[Any, Any]) -> bool:
    """Try a method on two numbers: does it ask its inbox for what graphs have no table of?"""
    s = method.init(torch.zeros(1, 1, 2))
    parcels = method.parcel(s)._asdict()
    inbox = FusedInbox(parcels, torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 4, 1, 1))
    try:
        s, _ = method.give(s, torch.zeros(1, 1, 2), inbox, torch.zeros(1, 1, 1))
        method.take(s, inbox)
    except _TooMuch:
        return False
    return not method.adds


class FusedWaves:
    """Plays the waves of an engine, each by one call.

    Args:
        engine: one that ``fuses``.
        samples: what nodes draw.
        gradient: at points and samples on axes (trial, row, ...).
    """

    def __init__(self, engine: Events, samples: Samples, gradient: GradientAt) -> None:
        self._engine, self._samples, self._gradient = engine, samples, gradient
        self._width = int(engine.into.max())
        self._real = np.arange(self._width) < engine.into[:, None]  # (nodes, width)
        links = [link for inward in engine.calendar.links.inward for link in inward]
        sides = [self._spread(engine.weights[verb][links]) for verb in ("pull", "push")]
        self._scales = np.column_stack([engine.own, engine.kept, *sides])
        self._graph: Callable[..., None] = torch.compile(self._wave, fullgraph=True)
        self._marked = False

    def play(self, flight: EventState, waves: Waves, wakes: Activations, steps: StepSizes) -> None:
        """Do some waves."""
        assert flight.parcels is not None
        node, number = wakes.node[waves.wakes], wakes.number[waves.wakes]
        slots = [self._spread(part, node) for part in (waves.newest, waves.previous)]
        twice = np.repeat(np.where(waves.sizes == 1, 2, 1), waves.sizes)
        sizes = np.maximum(waves.sizes, 2).tolist()
        where = _cut(np.column_stack([node, number, waves.slots, *slots]), twice, sizes)
        factors = np.column_stack([steps.factors(number), self._scales[node]])
        scale = _cut(factors.astype(self._engine.numbers), twice, sizes)
        own, sent = ([rows for _, rows in t.items()] for t in (flight.state, flight.parcels))
        for places, factor in zip(where, scale, strict=True):
            nodes, numbers = places[:, 0], places[:, 1]
            who = Activation(
                nodes, numbers, list(zip(nodes.tolist(), numbers.tolist(), strict=True))
            )
            drawn = self._samples(who)
            self._mark(places, factor, drawn, sent)
            self._graph(own, sent, places, factor, drawn, steps.base)

    def _spread(self, numbers: Any, node: Integers | slice = slice(None)) -> Any:
        """Lay what belongs to the links into each node side by side: (nodes, width)."""
        real = self._real[node]
        table = np.zeros(real.shape, numbers.dtype)
        table[real] = numbers
        return table

    def _mark(self, places: Tensor, factor: Tensor, drawn: Tensor, sent: list[Tensor]) -> None:
        """Tell the compiler, the first time, what is not the same in every wave."""
        if self._marked:
            return
        for rows, axis in ((places, 0), (factor, 0), (drawn, 1), *((rows, 0) for rows in sent)):
            torch._dynamo.mark_dynamic(rows, axis)
        self._marked = True

    def _wave(
        self,
        own: list[Tensor],
        sent: list[Tensor],
        places: Tensor,
        factor: Tensor,
        drawn: Tensor,
        base: Tensor,
    ) -> None:
        engine, method = self._engine, self._engine.method
        nodes, slots = places[:, 0], places[:, 2]
        parcels = dict(zip(engine.parcel_kind._fields, sent, strict=True))
        inbox = FusedInbox(parcels, places[:, 3:], factor[:, 1:, None, None])
        s = engine.state_kind(*(rows[nodes] for rows in own))
        x = method.point(s).transpose(0, 1)
        g = self._gradient(x, drawn, nodes).transpose(0, 1)
        s, parcel = method.give(s, g, inbox, base * factor[:, :1, None])
        s = method.take(s, inbox)
        for rows, new in zip(own, s, strict=True):
            rows.index_put_((nodes,), new)
        for rows, new in zip(sent, parcel, strict=True):
            rows.index_put_((slots,), new)


class _TooMuch(Exception):  # noqa: N818
    """A method asked for what a fused inbox does not have."""


class FusedInbox:
    """What the nodes of one wave have heard; places without a link have weight 0."""

    def __init__(self, parcels: dict[str, Tensor], slots: Tensor, factors: Tensor) -> None:
        self._parcels, self._newest, self._before = parcels, *slots.chunk(2, 1)
        self.own, self.kept = factors[:, 0], factors[:, 1]
        self._pull, self._push = factors[:, 2:].chunk(2, 1)

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        return self._summed(self._pull, lambda k: self._parcels[name][self._newest[:, k]])

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what a running sum has grown by."""
        rows = self._parcels[name]
        return self._summed(
            self._push, lambda k: rows[self._newest[:, k]] - rows[self._before[:, k]]
        )

    @property
    def now(self) -> Tensor:
        """Not here."""
        raise _TooMuch

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Not here."""
        raise _TooMuch

    def largest(self, name: str) -> Tensor:
        """Not here."""
        raise _TooMuch

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """Not here."""
        raise _TooMuch

    def _summed(self, weights: Tensor, rows: Callable[[int], Tensor]) -> Tensor:
        # Where nothing arrives, what lies there may be no number, which times 0 is none either.
        each = [
            torch.where(weights[:, k] != 0, weights[:, k] * rows(k), 0.0)
            for k in range(weights.shape[1])
        ]
        return sum(each[1:], each[0])


def _cut(rows: Any, twice: Integers, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Cut a table into waves; a wave of one wake has it twice, and does the same twice over.

    Of one row the compiler would make a graph of its own, with its own rounding.
    """
    return torch.split(torch.from_numpy(np.repeat(rows, twice, axis=0)), list(sizes))
