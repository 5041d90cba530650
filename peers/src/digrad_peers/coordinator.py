"""The hub's judgement: who takes part from when on, decided once, in one place.

No sockets, and the clock is handed in. The council hears reports and answers each with the epoch
there is. An epoch ends when a member is lost, leaves or cannot hear another, or when somebody
waits to join; the next begins when every member that lives has said that it has stopped, or has
had ``timeout`` seconds to say so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from digrad.base.errors import DigradError
from digrad_peers.epochs import NONE, SUMS, Epoch, LoopPosition, survivors
from digrad_peers.frames import ProtocolError
from digrad_peers.membership import Link, Membership
from digrad_peers.pause_clock import PauseAwareClock

HASTE = 1.0  # seconds that a member's line to the hub may be down


@dataclass
class NodeStatus:
    """What is known of a node."""

    at: float  # when it was last heard
    gone: float | None = None  # since when its line is down
    epoch: int = NONE
    ready: bool = False  # whether it has stopped and waits for the next epoch
    leaving: bool = False
    heir: str = ""  # who takes over the tracker of one that leaves
    held: bool = False  # whether it begins nothing, since one leaves
    begun: int = 0  # the place to which what it has begun leads
    reached: int = NONE  # the place at which it has stopped, since one leaves
    done: bool = False
    t: int = 0
    lost: list[tuple[Link, bool]] = field(default_factory=list)  # whom it cannot hear; still up?
    mended: list[Link] = field(default_factory=list)  # that it could open again
    fresh: bool = False  # whether it has no model of the run yet
    token: str = ""  # of its process: one that was started again is another


@dataclass
class Departure:
    """A node leaves politely: all hold, then go on to one place, and only then it goes."""

    leaver: str
    since: float
    halt: int | None = None  # that place; none until all have said how far they have begun

    def to_dict(self) -> dict[str, Any]:
        """Return what the members need of it, ready for JSON."""
        return {"leaver": self.leaver, "halt": self.halt}


class EpochCoordinator:
    """Decides epochs. Every call is handed the time.

    Args:
        epoch: the last one that is known, after a restart.
    """

    def __init__(self, membership: Membership, now: float, epoch: Epoch | None = None) -> None:
        self._membership, self.epoch = membership, epoch or Epoch()
        self.seen: dict[str, NodeStatus] = {}
        self.history: list[Epoch] = [self.epoch] if epoch else []
        self.stopped = ""
        self._since: float | None = None  # when the epoch was found to be over
        self._departure: Departure | None = None
        self._tokens: dict[str, str] = {}  # of the members' processes
        self._began = self._now = now
        self._clock = PauseAwareClock(now)
        self._cut = set(self.epoch.cut)

    @property
    def over(self) -> bool:
        """Whether the members are asked to stop."""
        return self._since is not None

    @property
    def ended(self) -> bool:
        """Whether all members are done or lost: there is nobody left to decide for."""
        known = [self.seen.get(name) for name in self.epoch.members]
        gone = [one is None or one.done or one.gone is not None for one in known]
        return bool(known) and all(gone) and any(one is not None and one.done for one in known)

    def report(self, name: str, said: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Hear a node, and tell it what is decided."""
        now = self._clock.at(now)
        known = self._read_report(name, said, now)
        current = Epoch.parse(said["current"]) if isinstance(said.get("current"), dict) else None
        if current is not None and current.number > self.epoch.number:
            self._adopt(current, now)
        if known.epoch == self.epoch.number != NONE:
            self._tokens.setdefault(name, known.token)
        if known.epoch == self.epoch.number and not self.over:
            self._cut |= {
                link for link, up in known.lost if not up and set(link) <= set(self.epoch.members)
            }
        self._update(now)
        member = name in self.epoch.members and self._tokens.get(name) == known.token
        answer = {"member": member, "over": self.over and member, "stopped": self.stopped}
        farewell = self._departure.to_dict() if self._departure and member else None
        return {"epoch": self.epoch.to_dict(), "farewell": farewell, **answer}

    def _read_report(self, name: str, said: Mapping[str, Any], now: float) -> NodeStatus:
        try:
            lost = [((str(j), str(i)), bool(up)) for j, i, up in said.get("lost", ())]
            mended = [(str(j), str(i)) for j, i in said.get("mended", ())]
            flags: dict[str, Any] = {
                key: bool(said.get(key)) for key in ("ready", "leaving", "done", "fresh")
            }
            flags |= {"epoch": int(said["epoch"]), "t": int(said["t"])}
            flags |= {"held": bool(said.get("held")), "heir": str(said.get("heir", ""))[:200]}
            flags |= {key: int(said[key]) for key in ("begun", "reached") if key in said}
            known = NodeStatus(
                now, None, lost=lost, mended=mended, token=str(said.get("token"))[:64], **flags
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"a report that is none: {error!r:.100}") from error
        self.seen[name] = known
        return known

    def _adopt(self, epoch: Epoch, now: float) -> None:
        """Take an epoch over from a member: the hub was restarted and does not know it."""
        strangers = set(epoch.members) - set(self._membership.names)
        if strangers:
            raise ProtocolError(f"an epoch with {sorted(strangers)[0]}, who is not in the run")
        self.epoch, self._since, self._began, self._departure = epoch, None, now, None
        self._cut, self._tokens = set(epoch.cut), {}
        self.history.append(epoch)

    def gone(self, name: str, now: float) -> None:
        """Note that the line to a node is down."""
        if name in self.seen and self.seen[name].gone is None:
            self.seen[name].gone = self._clock.at(now)

    def tick(self, now: float) -> None:
        """Decide whether the epoch is over, and what comes after it."""
        self._update(self._clock.at(now))

    def _update(self, now: float) -> None:
        self._now = now
        if self.stopped:
            return
        if self._since is None and self._end_reason(now):
            self._since, self._departure = now, None
        elif self._since is None:
            self._prepare_departure(now)
        if self._since is not None and self._all_heard(now):
            self._begin([name for name in self._membership.names if self._can_join(name)], now)

    def _is_lost(self, name: str, now: float) -> bool:
        """Whether a node has been silent for too long."""
        known, membership = self.seen.get(name), self._membership
        if known is None:  # after a restart of the hub it may not have found it yet
            haste = 3 * HASTE if self._is_missed(name) else membership.timeout
            return now - self._began > min(haste, membership.timeout)
        if known.done:
            return False
        if known.gone is not None:
            return now - known.gone > min(self._haste(now), membership.grace)
        return now - known.at > membership.timeout

    def _haste(self, now: float) -> float:
        """Lines may be down because the hub slept: then all have to dial again."""
        return 3 * HASTE if now - self._clock.woke < self._membership.timeout else HASTE

    def _is_missed(self, name: str) -> bool:
        """Whether a neighbour has lost its connection with a node."""
        return any(
            name in link and not up for known in self.seen.values() for link, up in known.lost
        )

    def _can_join(self, name: str) -> bool:
        known = self.seen.get(name)
        if known is None or known.gone is not None or known.done or known.leaving:
            return False
        if self._is_lost(name, self._now):  # its last word may have been that it is ready
            return False
        return known.ready and (known.epoch == NONE or known.epoch == self.epoch.number)

    def _end_reason(self, now: float) -> str:
        """Say why the epoch cannot go on, if it cannot."""
        if self.epoch.number == NONE:
            return "the run begins" if self.seen else ""
        for name in self.epoch.members:
            known = self.seen.get(name)
            if self._is_lost(name, now):
                return f"{name} is lost"
            if known is not None and known.ready and known.token != self._tokens.get(name):
                return f"{name} was started again"
            if known is not None and known.epoch == self.epoch.number:
                if known.leaving and not known.done and not self._may_hand_over(known, now):
                    return f"{name} leaves"
                if known.lost or known.ready:
                    return f"{name} misses a neighbour"
                if set(known.mended) & set(self.epoch.cut):
                    return "a link is back"
        outside = [name for name in self.seen if name not in self.epoch.members]
        return next((f"{name} joins" for name in outside if self._can_join(name)), "")

    def _all_heard(self, now: float) -> bool:
        """Whether everybody has spoken that is still awaited."""
        awaited = self.epoch.members or self._membership.names
        first, membership = self.epoch.number == NONE, self._membership
        enough = sum(map(self._can_join, membership.names)) >= (membership.least if first else 1)
        patience = membership.start if first else membership.timeout
        late = enough and now - (self._since or now) > patience
        return late or all(self._can_join(name) or self._is_out(name, now) for name in awaited)

    def _is_out(self, name: str, now: float) -> bool:
        known = self.seen.get(name)
        if known is None:
            return self.epoch.number != NONE and self._is_lost(name, now)
        return known.done or known.leaving or self._is_lost(name, now)

    def _may_hand_over(self, known: NodeStatus, now: float) -> bool:
        """Whether a node can leave without a new beginning: it has an heir, and all take part."""
        begun = self._departure.since if self._departure else now
        if not known.heir or now - begun > self._membership.timeout:
            return False
        others = [self.seen.get(name) for name in self.epoch.members]
        return all(other is not None and not other.done for other in others)

    def _prepare_departure(self, now: float) -> None:
        """Let all members stop at one place, where one that leaves hands its tracker over."""
        members = {name: self.seen[name] for name in self.epoch.members if name in self.seen}
        if self._departure is None:
            leaving = [name for name, known in members.items() if known.leaving and not known.done]
            self._departure = Departure(leaving[0], now) if leaving else None
        farewell = self._departure
        here = [known.held and known.epoch == self.epoch.number for known in members.values()]
        if farewell is None or not all(here):
            return
        if farewell.halt is None:
            farewell.halt = max(known.begun for known in members.values())
        if all(known.reached == farewell.halt for known in members.values()):
            left = [name for name in members if name != farewell.leaver]
            self._begin(left, now, kept=farewell.halt)

    def _begin(self, ready: list[str], now: float, kept: int | None = None) -> None:
        """Begin the next epoch with those that are ready; ``kept``: where all of them stand."""
        before = self.epoch
        self._cut -= {
            link
            for known in self.seen.values()
            if known.epoch == before.number
            for link in known.mended
        }
        cut = tuple(sorted(link for link in self._cut if set(link) <= set(ready)))
        try:
            _, members = survivors(self._membership, ready, cut)
        except DigradError as error:
            members, self.stopped = (), str(error).partition("\n")[0]
        least = self._membership.least
        if len(members) < least and not self.stopped:
            self.stopped = f"{len(members)} nodes are left, fewer than least = {least}"
        if self.stopped:
            return
        newcomers = tuple(name for name in members if self.seen[name].fresh)
        if len(newcomers) == len(members):
            newcomers = ()  # nobody has a model to give
        t = self._place(members) if kept is None else kept
        why = self._reason_text(before, members, cut)
        whole = kept is not None and len(members) == len(ready)
        self.epoch = Epoch(before.number + 1, members, cut, newcomers, t, why, whole)
        self.history.append(self.epoch)
        self._tokens = {name: self.seen[name].token for name in members}
        self._since, self._began, self._departure = None, now, None

    def _place(self, members: Sequence[str]) -> int:
        """Return where all go on: where the farthest is.

        Who joins is at the beginning of its loop, wherever in theirs the others are. So the first
        thing that all do together is the next step; sums that come before it count as taken.
        """
        farthest = max((self.seen[name].t for name in members), default=0)
        joined = {self.seen[name].epoch == NONE for name in members}
        return (
            farthest
            if len(joined) < 2
            else LoopPosition(LoopPosition.of(farthest).steps, SUMS - 1).number
        )

    def _reason_text(self, before: Epoch, members: Sequence[str], cut: Sequence[Link]) -> str:
        if before.number == NONE:
            lacking = [name for name in self._membership.names if name not in members]
            return "the run begins" + (f" without {', '.join(lacking)}" if lacking else "")
        said = []
        for name in (name for name in before.members if name not in members):
            known = self.seen.get(name)
            left = known is not None and (known.done or known.leaving)
            said.append(f"{name} left" if left else f"{name} is lost")
        fresh = [name for name in members if self.seen[name].epoch == NONE]
        said += [f"{name} joined" for name in fresh]
        said += [f"the link {j} -> {i} is cut" for j, i in cut if (j, i) not in before.cut]
        said += [
            f"the link {j} -> {i} is back"
            for j, i in before.cut
            if (j, i) not in cut and {j, i} <= set(members)
        ]
        return ", ".join(said) or "a node was waited for in vain"
