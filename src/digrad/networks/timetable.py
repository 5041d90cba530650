"""Networks that change: a timetable of slots, links that work now and then, messages lost."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from digrad.base.checks import whole
from digrad.base.digests import text_digest
from digrad.base.errors import NetworkError, ParameterError
from digrad.base.streams import counted_uniforms
from digrad.networks.chances import KEEP, LOSS, Chances, Draw, Flags, Floats, Pattern
from digrad.networks.digraph import Digraph, Nodes
from digrad.networks.network import Network, Slot

MOST_SLOTS = 100_000


class Inflow(NamedTuple):
    """What silent losses need to know of some steps; K is the most links into a node."""

    own: Floats  # (steps, n): the share that a node keeps
    shares: Floats  # (steps, K, n): of what the k-th link into a node brings, if it is used
    arrives: Flags  # (steps, K, n): whether that arrives


@dataclass(frozen=True, eq=False, repr=False)
class Timetable:
    """A network that changes from step to step; what takes a ``Network`` takes it too.

    Step t uses slot t/K, K = ``exchange_every``, and then the first again after the last; where t
    is no multiple of K, nothing is sent. A slot need not connect anybody. What is asked is that a
    whole period does: the pair of products over a period has a common root and decays, as the
    paper asks of (R, C). Where every node counts itself in every slot, that is so exactly when
    the mean of the slots has both. A timetable left to chance is judged by its expectation.

    >>> ring = [Slot(W, W) for W in ([[1, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]])]
    >>> Timetable(ring)
    Timetable(n=2, slots=2, period=2, pull edges=2, push edges=2, roots=2)

    Args:
        slots: one or more, of the same nodes.
        exchange_every: steps from one exchange to the next.
        chances: which links work, and which messages are lost.
    """

    slots: tuple[Slot, ...]
    exchange_every: int
    chances: Chances
    union: Network  # links that ever work; its roots are those of a period
    title: str

    def __init__(
        self, slots: Sequence[Slot], *, exchange_every: int = 1, chances: Chances | None = None
    ) -> None:
        hint = "5 exchanges in every fifth step"
        fields = {
            "slots": _checked(slots),
            "exchange_every": whole(exchange_every, "exchange_every", least=1, hint=hint),
        }
        fields |= {"chances": chances or Chances(), "title": ""}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "union", self._validated())

    def _validated(self) -> Network:
        """Return the mean of all slots, which the whole period has to connect."""
        first, expected = self.slots[0], self.expected
        if len(expected) == 1:
            means = expected[0].R, expected[0].C
        else:
            means = _mean([s.R for s in expected]), _mean([s.C for s in expected])
        try:
            lonely = any((W.diagonal() == 0).any() for s in expected for W in (s.R, s.C))
            if lonely and len(expected) > 1:
                Network(*products(expected), first.names)
            return Network(*means, first.names, notes=first.notes)
        except NetworkError as error:
            if self.is_fixed:
                raise
            said = f"the {len(self.slots)} slots of a period together: {error}"
            raise NetworkError(said if len(self.slots) > 1 else str(error)) from error

    def __repr__(self) -> str:
        """Show sizes, not matrices."""
        union = self.union
        said = f", {self.chances}" if self.is_random else ""
        return (
            f"Timetable(n={self.n}, slots={len(self.slots)}, period={self.period}, pull "
            f"edges={len(union.pull_graph.edges)}, push edges={len(union.push_graph.edges)}, "
            f"roots={len(union.roots)}{said})"
        )

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.slots[0].n

    @property
    def period(self) -> int:
        """Steps after which the slots begin anew."""
        return self.exchange_every * len(self.slots)

    @property
    def is_random(self) -> bool:
        """Whether anything is left to chance."""
        return self.chances.any

    @property
    def is_fixed(self) -> bool:
        """Whether all steps are alike."""
        return self.period == 1 and not self.is_random

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the nodes are called outside digrad."""
        return self.union.names

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out when it was read."""
        return self.union.notes

    @property
    def roots(self) -> Nodes:
        """Nodes that collect every gradient in time, and reach everybody."""
        return self.union.roots

    @property
    def pull_graph(self) -> Digraph:
        """The links over which models are ever pulled."""
        return self.union.pull_graph

    @property
    def push_graph(self) -> Digraph:
        """The links over which trackers are ever pushed."""
        return self.union.push_graph

    def name(self, node: int) -> str:
        """Return what a node is called."""
        return self.union.name(node)

    def called(self, title: str) -> "Timetable":
        """Return the same timetable under a name for tables and figures."""
        made = copy(self)
        object.__setattr__(made, "title", title)
        return made

    def digest(self) -> str:
        """Return a checksum of all slots and chances, the same on every machine."""
        slots = [slot.digest() for slot in self.slots]
        return text_digest(
            {"slots": slots, "every": self.exchange_every, "chances": repr(self.chances)}
        )

    def place(self, t: int) -> int | None:
        """Return which slot step t uses; none where nothing is sent."""
        turn, rest = divmod(t, self.exchange_every)
        return None if rest else turn % len(self.slots)

    def at(self, t: int) -> Slot:
        """Return the weights of step t; of losses that are silent, before them."""
        place = self.place(t)
        if place is None:
            return self.quiet
        if not self.is_random:
            return self.slots[place]
        draw, pattern = self.draws(range(t, t + 1)), self._patterns[place]
        made = []
        for lines, values in zip(
            (pattern.R, pattern.C), pattern.values(range(t, t + 1), draw), strict=True
        ):
            sent = draw.works[0, lines.link] & ~lines.is_own & (lines.values > 0)
            made.append(lines.matrix(values[0], None if self.chances.one_peer else sent))
        return _unchecked(made[0], made[1], self.names)

    def draws(self, steps: range) -> Draw:
        """Draw which links work, and which messages arrive, in some steps."""
        chances, count = self.chances, max(1, len(self.links))
        works = np.ones((len(steps), count), dtype=np.bool_)
        if chances.keep < 1:
            works = counted_uniforms(chances.seed, KEEP, steps, count) < chances.keep
        arrives = works
        if chances.loss.share:
            arrives = works & (
                counted_uniforms(chances.seed, LOSS, steps, count) >= chances.loss.share
            )
        return Draw(arrives, arrives) if chances.loss.kind == "known" else Draw(works, arrives)

    def sent(self, steps: range) -> tuple[Flags, Flags]:
        """Say over which of ``links`` models, and shares, are sent, each (steps, links)."""
        pulls, pushes = (np.zeros((len(steps), len(self.links)), dtype=np.bool_) for _ in range(2))
        places = [self.place(t) for t in steps]
        draw = self.draws(steps)
        for place in {place for place in places if place is not None}:
            rows = np.flatnonzero([p == place for p in places])
            pattern = self._patterns[place]
            drawn_values = pattern.values(steps, draw) if self.chances.one_peer else (None, None)
            for flags, lines, values in zip(
                (pulls, pushes), (pattern.R, pattern.C), drawn_values, strict=True
            ):
                off = np.flatnonzero(~lines.is_own & (lines.values > 0))
                used = draw.works[:, lines.link[off]] if values is None else values[:, off] > 0
                flags[np.ix_(rows, lines.link[off])] = used[rows]
        return pulls, pushes

    def dense(self, steps: range) -> tuple[Floats, Floats]:
        """Return R and C of some steps, each (steps, n, n); C before silent losses."""
        n, places = self.n, [self.place(t) for t in steps]
        R, C = (np.zeros((len(steps), n * n)) for _ in range(2))
        draw = self.draws(steps) if self.is_random else None
        for place in dict.fromkeys(places):
            rows = np.flatnonzero([p == place for p in places])
            if place is None or draw is None:
                slot = self.quiet if place is None else self.slots[place]
                R[rows], C[rows] = slot.R.toarray().ravel(), slot.C.toarray().ravel()
                continue
            pattern = self._patterns[place]
            pulled, pushed = pattern.values(steps, draw)
            for W, lines, values in ((R, pattern.R, pulled), (C, pattern.C, pushed)):
                W[np.ix_(rows, lines.i * n + lines.j)] = values[rows]
        return R.reshape(-1, n, n), C.reshape(-1, n, n)

    def inflow(self, steps: range, C: Floats | None = None) -> Inflow:
        """Return what the links into each node bring in some steps, where losses are silent.

        ``C`` are the matrices of these steps, if they are at hand.
        """
        senders = np.where(self.in_links < 0, np.arange(self.n), self.in_links)
        nodes = np.arange(self.n)
        if C is None:
            slots = [self.at(t).C for t in steps]
            shares = np.array([_entries(W, nodes, senders) for W in slots])
            own = np.array([W.diagonal() for W in slots])
        else:
            shares, own = C[:, nodes, senders], C[:, nodes, nodes]
        shares[:, self.in_links < 0] = 0.0
        places = np.searchsorted(self.links, nodes * self.n + senders)
        arrives = self.draws(steps).arrives[:, places.clip(max=max(0, len(self.links) - 1))]
        return Inflow(own, shares, (shares > 0) & arrives)

    @cached_property
    def links(self) -> NDArray[np.int64]:
        """receiver·n + sender of every link that ever works, ascending: a link's number."""
        edges = np.concatenate([self._edges("R"), self._edges("C")])
        return np.unique(edges)

    def _edges(self, name: str) -> NDArray[np.int64]:
        parts = [getattr(slot, name).tocoo().coords for slot in self.slots]
        i, j = (np.concatenate([part[k] for part in parts]).astype(np.int64) for k in (0, 1))
        return np.asarray((i * self.n + j)[i != j])

    @cached_property
    def in_links(self) -> NDArray[np.int64]:
        """(K, n): from whom the k-th link into each node pushes; -1 where there are fewer."""
        keys = np.unique(self._edges("C"))
        receivers, senders = keys // self.n, keys % self.n
        counts = np.bincount(receivers, minlength=self.n)
        table = np.full((int(counts.max(initial=0)), self.n), -1)
        starts = np.cumsum(counts) - counts
        table[np.arange(len(keys)) - starts[receivers], receivers] = senders
        return table

    @cached_property
    def quiet(self) -> Slot:
        """Return the slot in which nothing is sent."""
        alone = eye_array(self.n, format="csr")
        return Slot(alone, alone, self.slots[0].names)

    @cached_property
    def expected(self) -> tuple[Slot, ...]:
        """Return the mean of each slot over what is left to chance, as if nothing were silent."""
        if not self.is_random:
            return self.slots
        pairs = [pattern.expected() for pattern in self._patterns]
        return tuple(Slot(R, C, self.slots[0].names) for R, C in pairs)

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return [Pattern(slot, self.links, self.chances) for slot in self.slots]

    def used(self, t: int) -> tuple[float, float]:
        """Return how many links of R, and of C, the first t steps use; an expectation at random."""
        turns, share = -(-t // self.exchange_every), self.chances.known
        whole_periods, rest = divmod(turns, len(self.slots))
        pulls, pushes = (
            share * (whole_periods * sum(counts) + sum(counts[:rest])) for counts in self._counts
        )
        return pulls, pushes

    @cached_property
    def _counts(self) -> tuple[list[int], list[int]]:
        """How many links of R, and of C, each slot has; one for each node with a single peer."""
        graphs = [(slot.pull_graph, slot.push_graph) for slot in self.slots]
        if self.chances.one_peer:
            pulls = [int((pull.in_degrees > 0).sum()) for pull, _ in graphs]
            return pulls, [int((push.out_degrees > 0).sum()) for _, push in graphs]
        return [len(pull.edges) for pull, _ in graphs], [len(push.edges) for _, push in graphs]


def silent_links(net: Network | Timetable) -> int:
    """Return the most links into a node on which messages are lost in silence; 0 if none is."""
    return len(net.in_links) if isinstance(net, Timetable) and net.chances.silent else 0


def products(slots: Sequence[Slot]) -> tuple[csr_array, csr_array]:
    """Return the products of a period: R of its last slot times ... times R of its first; of C."""
    R, C = slots[0].R, slots[0].C
    for slot in slots[1:]:
        R, C = slot.R @ R, slot.C @ C
    return csr_array(R), csr_array(C)


def _entries(C: csr_array, receivers: NDArray[np.int64], senders: NDArray[np.int64]) -> Floats:
    """Return C[i, j] for every pair, in the shape of the senders."""
    if not senders.size:
        return np.zeros(senders.shape)
    i = np.broadcast_to(receivers, senders.shape)
    return np.asarray(C[i.ravel(), senders.ravel()]).reshape(senders.shape)


def _mean(matrices: Sequence[csr_array]) -> csr_array:
    total = matrices[0]
    for W in matrices[1:]:
        total = total + W
    return csr_array(total / len(matrices))


def _unchecked(R: csr_array, C: csr_array, names: tuple[str, ...] | None) -> Slot:
    """Return a slot with weights of 0 on links whose message was lost: it was sent."""
    made = object.__new__(Slot)
    fields = {"R": R, "C": C, "names": names, "title": "", "capacities": None, "notes": ()}
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _checked(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Refuse slots of different nodes; put those of the same names in the order of the first."""
    if not 1 <= len(slots) <= MOST_SLOTS:
        what = f"a timetable has 1 to {MOST_SLOTS:,} slots, got {len(slots)}"
        raise ParameterError(what, hint="pass a list of networks")
    first = slots[0]
    return (first, *(_aligned(slot, first, k) for k, slot in enumerate(slots[1:], 1)))


def _aligned(slot: Slot, first: Slot, k: int) -> Slot:
    if slot.n != first.n:
        what = f"slot {k} has {slot.n} nodes, slot 0 has {first.n}: all need the same"
        hint = "in a list of edges, a line `5 5` adds node 5 without a link"
        raise NetworkError(what, hint=hint)
    if slot.names == first.names:
        return slot
    mine, theirs = (s.names or tuple(map(str, range(s.n))) for s in (slot, first))
    if set(mine) != set(theirs):
        lacking = sorted(set(theirs) - set(mine))[0]
        what = f"slot {k} has no node called {lacking!r}, which slot 0 has"
        raise NetworkError(what, hint="call the nodes alike in all slots")
    order = [mine.index(name) for name in theirs]
    return Slot(slot.R[order][:, order], slot.C[order][:, order], first.names)
