"""An asynchronous experiment among peers: no node waits for another."""

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.needs import check
from digrad.engines.event_state import StepSizes
from digrad.engines.processes.faults import PeerError
from digrad.runs.planning import Job
from digrad_peers.async_peer import AsyncPeer
from digrad_peers.engine import PeerEngine
from digrad_peers.epochs import Epoch, LoopPosition
from digrad_peers.session import EvictedError, Session

log = logging.getLogger("digrad.peers")
Gradient = Callable[[int, Tensor], Tensor]  # of a node's so-many-th gradient, at a point
Note = Callable[[int, Tensor, Epoch, int], None]  # gradients given, the model, epoch, bytes sent


class AsyncPeerTraining:
    """One node that acts by itself, epoch after epoch.

    Args:
        session: its part in the run.
        job: what is trained.
        x: where it starts, unless the others give it their model.
        count: gradients that x has behind it; none: it is new.
    """

    def __init__(self, session: Session, job: Job, x: Tensor, count: int | None) -> None:
        method = job.method
        assert isinstance(method, Asynchronous)
        self._method: Asynchronous[Any, Any] = method
        self._session, self._job, self._x, self._count = session, job, x, count or 0
        if count is not None:
            session.settle()
        self._node: AsyncPeer | None = None
        self.rejoins = False  # whether it joins again, where the others have gone on without it

    def run(self, gradient: Gradient, note: Note, stop: int, every: int, leave: Event) -> None:
        """Give gradients until every member has given ``stop`` of them, or this one leaves."""
        while True:
            try:
                engine = self._join()
            except (PeerError, EvictedError):
                if leave.is_set():  # to end as it was asked to is no failure
                    return
                raise
            try:
                self._x = self._common(engine)
                self._session.settle()
                self._act(engine, gradient, note, stop, every, leave)
                return
            except PeerError as error:
                if not self._session.goes_on:
                    raise
                if self._node is not None:
                    self._x, self._node = self._node.point.clone(), None
                self._session.accuse(error)

    def _join(self) -> PeerEngine:
        about = {"algorithm": repr(self._method), "asynchronous": "yes"}
        place = LoopPosition(self._count).number
        try:
            engine = self._session.join(place, about, dtype=self._x.dtype)
        except EvictedError as error:
            if not self.rejoins:
                raise
            log.warning("%s", str(error).partition("\n")[0])
            self._session.rejoin()
            return self._join()
        check(self._method, self._session.network)
        return engine

    def _common(self, engine: PeerEngine) -> Tensor:
        """Return where this node starts: as it is, or from the model of the others."""
        session, weights = self._session, torch.zeros(engine.n, dtype=torch.float64)
        if session.newcomers:
            weights[:] = 1 / (engine.n - len(session.newcomers))
            weights[session.newcomers] = 0
        elif session.fresh:
            weights[0] = 1
        else:
            return self._x
        own = self._x if weights[engine.rank] else torch.zeros_like(self._x)
        mean = engine.weighted(own.reshape(1, -1), weights).to(self._x)
        if session.fresh:
            self._count = session.epoch.steps
        return mean if session.fresh else self._x

    def _act(
        self,
        engine: PeerEngine,
        gradient: Gradient,
        note: Note,
        stop: int,
        every: int,
        leave: Event,
    ) -> None:
        job, session, before = self._job, self._session, self._count
        base = torch.tensor([job.scaled.lr[0]], dtype=self._x.dtype)
        steps = StepSizes(base, job.schedule)
        net = session.network
        node = AsyncPeer(self._method, net, engine.rank, engine.links, self._x, steps)
        node.counts[engine.rank] = before
        self._node = node
        size = sum(part.nbytes for part in self._method.parcel(node.state))
        size *= len(engine.links.outlets)
        while not leave.is_set() and not self._over(node, stop):
            if self._count % every == 0:
                note(self._count, node.point, session.epoch, (self._count - before) * size)
            node.step(lambda x: gradient(self._count, x))
            self._count += 1
        note(self._count, node.point, session.epoch, (self._count - before) * size)

    def _over(self, node: AsyncPeer, stop: int) -> bool:
        """Whether all have given enough, or nobody has been heard for long."""
        if self._count < stop:
            return False
        silent = time.monotonic() - node.heard > self._session.membership.timeout
        return silent or bool((node.counts >= stop).all())
