"""The optimizer among peers: from one epoch to the next, all at the same place in their loops.

When an epoch breaks, neighbours may be a few steps apart (see ``Place``). All go on from where the
farthest was; a node that is behind is credited with the steps that the others have taken, one for
each call, and gets, for a sum that the others already have, the mean of the models at the epoch's
start.
"""

import os
from collections.abc import Callable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from digrad.base.errors import ParameterError, lookup, message
from digrad.engines.processes.faults import PeerError
from digrad.optim.layout import Layout
from digrad.optim.rows import Rows
from digrad.peers.engine import Peers
from digrad.peers.epochs import Epoch, Place
from digrad.peers.local import key_file
from digrad.peers.membership import load_membership
from digrad.peers.session import Session

log = getLogger("digrad.peers")


class Company:
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
        self._ahead, self.place, self._mean = Place(), Place(resumed or 0), torch.empty(0)
        if resumed is not None:
            self.session.settle()

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

    def join(self, layout: Layout, about: Mapping[str, str], **options: Any) -> Peers:
        """Enter the run, at its beginning or later."""
        if len(layout.models) != 1:
            what = f"a peer is one node, but was given {len(layout.models)} models"
            raise ParameterError(message(what, hint="pass the parameters of one model"))
        self._about, self._options = about, options
        engine = self.session.join(self.place.number, about, **options)
        self.place = self._ahead = Place.of(self.session.epoch.t)  # a newcomer is not behind
        return engine

    def begin(self, rows: Rows) -> None:
        """Get the models ready at the start of an epoch; every member does the same."""
        session = self.session
        if session.newcomers:
            self._mean = rows.common(without=session.newcomers)
            if session.fresh:
                rows.models.copy_(self._mean.expand_as(rows.models))
        elif session.fresh:
            rows.broadcast()
        else:
            self._mean = rows.common(without=[])
        session.settle()

    def renew(self, error: PeerError, restart: Callable[[Peers], Rows]) -> None:
        """Go on in the next epoch, or raise the error where nobody can decide on one."""
        while True:
            if not self.session.goes_on:
                raise error
            self.session.accuse(error)
            engine = self.session.join(self.place.number, self._about, **self._options)
            try:
                rows = restart(engine)
                self.begin(rows)
                restart(engine)
            except PeerError as again:
                error = again
                continue
            self._ahead = Place.of(self.session.epoch.t)
            return

    @property
    def behind(self) -> bool:
        """Whether the others have already taken this node's next step."""
        return self.place.steps < self._ahead.steps

    def stepped(self) -> None:
        """Count a step."""
        self.place = Place(self.place.steps + 1)

    def sum(self, ask: Callable[[], Tensor], restart: Callable[[Peers], Rows]) -> Tensor:
        """Return a sum over all nodes, in this epoch or the next."""
        while self.place >= self._ahead:
            try:
                found = ask()
            except PeerError as error:
                self.renew(error, restart)
                continue
            self.place = self.place._replace(sums=self.place.sums + 1)
            return found
        self.place = self.place._replace(sums=self.place.sums + 1)
        return self._mean.clone()
