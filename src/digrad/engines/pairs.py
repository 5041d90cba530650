"""The engine of pairwise methods: acts that touch different nodes are one tensor operation."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from digrad.algorithms.pairwise import Pairwise
from digrad.clocks.meetings import BlockingMeetings, MeetingEvents, Meetings
from digrad.engines.event_state import (
    Activation,
    EventState,
    Gradient,
    StepSizes,
    VariableTable,
    put_node_first,
)

STRETCH = 4096  # gradients whose acts are found at once, at least


class PairEngine:
    """Runs one pairwise method.

    Args:
        method: what nodes do.
        meetings: which nodes meet when.
        device: where the nodes live.
    """

    def __init__(
        self,
        method: Pairwise[Any],
        meetings: Meetings | BlockingMeetings,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.method, self.meetings, self.n = method, meetings, meetings.links.n
        self.rows, self.nodes = slice(0, self.n), torch.arange(self.n, device=device)
        self.state_kind, self.parcel_kind = type(method.init(torch.zeros(1, 1, 1))), None

    def start(self, x: Tensor) -> EventState:
        """Begin at x, (trials, nodes, dim)."""
        return EventState(
            VariableTable(self.state_kind, put_node_first(self.method.init(x))), None, None
        )

    def advance(
        self, flight: EventState, start: int, stop: int, gradient: Gradient, steps: StepSizes
    ) -> EventState:
        """Do rounds ``start`` .. ``stop`` - 1; the flight given is used up."""
        ahead = max(1, STRETCH // self.n)
        for first in range(start, stop, ahead):
            acts = self.meetings.rounds(first, min(stop, first + ahead))
            for k in range(0, len(acts.node), self.n):
                self.play(
                    flight, MeetingEvents._make(v[k : k + self.n] for v in acts), gradient, steps
                )
        return flight

    def play(
        self, flight: EventState, acts: MeetingEvents, gradient: Gradient, steps: StepSizes
    ) -> None:
        """Do some acts."""
        for wave in cut_into_waves(acts):
            self._wave(flight, acts, np.array(wave), gradient, steps)

    def _wave(
        self,
        flight: EventState,
        acts: MeetingEvents,
        wave: Any,
        gradient: Gradient,
        steps: StepSizes,
    ) -> None:
        node, number, partner = acts.node[wave], acts.number[wave], acts.partner[wave]
        device = self.nodes.device
        nodes, numbers = (torch.from_numpy(v).to(device) for v in (node, number))
        who = Activation(nodes, numbers, list(zip(node.tolist(), number.tolist(), strict=True)))
        factors = torch.from_numpy(steps.factors(number)).to(steps.base)
        s, lr = flight.state.take(nodes), steps.base * factors[:, None, None]
        g = gradient(self.method.point(s), who)
        if partner[0] < 0:
            flight.state.put(nodes, self.method.local(s, g, lr))
            return
        others = torch.from_numpy(partner).to(device)
        own, other = self.method.meet(s, flight.state.take(others), g, lr)
        flight.state.put(nodes, own)
        flight.state.put(others, other)


def cut_into_waves(acts: MeetingEvents) -> list[list[int]]:
    """Cut acts into waves: different nodes in each, and all of them meet a partner or none does."""
    found: dict[tuple[int, bool], list[int]] = {}
    level: dict[int, int] = {}
    for k, (i, j) in enumerate(zip(acts.node.tolist(), acts.partner.tolist(), strict=True)):
        own = max(level.get(i, 0), level.get(j, 0) if j >= 0 else 0)
        level[i] = own + 1
        if j >= 0:
            level[j] = own + 1
        found.setdefault((own, j >= 0), []).append(k)
    return [found[key] for key in sorted(found)]
