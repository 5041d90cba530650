"""Whole runs of nodes that wait for nobody: what becomes of them when others go."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor

from digrad.engines.processes.faults import PeerError
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad_peers.async_training import AsyncPeerTraining
from digrad_peers.hub import Hub
from digrad_peers.local import key_file, local_run
from digrad_peers.session import Session
from digrad_peers.training import the_job

EXPERIMENT = Experiment(
    networks=(NetworkSpec("complete", n=2),),
    algorithms=(AlgorithmSpec("r-fast"),),
    problem=KindSpec("quadratic", {"dim": 3, "sigma": 0.0}),
    steps=10**7,
    lr=(0.05,),
    dtype="float64",
)


class Lost(BaseException):
    """Ends a node as a killed process ends."""


class Pair:
    """Two nodes and their hub, in threads."""

    def __init__(self, folder: Path) -> None:
        self.names, self.folder = ["n0", "n1"], folder
        options = {"timeout": 20.0, "grace": 0.5}
        _, self.membership = local_run(folder, self.names, {"topology": "complete"}, **options)
        self.hub = Hub(self.membership, key_file(folder, "hub"), lambda text: None)
        self.sessions = {
            name: Session(self.membership, name, key_file(folder, name)) for name in self.names
        }
        self.leave = {name: Event() for name in self.names}

    def run(self, name: str, after: Callable[[Session, int], None]) -> str:
        """Let a node act for as long as it likes; ``after`` is told every gradient it has given."""
        job = the_job(EXPERIMENT, self.membership)
        session = self.sessions[name]
        x = torch.zeros(3, dtype=torch.float64)

        def gradient(count: int, x: Tensor) -> Tensor:
            after(session, count)
            time.sleep(0.001)
            return x - 1.0

        def note(*_: Any) -> None: ...

        try:
            AsyncPeerTraining(session, job, x, None).run(
                gradient, note, EXPERIMENT.steps, 10, self.leave[name]
            )
        except PeerError as error:
            session.close()
            return str(error)
        except Lost:
            return "gone"
        session.close(leaving=True)
        return "left"

    def both(self, *after: Callable[[Session, int], None]) -> list[str]:
        """Let both act at the same time."""
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(self.run, *each) for each in zip(self.names, after, strict=True)]
            return [each.result(60) for each in work]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "run")
    yield made
    made.hub.close()


def goes_on(session: Session, count: int) -> None: ...


def vanish(session: Session) -> None:
    """Close every connection and say nothing."""
    assert session._hub is not None
    assert session._links is not None
    session._hub._closed.set()
    session._listener.close()
    session._links.close()
    session._hub._said["epoch"] = "no"  # a report that is none: the hub hangs up
    raise Lost


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_with_too_few_nodes_stops(pair: Pair, dies: bool) -> None:
    """One of two leaves, or is lost: it ends, and the other is told that the run has stopped."""

    def goes(session: Session, count: int) -> None:
        if count == 20 and dies:
            vanish(session)
        if count == 20:
            pair.leave["n1"].set()

    stays, gone = pair.both(goes_on, goes)
    assert gone == ("gone" if dies else "left")
    assert "the run has stopped: 1 nodes are left, fewer than least = 2\n  hint: " in stays


def test_one_that_leaves_as_the_run_stops_has_left(pair: Pair) -> None:
    """It is asked to leave while it waits for what comes after the loss of the other."""
    session, accuse = pair.sessions["n0"], pair.sessions["n0"].accuse

    def asked(error: PeerError) -> None:
        accuse(error)
        pair.leave["n0"].set()

    def goes(session: Session, count: int) -> None:
        if count == 20:
            vanish(session)

    session.accuse = asked  # type: ignore[method-assign]
    assert pair.both(goes_on, goes) == ["left", "gone"]
    assert session.stopped
