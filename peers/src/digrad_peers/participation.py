"""The optimizer among peers: from one epoch to the next, all at the same place in their loops.

When an epoch breaks, neighbours may be a few steps apart (see ``LoopPosition``). All go on from
where the farthest was; a node that is behind is credited with the steps that the others have taken,
one for each call, and gets, for a sum that the others already have, the mean of the models at the
epoch's start. Where somebody joins, all get that for every sum until the next step, which they take
together: a newcomer begins its loop, and cannot know where in theirs the others are.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from digrad.base.errors import ParameterError, lookup, message
from digrad.engines.processes.faults import PeerError
from digrad.networks import AnyNetwork
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.buffers import Buffers
from digrad.optim.layout import Layout
from digrad.optim.participation import Participation, Restart, Restarts
from digrad.optim.rows import Rows
from digrad_peers.engine import PeerEngine
from digrad_peers.epochs import Epoch, LoopPosition
from digrad_peers.local import key_file
from digrad_peers.membership import load_membership
from digrad_peers.session import EvictedError, Session

T = TypeVar("T")
log = getLogger("digrad.peers")


class PeerParticipation(Participation):
    """One node of those that a membership file names: ``dg.peers("run.toml", node="milan")``.

    The nodes are joined by their links alone, over the network that the file names. An object is
    for one optimizer.

    Args:
        membership: the membership file.
        node: the name of the node here; the environment's DIGRAD_NODE by default.
        key: its key file; by default ``keys/NODE.key`` beside the membership file.
        on_epoch: called with every epoch that begins: who takes part from now on.
        resumed: steps that the models here already have behind them, as when they were stored and
            loaded again; without it, they are replaced by those of the others.
        message_dtype, bucket_bytes, overlap: as of ``dg.processes``.
    """

    not_storable = message(
        "does not work among peers, whose epochs begin anew from the models",
        hint="each peer stores its own model and opt.t, and goes on with dg.peers(..., resumed=t): "
        "see the guide on peers",
    )
    common_start = False  # who has a model of the run is known only once all have met

    def __init__(
        self,
        membership: str | Path,
        *,
        node: str = "",
        key: str | Path | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
        resumed: int | None = None,
        message_dtype: torch.dtype | None = None,
        bucket_bytes: int | None = None,
        overlap: bool = True,
    ) -> None:
        super().__init__(message_dtype, bucket_bytes, overlap)
        run = load_membership(membership)
        node = node or os.environ.get("DIGRAD_NODE", "")
        if not node:
            hint = f'pass node="{run.names[0]}", or set DIGRAD_NODE'
            raise ParameterError("it is not said which node of the run this is", hint=hint)
        lookup(run.nodes, node, "node of the run")
        file = Path(key) if key is not None else key_file(run.folder, node)
        self._on_epoch = on_epoch or (lambda epoch: None)
        self.session = Session(run, node, file, self._note)
        self._about: Mapping[str, str] = {}
        self._options: dict[str, Any] = {}
        self._rows: Rows
        self._buffers: Buffers
        self._engine: PeerEngine
        self._restart: Restarts
        self.leaving = self.left = False
        self._ahead, self.place = LoopPosition(), LoopPosition(resumed or 0)
        self._mean = torch.empty(0)
        if resumed is not None:
            self.session.settle()

    @property
    def epochs(self) -> Sequence[Epoch]:  # type: ignore[override]
        """The epochs that this node has been in."""
        return self.session.epochs

    def network(self, given: Any, layout: Layout) -> AnyNetwork:
        """Return the network of all members."""
        if given is not None:
            hint = "leave one out: the membership file names the network of peers"
            raise ParameterError("both a network and peers are given", hint=hint)
        return self.session.membership.graph

    def members(self, net: AnyNetwork) -> tuple[str, ...]:
        """Return who takes part now."""
        return self.session.epoch.members

    def _mean_model(self) -> Tensor:
        """Return the mean of the models as the epoch began; if that is unknown, the model here."""
        return self._mean.clone() if len(self._mean) else self._rows.models[0].clone()

    def _note(self, epoch: Epoch, seconds: float) -> None:
        if epoch.number > 0 or epoch.why:
            all_of_them = len(self.session.membership.names)
            whose = f"the model is now of {len(epoch.members)} of {all_of_them} nodes' data"
            text = "epoch %d from step %d on, after %.1f s: %s; %s"
            log.info(text, epoch.number, epoch.steps, seconds, epoch.why, whose)
        self._on_epoch(epoch)

    def connect(self, net: AnyNetwork, layout: Layout, about: Mapping[str, str]) -> PeerEngine:
        """Enter the run, at its beginning or later."""
        if len(layout.models) != 1:
            what = f"a peer is one node, but was given {len(layout.models)} models"
            raise ParameterError(what, hint="pass the parameters of one model")
        kinds = {"device": layout.like.device, "dtype": layout.like.dtype}
        self._about, self._options = about, {**kinds, "message_dtype": self.message_dtype}
        self._join()
        self.place = LoopPosition(self._ahead.steps)  # a newcomer is not behind
        return self._engine

    def enter(self, rows: Rows, buffers: Buffers, restart: Restarts) -> int:
        """Get the models ready for the first epoch of this node, or for one after it."""
        self._rows, self._buffers, self._restart = rows, buffers, restart
        try:
            self._begin()
        except PeerError as error:
            self.renew(error)
        return self.place.steps

    def _begin(self) -> None:
        """Get the models ready at the start of an epoch; every member does the same."""
        session, rows = self.session, self._rows
        how: Restart = "from the models"
        if session.newcomers:
            self._mean = rows.common(without=session.newcomers)
            self._buffers.take_over(rows, session.newcomers, fresh=session.fresh)
            if session.fresh:
                rows.models.copy_(self._mean.expand_as(rows.models))
        elif session.fresh:
            rows.broadcast()
            how = "from one model"
        else:
            self._mean = rows.common(without=[])
        session.settle()
        self._restart(self._engine, how)

    def renew(self, error: PeerError | None) -> None:
        """Go on in the next epoch, or raise the error where nobody can decide on one."""
        while not self.left:
            if error is not None and not self.session.goes_on:
                raise error
            if error is not None:
                self.session.accuse(error)
            try:
                self._join()
                keep = error is None and self.session.epoch.kept
                self._restart(self._engine, "as it is" if keep else "from the models")
                if not keep:
                    self._begin()
                return
            except PeerError as again:
                error = again
                if self.session.stopped and not self.leaving:
                    raise
                if self.session.stopped:
                    self._part()
            except EvictedError:
                if not self.leaving:
                    raise
                self._part()

    def _join(self) -> None:
        place = max(self.place, self._ahead)
        self._engine = self.session.join(place.number, self._about, **self._options)
        self._ahead = LoopPosition.of(self.session.epoch.t)
        if self.leaving:
            self.leave()

    def rejoin(self) -> int:
        """Enter the run again, which has gone on without this node, with the others' model."""
        self.session.rejoin()
        self._join()
        self.place = LoopPosition(self._ahead.steps)
        try:
            self._restart(self._engine, "from the models")
            self._begin()
        except PeerError as error:
            self.renew(error)
        return self.place.steps

    def leave(self) -> None:
        """Ask to leave; the others go on as they are once all have come to the same place."""
        self.leaving = True
        self.session.leave(self._heir(self.session.node))

    def close(self, engine: OptimizerEngine) -> None:
        """Close the session, unless this node has left."""
        if not self.left:
            self.session.close(leaving=self.leaving)

    def _part(self) -> None:
        self.left = True
        self.session.close(leaving=True)

    def _heir(self, leaver: str) -> str:
        """Return who takes over the tracker of a node that leaves; nobody, if there is none."""
        net, members = self.session.network, self.session.epoch.members
        after = [i for j, i in net.push_graph.edges.tolist() if members[j] == leaver]
        if not after or self._rows.handover is None:
            return ""
        return str(members[min(after)])

    def _go_to(self, there: LoopPosition) -> None:
        """Get ready to go to a place; before that, a node that leaves may have to be seen off."""
        while not self.left:
            if there.steps > self.place.steps == self._ahead.steps:
                self.place = max(self.place, self._ahead)  # no more sums before the step
            if self.session.may_begin(self.place.number, there.number):
                return
            try:
                self._see_off(self.session.leaver)
            except PeerError as error:
                self.renew(error)

    def _see_off(self, leaver: str) -> None:
        """Part from a node that leaves: all are at one place, and nothing is on its way."""
        session, owed, heir = self.session, self._rows.handover, self._heir(leaver)
        rank = {name: k for k, name in enumerate(session.epoch.members)}
        assert owed is not None
        if session.node == leaver:
            self._engine.hand(owed, rank[heir])
        elif session.node == heir:
            self._rows.inherit(self._engine.inherit(owed, rank[leaver]))
        parted = session.stop_at(self.place.number)
        if not parted and not (session.stopped and session.node == leaver):
            raise PeerError(f"{leaver} left before all had come to the same place")
        if session.node == leaver:
            self._part()
        else:
            self.renew(None)

    def step(self, take: Callable[[], float]) -> float | None:
        """Take a step with the members there are; none is taken once this node has left.

        Where the others have taken it already, it is only counted.
        """
        if self.left:
            hint = "end the loop: while opt.t < steps and not opt.left"
            raise ParameterError("this node has left the run", hint=hint)
        there, seconds = LoopPosition(self.place.steps + 1), 0.0
        while self.place < there:
            self._go_to(there)
            if self.left:
                return None
            try:
                seconds = 0.0 if self.place.steps < self._ahead.steps else take()
                self.place = there
            except PeerError as error:
                self.renew(error)
        self._go_to(there)
        return seconds

    def sum(self, compute: Callable[[], T], behind: Callable[[], T] | None = None) -> T:
        """Return what all nodes compute together, in this epoch or the next.

        Args:
            compute: called again in the next epoch if this one breaks.
            behind: replaces it where the others have it already, or this node has left; by default
                the mean of the models as the epoch began.
        """
        replacement: Any = behind or self._mean_model
        there = self.place._replace(sums=self.place.sums + 1)
        while self.place < there:
            self._go_to(there)
            try:
                late = self.left or self.place < self._ahead
                result = replacement() if late else compute()
                self.place = there
            except PeerError as error:
                self.renew(error)
                there = self.place._replace(sums=self.place.sums + 1)
        return result


peers = PeerParticipation  # as dg.peers("run.toml")
