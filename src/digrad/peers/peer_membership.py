"""The optimizer among peers: from one epoch to the next, all at the same place in their loops.

When an epoch breaks, neighbours may be a few steps apart (see ``LoopPosition``). All go on from where the
farthest was; a node that is behind is credited with the steps that the others have taken, one for
each call, and gets, for a sum that the others already have, the mean of the models at the epoch's
start. Where somebody joins, all get that for every sum until the next step, which they take
together: a newcomer begins its loop, and cannot know where in theirs the others are.
"""

import os
from collections.abc import Callable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from digrad.base.errors import ParameterError, lookup, message
from digrad.engines.processes.faults import PeerError
from digrad.optim.buffers import Buffers
from digrad.optim.layout import Layout
from digrad.optim.rows import Rows
from digrad.peers.engine import PeerEngine
from digrad.peers.epochs import Epoch, LoopPosition
from digrad.peers.local import key_file
from digrad.peers.membership import load_membership
from digrad.peers.session import EvictedError, Session

How = Literal["as it is", "from one model", "from the models"]  # a method goes on
Restart = Callable[[PeerEngine, How], None]
T = TypeVar("T")
log = getLogger("digrad.peers")


class PeerMembership:
    """This process as one node of a run of peers.

    Args:
        membership: the membership file.
        node: the name of the node here; the environment's DIGRAD_NODE if empty.
        key: its key file; ``keys/NODE.key`` beside the membership file if none.
        told: called with every epoch that begins.
        resumed: steps that the models here already have behind them; none: they are new.
    """

    def __init__(
        self,
        membership: str | Path,
        node: str,
        key: str | Path | None,
        told: Callable[[Epoch], None] | None,
        resumed: int | None = None,
    ) -> None:
        made = load_membership(membership)
        node = node or os.environ.get("DIGRAD_NODE", "")
        if not node:
            hint = f'pass node="{made.names[0]}", or set DIGRAD_NODE'
            raise ParameterError(message("peers= is given, but not which node this is", hint=hint))
        lookup(made.nodes, node, "node of the run")
        file = Path(key) if key is not None else key_file(made.folder, node)
        self._told = told or (lambda epoch: None)
        self.session = Session(made, node, file, self._note)
        self._about: Mapping[str, str] = {}
        self._options: dict[str, Any] = {}
        self._rows: Rows
        self._buffers: Buffers
        self._engine: PeerEngine
        self._restart: Restart
        self.leaving = self.left = False
        self._ahead, self.place, self._mean = (
            LoopPosition(),
            LoopPosition(resumed or 0),
            torch.empty(0),
        )
        if resumed is not None:
            self.session.settle()

    @property
    def mean(self) -> Tensor:
        """The mean of the models as the epoch began, or the model here, if that is not known."""
        return self._mean.clone() if len(self._mean) else self._rows.models[0].clone()

    @property
    def members(self) -> tuple[str, ...]:
        """Who takes part now."""
        return self.session.epoch.members

    def _note(self, epoch: Epoch, seconds: float) -> None:
        if epoch.number > 0 or epoch.why:
            all_of_them = len(self.session.membership.names)
            whose = f"the model is now of {len(epoch.members)} of {all_of_them} nodes' data"
            text = "epoch %d from step %d on, after %.1f s: %s; %s"
            log.info(text, epoch.number, epoch.steps, seconds, epoch.why, whose)
        self._told(epoch)

    def join(self, layout: Layout, about: Mapping[str, str], **options: Any) -> PeerEngine:
        """Enter the run, at its beginning or later."""
        if len(layout.models) != 1:
            what = f"a peer is one node, but was given {len(layout.models)} models"
            raise ParameterError(message(what, hint="pass the parameters of one model"))
        self._about, self._options = about, options
        self._join()
        self.place = LoopPosition(self._ahead.steps)  # a newcomer is not behind
        return self._engine

    def enter(self, rows: Rows, buffers: Buffers, restart: Restart) -> None:
        """Get the models ready for the first epoch of this node, or for one after it."""
        self._rows, self._buffers, self._restart = rows, buffers, restart
        try:
            self._begin()
        except PeerError as error:
            self.renew(error)

    def _begin(self) -> None:
        """Get the models ready at the start of an epoch; every member does the same."""
        session, rows = self.session, self._rows
        how: How = "from the models"
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

    def rejoin(self) -> None:
        """Enter the run again, which has gone on without this node, with the others' model."""
        self.session.rejoin()
        self._join()
        self.place = LoopPosition(self._ahead.steps)
        try:
            self._restart(self._engine, "from the models")
            self._begin()
        except PeerError as error:
            self.renew(error)

    def leave(self) -> None:
        """Ask to leave; the others go on as they are once all have come to the same place."""
        self.leaving = True
        self.session.leave(self._heir(self.session.node))

    def close(self) -> None:
        """Say goodbye, unless that has been said."""
        if not self.left:
            self.session.close(leaving=self.leaving)

    def _part(self) -> None:
        self.left = True
        self.session.close(leaving=True)

    def _heir(self, leaver: str) -> str:
        """Return who takes over the tracker of a node that leaves; nobody, if there is none."""
        net, members = self.session.network, self.session.epoch.members
        after = [i for j, i in net.push_graph.edges.tolist() if members[j] == leaver]
        if not after or self._rows.owed is None:
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
        session, owed, heir = self.session, self._rows.owed, self._heir(leaver)
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

    def sum(self, ask: Callable[[], T], behind: Callable[[], T]) -> T:
        """Return what all nodes compute together, in this epoch or the next.

        Args:
            ask: computes it; called again in the next epoch if this one breaks.
            behind: stands in for it where the others have it already, or this node has left.
        """
        there = self.place._replace(sums=self.place.sums + 1)
        while self.place < there:
            self._go_to(there)
            try:
                late = self.left or self.place < self._ahead
                found = behind() if late else ask()
                self.place = there
            except PeerError as error:
                self.renew(error)
                there = self.place._replace(sums=self.place.sums + 1)
        return found
