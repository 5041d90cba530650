"""The event engine against a plain loop over events, one node and one link at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import naive_events
from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.compression.broadcast import BroadcastCPP
from digrad.algorithms.compression.kept import TopK
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.contract import Needs
from digrad.algorithms.robust import APPG, RFast
from digrad.algorithms.robust_push_sum import RASGP, AsySPA, OverlapSGP
from digrad.clocks import Clock
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.clocks.calendar import Activations, Calendar
from digrad.clocks.links import LinkDelays
from digrad.engines.event_state import Activation, EventState, Gradient, StepSizes
from digrad.engines.events import EventEngine
from digrad.networks import Network, build

A = torch.tensor([[1, 2], [2, 1], [3, 1], [1, 4]], dtype=torch.float64)
B = torch.tensor([[1, 0], [0, 2], [-1, 1], [2, -1]], dtype=torch.float64)
START = (0.5, -0.5)
TRACE = ((1.0,), (1.5,), (2.0,), (2.5,))


def digraph() -> Network:
    """0->1, 1->2, 2->3, 3->0, 0->2 with uniform weights."""
    W = np.eye(4)
    for j, i in ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)):
        W[i, j] = 1
    return Network(W / W.sum(1, keepdims=True), W / W.sum(0, keepdims=True))


def links_of(method: Asynchronous[Any, Any], net: Network, clock: Clock) -> LinkDelays:
    return LinkDelays.of(net, clock, 8.0 if Needs.PULL in method.needs else 0.0, 8.0)


def engine(method: Asynchronous[Any, Any], net: Network, clock: Clock) -> EventEngine:
    links = links_of(method, net, clock)
    calendar = (
        BoundedStalenessCalendar(clock, links, method.every)
        if method.waits
        else Calendar(clock, links)
    )
    return EventEngine(method, net, calendar, dtype=torch.float64)


def gradients(n: int) -> Gradient:
    a, b = A.repeat(-(-n // 4), 1), B.repeat(-(-n // 4), 1)

    def at(x: Tensor, who: Activation) -> Tensor:
        return a[who.nodes, None] * (x - b[who.nodes, None])

    return at


def begun(events: EventEngine, trials: int = 1) -> EventState:
    x = torch.tensor(START, dtype=torch.float64).expand(trials, events.n, 2)
    return events.start(x.clone())


def steps(*lrs: float, schedule: Callable[[int], float] = lambda t: 1.0) -> StepSizes:
    return StepSizes(torch.tensor(lrs, dtype=torch.float64), schedule)


def first(events: EventEngine, count: int) -> Activations:
    """The first wakes, as one round."""
    wakes = events.calendar.rounds(0, -(-count // events.n))
    degree = np.diff(events.calendar.links.first_out)[wakes.node[:count]].sum()
    return Activations(*(part[:count] for part in wakes[:3]), wakes.reads[:degree])


class OneLost(Clock):
    """Loses the first message from 0 to 2."""

    def is_lost(self, sender: Any, receiver: Any, number: Any) -> Any:
        return (sender == 0) & (receiver == 2) & (number == 0)


REFERENCES = [
    (
        RFast(),
        OneLost(trace=TRACE, latency=0.25),
        {
            "x": "0.472363425926 -0.509611111111; 0.492083333333 -0.407187500000; "
            "0.404166666667 -0.404166666667; 0.353125000000 -0.440625000000",
            "z": "0.141620370370 0.054722222222; 0.169444444444 -0.714583333333; "
            "2.458333333333 -1.458333333333; 0.479166666667 0.270833333333",
        },
    ),
    (
        APPG(),
        Clock(trace=TRACE, latency=0.25),
        {
            "x": "0.479805555556 -0.475305555556; 0.462222222222 -0.190555555556; "
            "0.025000000000 -0.175000000000; 0.412500000000 -0.537500000000",
            "y": "0.385277777778 0.069722222222; 0.211111111111 -1.177777777778; "
            "4.750000000000 -3.250000000000; 0.875000000000 0.375000000000",
        },
    ),
    (
        RASGP(slot=0.5),
        OneLost(trace=TRACE, latency=0.25),
        {
            "x": "0.937000000000 -0.754000000000; 0.042000000000 0.308000000000; "
            "-0.550000000000 0.175000000000; -0.025000000000 -0.700000000000",
            "y": "0.833333333333; 0.416666666667; 1; 1",
        },
    ),
    (
        RASGP("printed", slot=0.5),
        OneLost(trace=TRACE, latency=0.25),
        {
            "x": "0.666777777778 -0.755777777778; 0.135333333333 0.314666666667; "
            "-0.550000000000 0.175000000000; -0.025000000000 -0.700000000000",
            "y": "0.537037037037; 0.527777777778; 1; 1",
        },
    ),
    (
        AsySPA(),
        Clock(trace=TRACE, latency=0.25),
        {
            "x": "0.403540849560 -0.366724229082; 0.318279509464 -0.094991666879; "
            "0.408333333333 -0.433333333333; 0.350000000000 -0.525000000000",
            "y": "0.611111111111; 0.833333333333; 1.333333333333; 1",
            "next": "4; 3; 2; 2",
        },
    ),
]


@pytest.mark.parametrize(("method", "clock", "wanted"), REFERENCES)
def test_reference_trajectories(
    method: Asynchronous[Any, Any], clock: Clock, wanted: dict[str, str]
) -> None:
    events = engine(method, digraph(), clock)
    flight, wakes = begun(events), first(events, 7)
    assert list(zip(wakes.node.tolist(), wakes.time.tolist(), strict=True)) == [
        *((0, 1.0), (1, 1.5), (0, 2.0), (2, 2.0), (3, 2.5), (0, 3.0), (1, 3.0))
    ]
    decays = isinstance(method, AsySPA)
    factor = (lambda t: (t + 1) ** -0.5) if decays else (lambda t: 1.0)
    events.play(flight, wakes, gradients(4), steps(0.1, schedule=factor))
    for name, text in wanted.items():
        rows = np.array([row.split() for row in text.split("; ")], dtype=float)
        found = flight.state[name][:, 0].double().numpy()
        np.testing.assert_allclose(found, rows, atol=1e-12, err_msg=name)


TOP_ONE = Compression(TopK(share=0.5), mixing=0.5, push_scheme="direct")
TWINS: dict[str, tuple[Asynchronous[Any, Any], Any, dict[str, Any]]] = {
    "r-fast": (RFast(), naive_events.RFast, {}),
    "appg": (APPG(), naive_events.APPG, {}),
    "rasgp": (RASGP(slot=0.7), naive_events.RASGP, {"slot": 0.7}),
    "rasgp printed": (RASGP("printed"), naive_events.RASGP, {"patient": False}),
    "asyspa": (AsySPA(), naive_events.AsySPA, {}),
    "osgp": (OverlapSGP(), naive_events.OverlapSGP, {}),
    "osgp every 3": (OverlapSGP(every=3), naive_events.OverlapSGP, {"every": 3}),
    "b-cpp": (BroadcastCPP(TOP_ONE), naive_events.BroadcastCPP, {}),
}


def both(
    name: str, net: Network, clock: Clock, rounds: int, lr: float = 0.02
) -> tuple[EventEngine, EventState, naive_events.Naive]:
    """Play the engine and its twin; what must be conserved is asked for after every event."""
    method, make, params = TWINS[name]
    events = engine(method, net, clock)
    flight = begun(events)
    gradient = gradients(net.n)
    flight = events.advance(flight, 0, rounds, gradient, steps(lr, schedule=lambda t: 0.97**t))
    x = np.tile(START, (net.n, 1))
    twin = make(net.R.toarray(), net.C.toarray(), x, lambda t: lr * 0.97**t, **params)
    a, b = (M.repeat(-(-net.n // 4), 1).numpy() for M in (A, B))
    worst = []
    naive_events.run(
        twin,
        clock,
        lambda i, k, point: a[i] * (point - b[i]),
        rounds * net.n,
        check=lambda one, flying: worst.append(one.defect(flying)),
    )
    size = 1 + max(np.abs(twin.x).max(), np.abs(twin.g).max())
    assert max(worst) < 1e-11 * size * rounds
    return events, flight, twin


CLOCKS = {
    "default": Clock(),
    "straggler": Clock(straggler=5.0, jitter=0.3),
    "in step": Clock(distribution="constant", latency=0.0),
    "far": Clock(distribution="uniform", latency=3.0, jitter=2.0),
    "heavy": Clock(distribution="heavy-tailed", jitter=0.5, seed=3),
}


@pytest.mark.parametrize("kind", CLOCKS)
@pytest.mark.parametrize("name", TWINS)
def test_the_engine_is_the_plain_loop(name: str, kind: str) -> None:
    events, flight, twin = both(name, digraph(), CLOCKS[kind], 12)
    np.testing.assert_allclose(flight.state["x"][:, 0], twin.x, rtol=1e-9, atol=1e-11)
    check_conserved(events, flight)


def check_conserved(events: EventEngine, flight: EventState) -> None:
    state = flight.state.take(torch.arange(events.n))
    moving = events.on_the_way(flight)
    for name, (held, owed) in events.method.conserved(state, events.standing(flight)).items():
        off = held.sum(0) + moving[name] - owed.sum(0)
        assert float(off.abs().max()) < 1e-10 * (1 + float(held.abs().max())), name


@pytest.mark.parametrize("name", ["r-fast", "rasgp", "rasgp printed"])
def test_nothing_is_lost_with_lost_messages(name: str) -> None:
    clock = Clock(loss=0.4, losses_in_a_row=3, jitter=0.5)
    events, flight, twin = both(name, build("exponential", 6), clock, 12)
    np.testing.assert_allclose(flight.state["x"][:, 0], twin.x, rtol=1e-9, atol=1e-11)
    check_conserved(events, flight)


SCHEDULES = given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from([*TWINS]),
    loss=st.sampled_from([0.0, 0.2, 0.7]),
    latency=st.sampled_from([0.0, 0.1, 1.0, 4.0]),
    jitter=st.sampled_from([0.0, 1.0]),
    distribution=st.sampled_from(["constant", "uniform", "heavy-tailed"]),
)


def on_a_random_schedule(
    seed: int, name: str, loss: float, latency: float, jitter: float, distribution: str
) -> None:
    """Messages are lost, late and reordered; what must be conserved is, after every event."""
    loss = 0.0 if TWINS[name][0].loses else loss
    times = {"distribution": distribution, "latency": latency, "jitter": jitter}
    clock = Clock(**times, loss=loss, seed=seed, straggler=3.0)
    events, flight, twin = both(name, build("erdos-renyi", 5, seed=seed % 7), clock, 4)
    np.testing.assert_allclose(flight.state["x"][:, 0], twin.x, rtol=1e-8, atol=1e-9)
    check_conserved(events, flight)


@settings(max_examples=15)
@SCHEDULES
def test_mass_is_conserved_on_random_schedules(**drawn: Any) -> None:
    on_a_random_schedule(**drawn)


@pytest.mark.slow
@settings(max_examples=400)
@SCHEDULES
def test_mass_is_conserved_on_hundreds_of_random_schedules(**drawn: Any) -> None:
    on_a_random_schedule(**drawn)


def test_stopping_in_between_changes_no_bit() -> None:
    clock = Clock(loss=0.2, jitter=0.4)
    events = engine(RFast(), build("exponential", 9), clock)
    whole = events.advance(begun(events, 2), 0, 30, gradients(9), steps(0.1, 0.05))
    parts = begun(events, 2)
    for start, stop in ((0, 1), (1, 17), (17, 30)):
        parts = engine(RFast(), build("exponential", 9), clock).advance(
            parts, start, stop, gradients(9), steps(0.1, 0.05)
        )
    for (name, a), (_, b) in zip(whole.state.items(), parts.state.items(), strict=True):
        assert torch.equal(a, b), name


def test_r_fast_reaches_the_optimum_over_a_lossy_network_with_a_straggler() -> None:
    clock = Clock(loss=0.2, straggler=5.0)
    events = engine(RFast(), digraph(), clock)
    best = (A * B).sum(0) / A.sum(0)
    flight = events.advance(begun(events), 0, 400, gradients(4), steps(0.1))
    assert float((flight.state["x"][:, 0] - best).abs().max()) < 1e-5


@pytest.mark.parametrize(
    "method", [BroadcastCPP(), pytest.param(BroadcastCPP(TOP_ONE), marks=pytest.mark.slow)]
)
def test_b_cpp_reaches_the_optimum_with_small_messages(method: BroadcastCPP) -> None:
    events = engine(method, digraph(), Clock(straggler=3.0))
    best = (A * B).sum(0) / A.sum(0)
    flight = events.advance(begun(events), 0, 300, gradients(4), steps(0.05))
    assert float((flight.state["x"][:, 0] - best).abs().max()) < 1e-5


@pytest.mark.slow
def test_two_trees_suffice() -> None:
    net = build("binary-tree", 7)
    lazy = Network((net.R + np.eye(7)) / 2, (net.C + np.eye(7)) / 2)
    events = engine(RFast(), lazy, Clock())
    flight = events.advance(begun(events), 0, 2000, gradients(7), steps(0.02))
    a, b = A.repeat(2, 1)[:7], B.repeat(2, 1)[:7]
    best = (a * b).sum(0) / a.sum(0)
    assert float((flight.state["x"][:, 0] - best).abs().max()) < 1e-12


def test_waves_hold_several_wakes() -> None:
    events = engine(RFast(), build("exponential", 20), Clock())
    wakes = events.calendar.rounds(0, 1)
    waves = events._dispatcher.waves(wakes)
    assert waves.sizes.sum() == 20
    assert len(waves.sizes) < 10


def test_who_sleeps_for_long_holds_few_parcels() -> None:
    """Of all that reaches a link's end before one wake only the newest is kept."""
    clock = Clock(distribution="heavy-tailed", tail=1.1, spread=0.5, seed=2)
    events = engine(RFast(), build("undirected-ring", 6), clock)
    flight = events.advance(begun(events), 0, 600, gradients(6), steps(0.01))
    assert flight.waiting is not None
    assert len(flight.waiting.numbers) < 400  # those given together need 320; 1579 if all are kept
