"""Wakes put together into waves, none of which reads what another one of it gives.

Parcels lie in slots. A link points to the slot with the newest parcel that its receiver has
read; the next one waits under the number of the wake that will read it. Slots are free again at
the end of a round, so within one no order matters but that of the waves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from digrad.clocks.calendar import Wakes
from digrad.clocks.draws import Integers
from digrad.clocks.links import Links

NOWHERE = 0  # the slot of parcels that nobody reads


class Wave(NamedTuple):
    """Wakes that are done together; rows are places in it."""

    wakes: list[int]  # places in the round's wakes
    nodes: list[int]
    slots: list[int]  # where each node's parcel goes
    links: list[int]  # all links that end at these nodes
    rows: list[int]  # where each ends
    newest: list[int]  # the slot each points to
    fresh: list[int]  # slots that are read for the first time
    before: list[int]  # what their links pointed to until now
    fresh_links: list[int]
    fresh_rows: list[int]


class Waiting(NamedTuple):
    """What is on its way, and who has read what: as arrays, to go on from."""

    newest: Integers  # (links,): slots
    pending: Integers  # (messages, 3): link, the wake that reads it, slot
    numbers: Integers  # (slots,): which parcel of its sender; -1: none


class Dispatcher:
    """Follows parcels from giving to reading.

    Args:
        links: over which they go.
        every: whether each parcel counts; otherwise the newest wins.
    """

    def __init__(self, links: Links, *, every: bool) -> None:
        self._links, self._every = links, every
        self.restore(self.start())

    def start(self) -> Waiting:
        """Return the beginning: slot 1 + j holds what all know of node j."""
        senders = self._links.edges[:, 0]
        numbers = np.full(self._links.n + 1, -1)
        return Waiting(senders + 1, np.zeros((0, 3), np.int64), numbers)

    def restore(self, waiting: Waiting) -> None:
        """Go on from there."""
        self._newest: list[int] = waiting.newest.tolist()
        self._numbers: list[int] = waiting.numbers.tolist()
        self._pending: list[dict[int, list[int]]] = [{} for _ in self._newest]
        self._uses = [0] * len(self._numbers)
        self._uses[NOWHERE] = 1  # never free
        for slot in self._newest:
            self._uses[slot] += 1
        for link, wake, slot in waiting.pending.tolist():
            self._pending[link].setdefault(wake, []).append(slot)
            self._uses[slot] += 1
        self._free = [slot for slot, uses in enumerate(self._uses) if not uses]

    def waiting(self) -> Waiting:
        """Return where it is, to be stored."""
        found = [
            (link, wake, slot)
            for link, messages in enumerate(self._pending)
            for wake, slots in messages.items()
            for slot in slots
        ]
        pending = np.array(found, dtype=np.int64).reshape(-1, 3)
        return Waiting(np.array(self._newest, np.int64), pending, np.array(self._numbers))

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def waves(self, wakes: Wakes) -> list[Wave]:
        """Cut one round into waves."""
        waves: list[Wave] = []
        level_of_node: dict[int, int] = {}
        level_of_slot: dict[int, int] = {}
        released: list[int] = []
        reads, at = wakes.reads.tolist(), 0
        for w, (i, number) in enumerate(
            zip(wakes.node.tolist(), wakes.number.tolist(), strict=True)
        ):
            inward, outward = self._links.inward[i], self._links.outward[i]
            fresh = self._arrived(inward, number, released)
            level = level_of_node.get(i, 0)
            for slot, _, _ in fresh:
                level = max(level, level_of_slot.get(slot, 0))
            slot = self._given(outward, reads[at : at + len(outward)], number, released)
            at += len(outward)
            level_of_node[i] = level_of_slot[slot] = level + 1
            if level == len(waves):
                waves.append(Wave(*([] for _ in Wave._fields)))
            self._join(waves[level], w, i, slot, inward, fresh)
        for slot in released:
            self._release(slot)
        return waves

    def _arrived(
        self, inward: Sequence[int], number: int, released: list[int]
    ) -> list[tuple[int, int, int]]:
        """Read what has come in: new slot, slot before, link."""
        found = []
        for link in inward:
            slots = self._pending[link].pop(number, None)
            if slots is None:
                continue
            for slot in slots:
                before = self._newest[link]
                newer = self._numbers[slot] > self._numbers[before]
                if newer:
                    self._newest[link] = slot
                if newer or self._every:
                    found.append((slot, before, link))
                released.append(before if newer else slot)
        return found

    def _given(
        self, outward: Sequence[int], reads: Sequence[int], number: int, released: list[int]
    ) -> int:
        """Find a slot for a parcel, and note who will read it when."""
        if max(reads, default=-1) < 0:
            return NOWHERE
        slot = self._free.pop() if self._free else self._new()
        self._numbers[slot] = number
        for link, wake in zip(outward, reads, strict=True):
            if wake < 0:
                continue
            self._uses[slot] += 1
            waiting = self._pending[link].setdefault(wake, [])
            if waiting and not self._every:  # overtaken before it was read
                released.append(waiting.pop())
            waiting.append(slot)
        return slot

    def _new(self) -> int:
        self._numbers.append(-1)
        self._uses.append(0)
        return len(self._numbers) - 1

    def _release(self, slot: int) -> None:
        self._uses[slot] -= 1
        if not self._uses[slot]:
            self._free.append(slot)

    def _join(
        self,
        wave: Wave,
        w: int,
        node: int,
        slot: int,
        inward: Sequence[int],
        fresh: list[tuple[int, int, int]],
    ) -> None:
        row = len(wave.nodes)
        wave.wakes.append(w)
        wave.nodes.append(node)
        wave.slots.append(slot)
        wave.links.extend(inward)
        wave.rows.extend([row] * len(inward))
        wave.newest.extend([self._newest[link] for link in inward])
        for new, before, link in fresh:
            wave.fresh.append(new)
            wave.before.append(before)
            wave.fresh_links.append(link)
            wave.fresh_rows.append(row)
