"""Methods of meetings: reference trajectories, a plain loop, and who waits for whom."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.algorithms.pairwise import ADPSGD, Pairwise, SwarmSGD
from digrad.clocks import Clock
from digrad.clocks.links import LinkDelays
from digrad.clocks.meetings import BlockingMeetings, MeetingEvents, Meetings
from digrad.engines.event_state import Activation, EventState, StepSizes
from digrad.engines.pairs import PairEngine
from digrad.networks import build

A = torch.tensor([[1, 2], [2, 1], [3, 1], [1, 4]], dtype=torch.float64)
B = torch.tensor([[1, 0], [0, 2], [-1, 1], [2, -1]], dtype=torch.float64)
START = (0.5, -0.5)


def meetings(clock: Clock, every: int = 0, n: int = 4) -> Any:
    links = LinkDelays.of(build("undirected-ring", n), clock, 8.0, 0.0)
    return BlockingMeetings(clock, links, every) if every else Meetings(clock, links)


def begun(engine: PairEngine) -> EventState:
    return engine.start(torch.tensor(START, dtype=torch.float64).expand(1, engine.n, 2).clone())


def gradient(x: Tensor, who: Activation) -> Tensor:
    return A[who.nodes % 4, None] * (x - B[who.nodes % 4, None])


def steps(lr: float) -> StepSizes:
    return StepSizes(torch.tensor([lr], dtype=torch.float64), lambda t: 1.0)


def acts(*rows: tuple[int, int, int]) -> MeetingEvents:
    """From node, number and partner of each."""
    node, number, partner = (np.array(part) for part in zip(*rows, strict=True))
    return MeetingEvents(node, number, np.arange(len(rows), dtype=float), partner)


def test_ad_psgd_reference() -> None:
    woke = [0, 1, 0, 2, 3, 0, 1]
    numbers = [woke[:k].count(i) for k, i in enumerate(woke)]
    partners = [(i + (1 if k % 2 == 0 else -1)) % 4 for k, i in enumerate(woke)]
    engine = PairEngine(ADPSGD(), meetings(Clock()))
    flight = begun(engine)
    engine.play(flight, acts(*zip(woke, numbers, partners, strict=True)), gradient, steps(0.1))
    wanted = [[0.633, -0.4235], [0.1775, -0.1175], [0.2625, -0.3375], [0.585, -0.4725]]
    np.testing.assert_allclose(flight.state["x"][:, 0], wanted, atol=1e-12)


def test_swarm_sgd_reference() -> None:
    played, done = [], [0] * 4
    for i, j in ((0, 1), (2, 3), (1, 2)):
        for node, partners in ((i, (-1, -1)), (j, (-1, i))):
            for partner in partners:
                played.append((node, done[node], partner))
                done[node] += 1
    engine = PairEngine(SwarmSGD(2), meetings(Clock(), 2))
    flight = begun(engine)
    engine.play(flight, acts(*played), gradient, steps(0.1))
    wanted = [[0.4575, -0.1725], [-0.0449, 0.00555], [-0.0449, 0.00555], [0.26, -0.5175]]
    np.testing.assert_allclose(flight.state["x"][:, 0], wanted, atol=1e-12)


def plain(method: Pairwise[Any], played: MeetingEvents, n: int, lr: float) -> Any:
    """One act after the other, in NumPy; the sum of all rows is followed on the way."""
    x = np.tile(np.array(START), (n, 1))
    read = x.copy()
    a, b = A.numpy(), B.numpy()
    for i, j in zip(played.node.tolist(), played.partner.tolist(), strict=True):
        before = x.sum(0)
        if isinstance(method, ADPSGD):
            g = a[i % 4] * (read[i] - b[i % 4])
            x[i] = x[j] = (x[i] + x[j]) / 2
            x[i] = x[i] - lr * g
            read[i] = x[i]
        else:
            g = a[i % 4] * (x[i] - b[i % 4])
            x[i] = x[i] - lr * g
            if j >= 0:
                x[i] = x[j] = (x[i] + x[j]) / 2
        np.testing.assert_allclose(x.sum(0), before - lr * g, atol=1e-13)
    return x


@pytest.mark.parametrize("clock", [Clock(), Clock(straggler=4.0, seed=5), Clock(latency=2.0)])
@pytest.mark.parametrize("method", [ADPSGD(), SwarmSGD(1), SwarmSGD(3)])
def test_the_engine_is_the_plain_loop(method: Pairwise[Any], clock: Clock) -> None:
    engine = PairEngine(method, meetings(clock, method.every if method.waits else 0, 7))
    flight = engine.advance(begun(engine), 0, 30, gradient, steps(0.05))
    played = engine.meetings.rounds(0, 30)
    np.testing.assert_allclose(
        flight.state["x"][:, 0], plain(method, played, 7, 0.05), rtol=1e-11, atol=1e-13
    )


def test_without_gradients_it_is_gossip() -> None:
    engine = PairEngine(ADPSGD(), meetings(Clock(), 0, 6))
    x = torch.arange(12, dtype=torch.float64).view(1, 6, 2)
    flight = engine.start(x.clone())
    flight = engine.advance(flight, 0, 60, lambda x, who: torch.zeros_like(x), steps(1.0))
    torch.testing.assert_close(
        flight.state["x"][:, 0], x[0].mean(0).expand(6, 2), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("every", [1, 3])
def test_nobody_waits_for_ever_and_all_meet_with_all_their_steps_done(every: int) -> None:
    waiting = meetings(Clock(straggler=6.0), every, 5)
    found = waiting.rounds(0, 200)
    assert (np.diff(found.time) >= 0).all()
    since = [0] * 5
    for i, j in zip(found.node.tolist(), found.partner.tolist(), strict=True):
        since[i] += 1
        assert since[i] <= every
        if j >= 0:
            assert since[i] == since[j] == every
            since[i] = since[j] = 0
    assert waiting.meetings(200) == (found.partner >= 0).sum() > 300 / every
    assert np.bincount(found.node).min() > 20
    again = meetings(Clock(straggler=6.0), every, 5)
    late = again.rounds(150, 200)
    assert np.array_equal(late.partner, found.partner[750:])


def test_partners_are_neighbours_and_all_of_them() -> None:
    found = meetings(Clock(), 0, 6).rounds(0, 100)
    apart = (found.partner - found.node) % 6
    assert set(apart.tolist()) == {1, 5}
    assert 0.4 < (apart == 1).mean() < 0.6
