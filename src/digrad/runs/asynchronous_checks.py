"""Does an asynchronous method keep its contract? Read ``CHECKS`` first."""

from typing import Any

import torch

from digrad.algorithms import Asynchronous, check
from digrad.base.check_results import Check, FailedCheckError
from digrad.base.errors import DigradError
from digrad.clocks import Clock
from digrad.engines.event_state import (
    Activation,
    EventState,
    StepSizes,
    VariableTable,
    pack_state,
    unpack_state,
)
from digrad.engines.events import EventEngine
from digrad.networks import Network, build
from digrad.runs.timing import MessageSizes, asynchronous_timing

ROUNDS, DIM = 8, 3
CLOSE = 1e-9
NETWORKS = ("exponential", "undirected-ring", "binary-tree")  # the first that a method takes


class _Watched(VariableTable):
    """Variables whose rows must be as they were when they are written back."""

    def take(self, rows: Any) -> Any:
        self._given = super().take(rows)
        self._copy = [v.clone() for v in self._given]
        return self._given

    def put(self, rows: Any, values: Any) -> None:
        for name, now, before in zip(self._given._fields, self._given, self._copy, strict=True):
            if not torch.equal(now, before):
                raise FailedCheckError(
                    f"give or take changes {name} of the state in place",
                    "make a new tensor: x = x - a, not x -= a or x.sub_(a)",
                )
        super().put(rows, values)


def small_network(method: Asynchronous[Any, Any]) -> Network:
    """Return a small network that a method takes."""
    for name in NETWORKS:
        net = build(name, 7)
        try:
            check(method, net)
        except DigradError:
            continue
        return net
    raise FailedCheckError("no small network suits it", "ask for less in needs")


def play_rounds(
    method: Asynchronous[Any, Any], *cuts: int, watched: bool = False
) -> tuple[EventEngine, EventState]:
    """Play some rounds with late, reordered and, if it may be, lost messages."""
    clock = Clock(jitter=0.7, straggler=3.0, loss=0.0 if method.loses else 0.3)
    net = small_network(method)
    timing = asynchronous_timing(method, net, clock, MessageSizes(8.0 * DIM, 8.0))
    events = EventEngine(method, net, timing.calendar, dtype=torch.float64)  # type: ignore[arg-type]
    flight = events.start(torch.zeros(1, net.n, DIM, dtype=torch.float64))
    steps = StepSizes(torch.tensor([0.01], dtype=torch.float64), lambda t: 1.0)
    if watched:
        flight.state = _Watched(events.state_kind, dict(flight.state.items()))
    start = 0
    for stop in (*cuts, ROUNDS):
        flight = events.advance(flight, start, stop, _gradient, steps)
        if stop < ROUNDS:
            flight = unpack_state(pack_state(flight), events.state_kind, events.parcel_kind)
        start = stop
    return events, flight


def _gradient(x: Any, who: Activation) -> Any:
    return x - (who.nodes % 3 - 1).to(x)[:, None, None]


def check_purity(method: Asynchronous[Any, Any]) -> None:
    """Neither give nor take changes the state that it is handed."""
    play_rounds(method, watched=True)


def check_conserved(method: Asynchronous[Any, Any]) -> None:
    """What must be conserved is, with late, reordered and lost messages."""
    events, flight = play_rounds(method)
    state = flight.state.take(torch.arange(events.n))
    moving = events.on_the_way(flight)
    for name, (held, owed) in method.conserved(state, events.standing(flight)).items():
        off = float((held.sum(0) + moving[name] - owed.sum(0)).abs().max())
        if not off < CLOSE * (1 + float(held.abs().max())):
            raise FailedCheckError(
                f"what nodes hold and what is on its way in {name} is off by {off:.1e}",
                "keep inbox.kept of what you share out, send all of it, add inbox.pushed once",
            )


def check_resume(method: Asynchronous[Any, Any]) -> None:
    """Stopped, stored and gone on, it comes to the same numbers."""
    (_, whole), (_, parts) = play_rounds(method), play_rounds(method, 3, 5)
    for (name, a), (_, b) in zip(whole.state.items(), parts.state.items(), strict=True):
        if not torch.allclose(a.double(), b.double(), rtol=1e-12, atol=1e-12, equal_nan=True):
            raise FailedCheckError(
                f"{name} differs after a stop", "keep all that give and take need in the state"
            )


CHECKS: dict[str, Check] = {
    "purity": check_purity,
    "conserved": check_conserved,
    "resume": check_resume,
}
