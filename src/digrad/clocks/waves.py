"""Wakes put together into waves, none of which reads what another one of it gives.

Parcels lie in slots. A link points to the slot with the newest parcel that its receiver has
read; the next one waits under the number of the wake that will read it. Slots are free again only
when all of what was cut up together is done, so within that no order matters but that of the waves.
"""

from typing import Any, NamedTuple

import numpy as np

from digrad.clocks.calendar import Activations
from digrad.clocks.draws import Integers
from digrad.clocks.links import LinkDelays

NOWHERE = 0  # the slot of parcels without a reader
FAR = 1 << 40  # more than any number of a wake


class Waves(NamedTuple):
    """Wakes in the order in which they are done, wave by wave; and what each reads, one by one."""

    sizes: Integers  # wakes of each wave
    wakes: Integers  # places in what was cut
    slots: Integers  # where each node's parcel goes
    into: Integers  # the links that end at each node, one node after the other
    newest: Integers  # the slots to which these point
    fresh: Integers  # slots that are read for the first time
    before: Integers  # what their links pointed to until now
    links: Integers  # over which these came
    reads: Integers  # how many of them each wake has


class PendingMessages(NamedTuple):
    """Messages on their way, and what was read last on each link: to be stored and resumed."""

    newest: Integers  # (links,): slots
    pending: Integers  # (messages, 3): link, the wake that reads it, slot
    numbers: Integers  # (slots,): which parcel of its sender; -1: none


class Messages(NamedTuple):
    """Parcels on links, one by one."""

    link: Integers
    wake: Integers  # of the receiver, which reads it
    number: Integers  # of the sender's wake that gave it
    slot: Integers
    giver: Integers  # place of that wake in what is cut up; -1: before

    def some(self, which: Any) -> "Messages":
        """Return some of them."""
        return Messages(*(part[which] for part in self))


class Pointers:
    """Which slot each link points to, as messages are read one after the other.

    Args:
        newest: where the links point at first.
        numbers: which parcel of its sender is in a slot.
        due: messages that are read, by link, in the order of reading.
    """

    def __init__(self, newest: Integers, numbers: Integers, due: Messages) -> None:
        links = np.arange(len(newest))
        at = np.searchsorted(due.link, links) + links  # a link's first message follows its start
        self.is_start = np.zeros(len(links) + len(due.link), dtype=bool)
        self.is_start[at] = True
        link, wake, self._slot = (np.empty(len(self.is_start), np.int64) for _ in range(3))
        which = np.empty_like(link)
        for whole, first, then in (
            (link, links, due.link),
            (wake, -1, due.wake),
            (self._slot, newest, due.slot),
            (which, numbers[newest], due.number),
        ):
            whole[self.is_start], whole[~self.is_start] = first, then
        reached = np.maximum.accumulate(link * FAR + which)
        self.newer = self.is_start.copy()
        self.newer[1:] |= reached[1:] > reached[:-1]
        self._best = np.maximum.accumulate(np.where(self.newer, np.arange(len(link)), 0))
        self._keys = link * FAR + wake
        self.due = due

    def before(self) -> Integers:
        """Return what the links of the messages pointed to until each was read."""
        return np.asarray(self._slot[self._best[np.flatnonzero(~self.is_start) - 1]])

    def at(self, link: Integers, wake: Any) -> Integers:
        """Return where links point once their receivers have done these wakes."""
        last = np.searchsorted(self._keys, link * FAR + wake, side="right") - 1
        return np.asarray(self._slot[self._best[last]])


class Dispatcher:
    """Follows parcels from giving to reading.

    Args:
        links: over which they go.
        every: whether each parcel counts; otherwise the newest wins.
    """

    def __init__(self, links: LinkDelays, *, every: bool) -> None:
        self._links, self._every = links, every
        self._to, self._out = links.edges[:, 1], np.diff(links.first_out)
        self._into = np.array([len(into) for into in links.inward], dtype=np.int64)
        self._inward = np.array([k for into in links.inward for k in into], dtype=np.int64)
        self.restore(self.start())

    def start(self) -> PendingMessages:
        """Return the beginning: slot 1 + j holds what all know of node j."""
        senders = self._links.edges[:, 0]
        numbers = np.full(self._links.n + 1, -1)
        return PendingMessages(senders + 1, np.zeros((0, 3), np.int64), numbers)

    def restore(self, waiting: PendingMessages) -> None:
        """Go on from there."""
        self._newest, self._numbers = waiting.newest.copy(), waiting.numbers.copy()
        link, wake, slot = waiting.pending.T
        self._pending = Messages(link, wake, self._numbers[slot], slot, np.full(len(link), -1))

    def waiting(self) -> PendingMessages:
        """Return where it is, to be stored."""
        link, wake, _, slot, _ = self._pending
        return PendingMessages(
            self._newest.copy(), np.stack([link, wake, slot], 1), self._numbers.copy()
        )

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self._numbers)

    def waves(self, wakes: Activations) -> Waves:
        """Cut some wakes into waves."""
        slots = self._given(wakes)
        row, is_due = self._rows(wakes)
        due = self._pending.some(is_due)
        order = np.lexsort((due.number, due.wake, due.link))
        pointers = Pointers(self._newest, self._numbers, due.some(order))
        row = row[is_due][order]
        counts = pointers.newer[~pointers.is_start] | self._every
        read, row, before = pointers.due.some(counts), row[counts], pointers.before()[counts]
        levels = _levels(wakes.node, row, read.giver)
        order = np.argsort(levels, kind="stable")
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order))
        by_turn = np.argsort(turn[row], kind="stable")  # link by link within a wake
        node, number = wakes.node[order], wakes.number[order]
        into = self._inward[_ranges((np.cumsum(self._into) - self._into)[node], self._into[node])]
        wake = np.repeat(number, self._into[node])
        newest = pointers.at(into, wake)
        self._newest = pointers.at(np.arange(len(self._newest)), FAR - 2)  # after all
        self._pending = self._pending.some(~is_due)._replace(giver=np.full((~is_due).sum(), -1))
        reads = np.bincount(turn[row], minlength=len(order))
        came = read.slot[by_turn], before[by_turn], read.link[by_turn]
        return Waves(np.bincount(levels), order, slots[order], into, newest, *came, reads)

    def _given(self, wakes: Activations) -> Integers:
        """Find a slot for each parcel, and note when it will be read."""
        out = self._out[wakes.node]
        wake = np.repeat(np.arange(len(wakes.node)), out)
        sent = wakes.reads >= 0
        link = _ranges(self._links.first_out[wakes.node], out)[sent]
        wake = wake[sent]
        read = np.bincount(wake, minlength=len(wakes.node)) > 0
        slots = np.zeros(len(wakes.node), np.int64)  # nowhere
        slots[read] = self._free(int(read.sum()))
        self._numbers[slots[read]] = wakes.number[read]
        new = Messages(link, wakes.reads[sent], wakes.number[wake], slots[wake], wake)
        whole = Messages(*(np.concatenate(both) for both in zip(self._pending, new, strict=True)))
        self._pending = whole if self._every else whole.some(_newest(whole))
        return slots

    def _free(self, count: int) -> Integers:
        """Return so many slots that are free."""
        free = np.ones(len(self._numbers), dtype=bool)
        free[NOWHERE] = free[self._newest] = free[self._pending.slot] = False
        found = np.flatnonzero(free)[:count]
        more = count - len(found)
        self._numbers = np.concatenate([self._numbers, np.full(more, -1)])
        return np.concatenate([found, np.arange(len(self._numbers) - more, len(self._numbers))])

    def _rows(self, wakes: Activations) -> tuple[Integers, Any]:
        """Return the place of the wake that reads each message, and whether it is among these."""
        order = np.lexsort((wakes.number, wakes.node))
        count = np.bincount(wakes.node, minlength=self._links.n)
        first = np.cumsum(count) - count
        begun = np.full(self._links.n, FAR)
        begun[count > 0] = wakes.number[order[first[count > 0]]]
        to = self._to[self._pending.link]
        ahead = self._pending.wake - begun[to]
        due = (ahead >= 0) & (ahead < count[to])
        return order[np.where(due, first[to] + ahead, 0)], due


def _newest(messages: Messages) -> Integers:
    """Return the places of those that no newer one on the same link joins before the same wake.

    A receiver that sleeps for long would otherwise hold a slot for all that it is sent.
    """
    order = np.lexsort((messages.number, messages.wake, messages.link))
    link, wake = messages.link[order], messages.wake[order]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (link[1:] != link[:-1]) | (wake[1:] != wake[:-1])
    return np.sort(order[last])


def _ranges(first: Integers, count: Integers) -> Integers:
    """Return first .. first + count - 1, one after the other."""
    start = np.cumsum(count) - count
    return np.asarray(np.arange(count.sum()) + np.repeat(first - start, count))


def _levels(node: Integers, row: Integers, giver: Integers) -> Integers:
    """Return the wave of each wake: after its node's last one, and after the givers it reads."""
    before: list[list[int]] = [[] for _ in node]
    for wake, other in zip(row.tolist(), giver.tolist(), strict=True):
        if other >= 0:
            before[wake].append(other)
    levels, last = list[int](), dict[int, int]()
    for i, others in zip(node.tolist(), before, strict=True):
        level = last.get(i, 0)
        for other in others:
            if levels[other] >= level:
                level = levels[other] + 1
        levels.append(level)
        last[i] = level + 1
    return np.array(levels, dtype=np.int64)
