"""Nodes that wait for nobody, on real links, against a replay in the event engine."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.robust import APPG, RFast
from digrad.algorithms.robust_push_sum import RASGP, AsySPA
from digrad.clocks.calendar import Activations
from digrad.clocks.links import LinkDelays
from digrad.engines.event_state import Activation, StepSizes
from digrad.engines.events import EventEngine
from digrad.networks import Network
from digrad_peers.async_peer import ActivationRecord, AsyncPeer
from digrad_peers.frames import hang_up
from digrad_peers.local import key_file, local_run
from digrad_peers.session import Session
from mixers import Quadratics

DIM, N = 3, 4
NAMES = [f"n{k}" for k in range(N)]
PROBLEM = Quadratics.draw(N, DIM).quiet()
A, B = torch.from_numpy(PROBLEM.A), torch.from_numpy(PROBLEM.b)
START = torch.full((DIM,), 0.5, dtype=torch.float64)


def steps(lr: float) -> StepSizes:
    return StepSizes(torch.tensor([lr], dtype=torch.float64), lambda t: 1.0)


class Company:
    """Four nodes that act when they like."""

    def __init__(self, folder: Path) -> None:
        network = {"topology": "exponential"}
        _, self.membership = local_run(folder, NAMES, network, hub=False)
        self.sessions = {
            name: Session(self.membership, name, key_file(folder, name)) for name in NAMES
        }

    def run(
        self,
        method: Asynchronous[Any, Any],
        lr: float,
        wakes: int,
        tear: bool = False,
        together: bool = False,
    ) -> list[AsyncPeer]:
        """Let node 0, which is slow, act so often; the others too, or, if together, twice as often.

        Then it waits for them, not for a clock: by that of a busy machine all are equally slow.
        """
        over, acted = Event(), [0] * N

        def work(k: int) -> AsyncPeer:
            session = self.sessions[NAMES[k]]
            engine = session.join(0, {}, dtype=torch.float64)
            net, links = self.membership.graph, engine.links
            node = AsyncPeer(method, net, k, links, START, steps(lr), record=True)
            draw = random.Random(k)
            for t in count():
                if over.is_set() or (t >= wakes and not (together and k)):
                    break
                while together and k == 0 and min(acted[1:]) < 2 * t:
                    time.sleep(0.001)
                node.step(lambda x: A[k] @ (x - B[k]))
                acted[k] += 1
                time.sleep(draw.random() * (0.008 if k == 0 else 0.002))
                if tear and t % 15 == 7:
                    for outlet in links.outlets.values():
                        if outlet.sock is not None:
                            hang_up(outlet.sock)
            if together:
                over.set()
            return node

        with ThreadPoolExecutor(N) as pool:
            return [work.result(60) for work in [pool.submit(work, k) for k in range(N)]]

    def close(self) -> None:
        for session in self.sessions.values():
            session._hang_up()
            session.close()


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    made = Company(tmp_path / "run")
    yield made
    made.close()


class Recorded:
    """A calendar of what has happened."""

    def __init__(self, net: Network, nodes: list[AsyncPeer]) -> None:
        edges = np.unique(np.vstack([net.pull_graph.edges, net.push_graph.edges]), axis=0)
        self.links = LinkDelays(net.n, edges, np.zeros(len(edges)))
        self._woken = [node.activations for node in nodes]
        self._began = [node._began for node in nodes]

    def rounds(self, start: int, stop: int) -> Activations:
        every = sorted(
            (w.time, i, w) for i, activations in enumerate(self._woken) for w in activations
        )
        some = every[start * N : stop * N]
        reads = [
            self._reader(i, int(receiver), woke)
            for _, i, woke in some
            for receiver in self.links.edges[self.links.edges[:, 0] == i][:, 1]
        ]
        node = np.array([i for _, i, _ in some])
        number = np.array([woke.number for _, _, woke in some])
        clock = np.array([t - self._began[i] for t, i, _ in some])
        return Activations(node, number, clock, np.array(reads))

    def _reader(self, sender: int, receiver: int, sent: ActivationRecord) -> int:
        """The receiver's first wake that had this parcel, or a newer one."""
        later = len(self._woken[receiver])
        found = (w.number for w in self._woken[receiver] if w.read[sender] >= sent.number)
        return next(found, later)


def replayed(
    method: Asynchronous[Any, Any], net: Network, nodes: list[AsyncPeer], lr: float
) -> Tensor:
    events = EventEngine(method, net, Recorded(net, nodes), dtype=torch.float64)  # type: ignore[arg-type]

    def gradient(x: Tensor, who: Activation) -> Tensor:
        return torch.einsum("nij,ntj->nti", A[who.nodes], x - B[who.nodes, None])

    flight = events.start(START.expand(1, N, DIM).clone())
    flight = events.advance(flight, 0, len(nodes[0].activations), gradient, steps(lr))
    return method.point(flight.state.take(torch.arange(N)))[:, 0]


METHODS = {
    "rfast": (RFast(), 0.1),
    "appg": (APPG(), 0.05),
    "rasgp": (RASGP(slot=0.004), 0.01),
    "asyspa": (AsySPA(), 0.02),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("tear", [False, True])
def test_a_run_is_its_replay(company: Company, name: str, tear: bool) -> None:
    """The schedule that was recorded, in the event engine: the same numbers to rounding."""
    method, lr = METHODS[name]
    nodes = company.run(method, lr, wakes=40, tear=tear)
    found = torch.stack([node.point for node in nodes])
    expected = replayed(method, company.membership.graph, nodes, lr)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found[0], START)
    assert len({tuple(w.read.values()) for w in nodes[1].activations}) > 5  # it did hear the others


def test_rfast_reaches_the_optimum_though_one_is_slow(company: Company) -> None:
    nodes = company.run(RFast(), 0.5, wakes=150, together=True)
    best = torch.from_numpy(PROBLEM.optimum())
    assert max(float((node.point - best).norm()) for node in nodes) < 1e-4
    assert min(node.count for node in nodes[1:]) > 1.9 * nodes[0].count
