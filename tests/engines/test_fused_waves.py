"""Waves as one graph against the same waves operation by operation."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.robust import APPG, AsySonata, RFast
from digrad.algorithms.robust_push_sum import RASGP
from digrad.clocks import Clock
from digrad.clocks.calendar import Calendar
from digrad.clocks.links import LinkDelays
from digrad.engines.event_state import Activation, EventState, StepSizes
from digrad.engines.events import Events
from digrad.engines.fused_waves import FusedWaves, fuses
from digrad.networks import Network, build

DIM = 3
LRS = torch.tensor([0.2, 0.1], dtype=torch.float64)


def engine(net: Network, clock: Clock, method: Asynchronous[Any, Any] | None = None) -> Events:
    method = method or RFast()
    return Events(
        method, net, Calendar(clock, LinkDelays.of(net, clock, 8, 8)), dtype=torch.float64
    )


def pulled(x: Tensor, drawn: Tensor, nodes: Tensor) -> Tensor:
    """Gradients of quadratics whose centre is the node's number, and what was drawn."""
    return x - nodes[:, None].to(x.dtype) + drawn.unsqueeze(-1)


def drawn(who: Activation) -> Tensor:
    return torch.stack([torch.sin(who.numbers + k + who.nodes.double()) for k in (0.0, 1.0)])


def plain(x: Tensor, who: Activation) -> Tensor:
    return pulled(x.transpose(0, 1), drawn(who), who.nodes).transpose(0, 1)


def flown(events: Events, way: Any, *stops: int) -> EventState:
    flight = events.start(torch.zeros(2, events.n, DIM, dtype=torch.float64))
    for start, stop in zip((0, *stops[:-1]), stops, strict=True):
        flight = events.advance(
            flight, start, stop, way, StepSizes(LRS, lambda t: 1 / (1 + 0.1 * t))
        )
    return flight


def uneven() -> Network:
    """A ring of five with a chord; node 0 hears from two, of which one only pushes."""
    R, C = np.eye(5), np.eye(5)
    for i in range(5):
        R[(i + 1) % 5, i] = C[(i + 1) % 5, i] = 1
    C[0, 2] = R[3, 1] = 1
    return Network(R / R.sum(1, keepdims=True), C / C.sum(0, keepdims=True))


NETS = {"exponential": build("exponential", 6), "uneven": uneven()}
HARD = Clock(straggler=4.0, loss=0.3, latency=0.5, seed=1)


@pytest.mark.parametrize("net", NETS)
def test_tables_say_what_bags_say(net: str) -> None:
    events = engine(NETS[net], HARD)
    expected = flown(events, plain, 25)
    with torch.compiler.set_stance("force_eager"):
        found = flown(events, FusedWaves(events, drawn, pulled), 25)
    for name, rows in expected.state.items():
        torch.testing.assert_close(found.state[name], rows, rtol=1e-12, atol=1e-13)
    assert found.state["x"].abs().max() > 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_compiled_waves_round_alike_however_they_are_cut() -> None:
    events = engine(NETS["uneven"], HARD)
    expected, fused = flown(events, plain, 60), FusedWaves(events, drawn, pulled)
    whole, cut = flown(events, fused, 60), flown(events, fused, 1, 2, 9, 10, 31, 60)
    for name, rows in expected.state.items():
        torch.testing.assert_close(whole.state[name], rows, rtol=1e-11, atol=1e-12)
        assert torch.equal(whole.state[name], cut.state[name])


def test_who_fuses() -> None:
    net, clock = build("exponential", 6), Clock()
    assert fuses(engine(net, clock))
    assert fuses(engine(net, clock, AsySonata()))
    assert not fuses(engine(net, clock, APPG()))  # every share counts
    assert not fuses(engine(net, clock, RASGP()))  # asks for the time
    assert not fuses(engine(build("star", 12), clock))  # one hears from all
