"""A network that changes, on several processes: each step has routes of its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from digrad.algorithms.contract import Change, Code, Mixer, Verb, add_changes
from digrad.base.errors import ParameterError
from digrad.engines.processes.exchange import RankMatrix
from digrad.networks.network import Slot
from digrad.networks.timetable import Timetable

if TYPE_CHECKING:
    from digrad.engines.processes.engine import Processes

REMEMBERED = 4  # steps whose routes are kept where they are left to chance: this one, the next


class StepMixer:
    """The mixer of one step on several processes: only links of that step are used."""

    def __init__(self, engine: "Processes", pull: RankMatrix, push: RankMatrix) -> None:
        self._engine = engine
        self._mixings: dict[Verb, RankMatrix] = {"pull": pull, "push": push}

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """R(X + Σ αD)."""
        return self._engine.mix("pull", self._mixings["pull"], rows, changes, out)

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """C(X + Σ αD)."""
        return self._engine.mix("push", self._mixings["push"], rows, changes, out)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return self._engine.mean(rows)

    def coded(self, code: Code) -> Mixer:
        """Refuse: what was heard so far is of one network only."""
        what = "messages cannot be compressed on a network that changes"
        raise ParameterError(what, hint="drop compress, or take one of its networks")

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Start sending rows now; the verb of this step's mixer, with this very tensor, ends it."""
        self._engine.begin_with(verb, self._mixings[verb], rows)


class LossyStepMixer(StepMixer):
    """The mixer of one step in which messages may be lost that nobody hears of.

    Every message is sent; whether it arrives is the receiver's to know.
    """

    def __init__(
        self,
        engine: "Processes",
        pull: RankMatrix,
        push: RankMatrix,
        own: Tensor,
        links: Sequence[RankMatrix],
        arrives: Tensor,
    ) -> None:
        super().__init__(engine, pull, push)
        self._own, self._links, self.arrives = own, links, arrives

    def parcels(self, rows: Tensor, /, *changes: Change) -> list[Tensor]:
        """Return what each node keeps, then what its first link brings, and so on."""
        rows = add_changes(rows, changes)
        brought = [self._engine.mix("push", link, rows, (), None) for link in self._links]
        return [self._own * rows, *brought]


class StepRoutes:
    """The routes of a timetable."""

    def __init__(self, net: Timetable, engine: "Processes") -> None:
        self._net, self._engine = net, engine
        self._slots = [self._slot_mixer(slot) for slot in (*net.slots, net.quiet)]
        self._drawn: dict[int, StepMixer] = {}
        self._links: dict[bytes, list[RankMatrix]] = {}

    def all(self) -> list[RankMatrix]:
        """Return the routes of all links that may ever be used."""
        return [mixing for visit in self._slots for mixing in visit._mixings.values()]

    def at(self, t: int) -> StepMixer:
        """Return the mixer of step t."""
        place = self._net.place(t)
        if not self._net.is_random:
            return self._slots[-1 if place is None else place]
        if t not in self._drawn:
            while len(self._drawn) >= REMEMBERED:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[t] = self._random_mixer(t)
        return self._drawn[t]

    def _slot_mixer(self, slot: Slot) -> StepMixer:
        return StepMixer(self._engine, self._engine.mixing(slot.R), self._engine.mixing(slot.C))

    def _random_mixer(self, t: int) -> StepMixer:
        slot, engine = self._net.at(t), self._engine
        if not self._net.chances.silent:
            return self._slot_mixer(slot)
        own, shares, arrives = (part[0] for part in self._net.inflow(range(t, t + 1)))
        device, dtype, rows = engine.nodes.device, engine.dtype, engine.rows
        kept = torch.from_numpy(own[rows, None].copy()).to(device, dtype)
        come = torch.from_numpy(arrives[:, rows, None].copy()).to(device)
        made = engine.mixing(slot.R), engine.mixing(slot.C)
        return LossyStepMixer(engine, *made, kept, self._by_link(shares), come)

    def _by_link(
        self, shares: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
    ) -> list[RankMatrix]:
        """Return a route for the first link into each node, one for the second, and so on."""
        key = shares.tobytes()
        if key not in self._links:
            self._links = {key: [self._route(k, share) for k, share in enumerate(shares)]}
        return self._links[key]

    def _route(
        self, k: int, share: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
    ) -> RankMatrix:
        used, n = np.flatnonzero(share), self._net.n
        places = used, self._net.in_links[k][used]
        return self._engine.mixing(csr_array((share[used], places), shape=(n, n)))
