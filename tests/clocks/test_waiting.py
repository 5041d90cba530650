"""When steps end that wait: in closed form, and against a plain recursion."""

from typing import Any

import numpy as np
import pytest

from digrad.algorithms import ALGORITHMS, SGP, ABCta, Algorithm, OriginalPushPull, PushPull
from digrad.clocks import Clock
from digrad.networks import Network, Timetable, build, build_any
from digrad.networks.capacities import Capacities
from digrad.runs.timing import MessageSizes, synchronous_timing

NET = build("exponential", 6)
SIZES = MessageSizes(8.0, 4.0)


def time(method: Algorithm[Any], clock: Clock, steps: int = 10) -> float:
    return synchronous_timing(method, NET, clock, SIZES).time(steps)


@pytest.mark.parametrize("waiting", ["barrier", "neighbours"])
@pytest.mark.parametrize(
    ("method", "each"),
    [
        (PushPull(), 1 + 2 * 0.3),  # a push, then a pull
        (PushPull(y_form="cta"), 1 + 0.3),  # the push leaves with the step, the pull comes after
        (OriginalPushPull(), 1 + 0.3),
        (SGP(), 1 + 0.3),  # the weights leave early
        (ABCta(), 1.0),  # both overlap with the gradient
        (ALGORITHMS["centralized"](), 1 + 2 * 0.3),  # there and back
        (ALGORITHMS["local-sgp"](), 4 + 0.3),  # four gradients, one exchange
    ],
)
def test_steps_of_constant_times(method: Algorithm[Any], each: float, waiting: str) -> None:
    clock = Clock(distribution="constant", latency=0.3, waiting=waiting)
    assert time(method, clock) == pytest.approx(10 * each, rel=1e-12)


def test_bandwidth_counts_what_is_sent() -> None:
    clock = Clock(distribution="constant", latency=0.0, bandwidth=16.0)
    assert time(PushPull(), clock, 1) == pytest.approx(1 + 2 * 8 / 16)
    assert time(SGP(), clock, 1) == pytest.approx(1 + 8 / 16)


def test_one_exchange_with_neighbours_is_the_plain_recursion() -> None:
    clock = Clock(jitter=0.4, straggler=3.0)
    timing = synchronous_timing(PushPull(y_form="cta"), NET, clock, SIZES)
    assert [len(trip.links.edges) for trip in timing.schedule.trips] == [18, 18]
    sgp = synchronous_timing(SGP(), NET, clock, SIZES)
    (x, weights) = sgp.schedule.trips
    assert x.after_gradient
    assert not weights.after_gradient
    T = np.zeros(6)
    for k in range(20):
        ready = T + clock.compute_times(np.arange(6), np.full(6, k))
        end = ready.copy()
        for e, start in enumerate((ready, T)):  # numerators after the gradient, weights before
            for j, i in x.links.edges.tolist():
                link = np.array([j]), np.array([i]), np.array([2 * k + e])
                end[i] = max(end[i], start[j] + clock.latency + clock.jitters(*link)[0])
        T = end
    assert sgp.time(20) == pytest.approx(T.max(), rel=1e-12)


def test_waiting_for_all_takes_longer_than_for_neighbours() -> None:
    near, all_ = (
        time(PushPull(), Clock(waiting=waiting, seed=2), 100)
        for waiting in ("neighbours", "barrier")
    )
    assert near < all_


def test_lost_messages_are_sent_again_after_a_timeout() -> None:
    calm = time(SGP(), Clock(distribution="constant"), 50)
    lossy = time(SGP(), Clock(distribution="constant", loss=0.3, timeout=2.0), 50)
    assert lossy > calm + 2.0 * 20
    again = Clock(distribution="constant", loss=1.0, losses_in_a_row=2, timeout=2.0)
    assert time(SGP(), again, 50) == pytest.approx(50 * (1 + 0.5 + 2 * 2.0))


def test_the_same_however_it_is_asked() -> None:
    one, other = (synchronous_timing(PushPull(), NET, Clock(jitter=1.0), SIZES) for _ in range(2))
    assert [one.time(t) for t in (0, 3, 70, 71)] == [other.time(t) for t in (0, 3, 70, 71)][:4]
    assert other.time(71) == one.time(71)
    fresh = synchronous_timing(PushPull(), NET, Clock(jitter=1.0), SIZES)
    assert fresh.time(71) == one.time(71)
    assert fresh.time(3) == one.time(3)


def test_steps_without_an_exchange_take_a_gradient_only() -> None:
    clock = Clock(distribution="constant", latency=0.3)
    often = Timetable([NET], exchange_every=3)
    assert synchronous_timing(SGP(), often, clock, SIZES).time(10) == pytest.approx(10 + 4 * 0.3)
    same = synchronous_timing(SGP(), Timetable([NET]), clock, SIZES)
    assert same.time(7) == time(SGP(), clock, 7)


def test_each_slot_has_links_of_its_own() -> None:
    ends = np.array([[0, 1], [1, 0]])
    half = np.full((2, 2), 0.5)
    fast, slow = (
        Network(half, half, capacities=Capacities.of_links(2, ends, latency=np.full(2, ms)))
        for ms in (100.0, 700.0)
    )
    clock = Clock(distribution="constant", capacities=True)
    found = synchronous_timing(PushPull(), Timetable([fast, slow]), clock, SIZES)
    assert found.time(3) == pytest.approx(3 + 2 * (0.1 + 0.7 + 0.1))


@pytest.mark.parametrize(
    ("name", "chances"),
    [
        ("one-peer-exponential", {}),
        ("random-one-peer", {}),
        ("exponential", {"keep": 0.4}),
        ("exponential", {"loss": 0.5}),
        ("exponential", {"loss": {"share": 0.5, "kind": "known"}}),
    ],
)
def test_a_timetable_is_the_plain_recursion_over_the_links_of_each_step(
    name: str, chances: dict[str, Any]
) -> None:
    clock = Clock(jitter=0.4, straggler=3.0)
    net = build_any(name, 6, **chances)
    assert isinstance(net, Timetable)
    found = synchronous_timing(PushPull(), net, clock, SIZES)
    T = np.zeros(6)
    for k in range(20):
        slot, T = net.at(k), T + clock.compute_times(np.arange(6), np.full(6, k))
        for e, W in enumerate((slot.C, slot.R)):  # a push, then a pull
            end = T.copy()
            entries = W.tocoo()
            for i, j in zip(*(part.tolist() for part in entries.coords), strict=True):
                if i != j:
                    link = np.array([j]), np.array([i]), np.array([2 * k + e])
                    end[i] = max(end[i], T[j] + clock.latency + clock.jitters(*link)[0])
            T = end
    assert found.time(20) == pytest.approx(T.max(), rel=1e-12)
