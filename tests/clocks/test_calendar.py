"""The clock and its schedules: what is drawn, when who wakes, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digrad.base.errors import DigradError
from digrad.clocks import Clock, clock
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.clocks.calendar import Calendar
from digrad.clocks.links import LinkDelays
from digrad.networks import Network, build
from digrad.networks.capacities import Capacities

MANY = np.arange(20_000)
ZERO = np.zeros_like(MANY)


def calendar(net: Network, times: Clock) -> Calendar:
    return Calendar(times, LinkDelays.of(net, times, 8.0, 8.0))


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [("constant", 1.0), ("uniform", 1.0), ("shifted-exponential", 1.5), ("heavy-tailed", 1.25)],
)
def test_mean_times(distribution: str, mean: float) -> None:
    # (u^(-1/tail) - 1) has the mean 1/(tail - 1)
    more = {"tail": 3.0} if distribution == "heavy-tailed" else {}
    times = Clock(distribution=distribution, **more).compute_times(ZERO, MANY)
    assert times.mean() == pytest.approx(mean, rel=0.02)
    assert times.min() >= (0.5 if distribution == "uniform" else 1.0)


def test_a_draw_depends_on_its_own_number_alone() -> None:
    one, other = (
        Clock(seed=1, jitter=1.0),
        Clock(seed=1, jitter=1.0, straggler=2.0, stragglers=(1,)),
    )
    assert np.array_equal(one.compute_times(ZERO, MANY), other.compute_times(ZERO, MANY))
    some = one.jitters(ZERO[:7] + 2, ZERO[:7] + 3, MANY[:7])
    assert np.array_equal(some[4:5], one.jitters(ZERO[:1] + 2, ZERO[:1] + 3, MANY[4:5]))
    assert not np.array_equal(some, one.jitters(ZERO[:7] + 3, ZERO[:7] + 2, MANY[:7]))


def test_loss_has_its_rate_and_its_longest_run() -> None:
    lost = Clock(loss=0.2).is_lost(ZERO, ZERO + 1, MANY)
    assert lost.mean() == pytest.approx(0.2, abs=0.01)
    lost = Clock(loss=0.9, losses_in_a_row=4).is_lost(ZERO, ZERO + 1, MANY)
    runs = np.diff(np.flatnonzero(np.concatenate([[True], ~lost, [True]]))) - 1
    assert runs.max() == 4


def test_wakes_of_constant_times_are_known_in_closed_form() -> None:
    net = build("directed-ring", 4)
    found = calendar(net, Clock(trace=((1.0,), (1.5,), (2.0,), (2.5,)))).rounds(0, 25)
    until = 20.0
    counts = np.bincount(found.node[found.time <= until])
    assert counts.tolist() == [20, 13, 10, 8]
    assert (np.diff(found.time) >= 0).all()


def test_the_same_however_it_is_cut() -> None:
    net, times = build("exponential", 8), Clock(jitter=0.3, loss=0.1, straggler=5.0)
    whole, parts = calendar(net, times), calendar(net, times)
    together = whole.rounds(0, 40)
    cut = [parts.rounds(a, b) for a, b in ((0, 3), (3, 4), (4, 40))]
    for name in together._fields:
        joined = np.concatenate([getattr(part, name) for part in cut])
        assert np.array_equal(getattr(together, name), joined), name
    resumed = calendar(net, times)
    assert np.array_equal(resumed.rounds(17, 19).time, together.time[17 * 8 : 19 * 8])
    assert resumed.time(40) == together.time[-1] == whole.time(40)
    assert whole.digest(9) == resumed.digest(9)
    assert whole.digest(9) != calendar(net, Clock(seed=1)).digest(9)


def test_a_message_is_read_at_the_first_wake_after_it_arrives() -> None:
    net = build("directed-ring", 2)
    found = calendar(net, Clock(trace=((1.0,), (10.0,)), latency=0.5)).rounds(0, 6)
    by_zero = found.reads[found.node == 0][:10]
    assert by_zero.tolist() == [0] * 9 + [1]  # node 1 wakes at 10, 20; the tenth arrives at 10.5


def test_capacities_of_the_network_are_taken() -> None:
    edges = np.array([[0, 1], [1, 0]])
    known = Capacities.of_links(
        2, edges, latency=np.array([20.0, np.nan]), bandwidth=np.array([8.0, 8.0])
    )
    delays = Clock(capacities=True, latency=0.5).steady_delays(edges, np.array([1e6, 2e6]), known)
    assert delays.tolist() == [1.02, 2.5]
    assert Clock(latency=0.5).steady_delays(edges, np.array([1e6, 2e6]), known).tolist() == [
        0.5,
        0.5,
    ]


def test_a_trace_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("node,compute\n0,1.5\n1,2\n0,2.5\n", encoding="utf-8")
    made = clock(trace="times.csv", folders=[tmp_path])
    assert made.trace == ((1.5, 2.5), (2.0,))
    assert made.compute_times(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 5])).tolist() == [
        1.5,
        2.5,
        1.5,
        2,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "lacks a column"),
        ("node,compute\n0,x\n", "line 2"),
        ("node,compute\n1,1\n", "without a gap"),
        ("node,compute\n0,-1\n", "times above 0"),
    ],
)
def test_a_damaged_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "times.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DigradError, match=said):
        clock(trace=tmp_path / "times.csv")
    with pytest.raises(DigradError, match="cannot be read"):
        clock(trace=tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compute": 0.0}, "compute must be"),
        ({"distribution": "exponental"}, "shifted-exponential"),
        ({"distribution": "uniform", "spread": 2.0}, "at most 1"),
        ({"distribution": "constant", "spread": 0.7}, "does not use spread = 0.7"),
        ({"tail": 2.0}, '"shifted-exponential" does not use tail = 2.0'),
        ({"loss": 1.5}, "loss must be"),
        ({"losses_in_a_row": 0}, "losses_in_a_row"),
        ({"waiting": "nobody"}, "waiting"),
        ({"latency": -1.0}, "latency must be"),
        ({"stragglers": (-1,)}, "straggler"),
        ({"trace": [[1.0], []]}, "node 1 of the trace"),
        ({"trace": 3}, "a trace is a list"),
    ],
)
def test_impossible_times_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DigradError, match=said):
        clock(**given)


def test_stragglers_and_traces_must_fit_the_network() -> None:
    net = build("directed-ring", 3)
    with pytest.raises(DigradError, match="node 3 cannot be a straggler"):
        calendar(net, Clock(straggler=2.0, stragglers=(3,)))
    with pytest.raises(DigradError, match="times of 2 nodes, the network has 3"):
        calendar(net, clock(trace=[[1.0], [1.0]]))


def patient(every: int = 1, **times: Any) -> BoundedStalenessCalendar:
    given = Clock(**times)
    return BoundedStalenessCalendar(
        given, LinkDelays.of(build("exponential", 6), given, 8.0, 8.0), every
    )


def test_patient_wakes_are_the_same_however_they_are_cut() -> None:
    options: dict[str, Any] = {"every": 2, "jitter": 0.7, "straggler": 4.0}
    whole = patient(**options).rounds(0, 30)
    cut = patient(**options)
    parts = [cut.rounds(a, b) for a, b in ((0, 1), (1, 17), (17, 30))]
    for name in whole._fields:
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(getattr(whole, name), joined), name
    assert cut.rounds(5, 7).time.tolist() == whole.time[30:42].tolist()  # gone back to
    assert cut.time(30) == whole.time[-1]


def test_nobody_is_more_than_an_exchange_ahead_of_its_in_neighbours() -> None:
    calendar = patient(straggler=9.0, latency=0.1)
    wakes, ahead = calendar.rounds(0, 40), np.zeros(6, int)
    heard = {(int(j), int(i)) for j, i in calendar.links.edges}
    for node in wakes.node.tolist():
        ahead[node] += 1
        assert all(ahead[i] - ahead[j] <= 2 for j, i in heard if i == node)
    assert ahead.max() - ahead.min() <= 6
