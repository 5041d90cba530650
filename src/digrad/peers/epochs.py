"""Epochs: who takes part from when on, decided once, in one place.

``Council`` is the whole of the hub's judgement, without sockets and with the clock handed in. It
hears reports and answers each with the epoch there is. An epoch ends when a member is lost, leaves
or cannot hear another, or when somebody waits to join; the next begins when every member that
lives has said that it has stopped, or has had ``timeout`` seconds to say so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from digrad.base.errors import DigradError
from digrad.networks.network import Network
from digrad.networks.surviving import survive
from digrad.peers.frames import RubbishError
from digrad.peers.membership import Link, Membership

NONE = -1  # the epoch before the first
SUMS = 1 << 20  # more sums over all nodes than anybody takes between two steps
HASTE = 1.0  # seconds that a member's line to the hub may be down


class Place(NamedTuple):
    """How far a node has come: steps taken, and sums over all nodes since the last of them."""

    steps: int = 0
    sums: int = 0

    @property
    def number(self) -> int:
        """Return it as one number, in the same order."""
        return self.steps * SUMS + self.sums

    @classmethod
    def of(cls, number: int) -> "Place":
        """Read it back.

        >>> Place.of(Place(7, 2).number)
        Place(steps=7, sums=2)
        """
        return cls(*divmod(number, SUMS))


@dataclass(frozen=True)
class Epoch:
    """Who takes part, and why it is they."""

    number: int = NONE
    members: tuple[str, ...] = ()
    cut: tuple[Link, ...] = ()  # links that are lost though both ends live
    newcomers: tuple[str, ...] = ()  # who starts from the models of the others
    t: int = 0  # how far the run had come, as the number of a ``Place``: the farthest member's
    why: str = ""

    @property
    def steps(self) -> int:
        """Steps taken before it."""
        return Place.of(self.t).steps

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> "Epoch":
        """Read what ``to_dict`` made, from anybody."""
        try:
            links = [(str(j), str(i)) for j, i in said["cut"]]
            return cls(
                int(said["number"]),
                tuple(map(str, said["members"])),
                tuple(links),
                tuple(map(str, said["newcomers"])),
                int(said["t"]),
                str(said["why"])[:500],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RubbishError(f"an epoch that is none: {error!r:.100}") from error

    def network(self, membership: Membership) -> Network:
        """Return the network of its members."""
        return _survivors(membership, self.members, self.cut)[0]


def _survivors(
    membership: Membership, members: Sequence[str], cut: Sequence[Link]
) -> tuple[Network, tuple[str, ...]]:
    place = {name: k for k, name in enumerate(membership.names)}
    if len(members) == len(place) and not cut:
        return membership.graph, membership.names
    net, kept = survive(
        membership.graph,
        [place[name] for name in members],
        [(place[j], place[i]) for j, i in cut],
        weights=str(membership.network.get("weights", "")) or _recipe(membership),
        contract=membership.contractible(),
    )
    return net, tuple(membership.names[k] for k in kept.tolist())


def _recipe(membership: Membership) -> str:
    """A topology was weighed uniformly if nothing was said; a file may bring its own weights."""
    return "uniform" if "topology" in membership.network else ""


@dataclass
class Seen:
    """What is known of a node."""

    at: float  # when it was last heard
    gone: float | None = None  # since when its line is down
    epoch: int = NONE
    ready: bool = False  # whether it has stopped and waits for the next epoch
    leaving: bool = False
    done: bool = False
    t: int = 0
    lost: list[tuple[Link, bool]] = field(default_factory=list)  # whom it cannot hear; still up?
    fresh: bool = False  # whether it has no model of the run yet
    token: str = ""  # of its process: one that was started again is another


class Council:
    """Decides epochs. Every call is handed the time.

    Args:
        epoch: the last one that is known, after a restart.
    """

    def __init__(self, membership: Membership, now: float, epoch: Epoch | None = None) -> None:
        self._membership, self.epoch = membership, epoch or Epoch()
        self.seen: dict[str, Seen] = {}
        self.history: list[Epoch] = [self.epoch] if epoch else []
        self.stopped = ""
        self._since: float | None = None  # when the epoch was found to be over
        self._tokens: dict[str, str] = {}  # of the members' processes
        self._began = self._now = now
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
        known = self._heard(name, said, now)
        current = Epoch.parse(said["current"]) if isinstance(said.get("current"), dict) else None
        if current is not None and current.number > self.epoch.number:
            self._adopt(current, now)
        if known.epoch == self.epoch.number != NONE:
            self._tokens.setdefault(name, known.token)
        if known.epoch == self.epoch.number and not self.over:
            self._cut |= {
                link for link, up in known.lost if not up and set(link) <= set(self.epoch.members)
            }
        self.tick(now)
        member = name in self.epoch.members and self._tokens.get(name) == known.token
        answer = {"member": member, "over": self.over and member, "stopped": self.stopped}
        return {"epoch": self.epoch.to_dict(), **answer}

    def _heard(self, name: str, said: Mapping[str, Any], now: float) -> Seen:
        try:
            lost = [((str(j), str(i)), bool(up)) for j, i, up in said.get("lost", ())]
            flags: dict[str, Any] = {
                key: bool(said.get(key)) for key in ("ready", "leaving", "done", "fresh")
            }
            flags |= {"epoch": int(said["epoch"]), "t": int(said["t"])}
            known = Seen(now, None, lost=lost, token=str(said.get("token"))[:64], **flags)
        except (KeyError, TypeError, ValueError) as error:
            raise RubbishError(f"a report that is none: {error!r:.100}") from error
        self.seen[name] = known
        return known

    def _adopt(self, epoch: Epoch, now: float) -> None:
        """Take an epoch over from a member: the hub was restarted and does not know it."""
        strangers = set(epoch.members) - set(self._membership.names)
        if strangers:
            raise RubbishError(f"an epoch with {sorted(strangers)[0]}, who is not in the run")
        self.epoch, self._since, self._began = epoch, None, now
        self._cut, self._tokens = set(epoch.cut), {}
        self.history.append(epoch)

    def gone(self, name: str, now: float) -> None:
        """Note that the line to a node is down."""
        if name in self.seen and self.seen[name].gone is None:
            self.seen[name].gone = now

    def tick(self, now: float) -> None:
        """Decide whether the epoch is over, and what comes after it."""
        self._now = now
        if self.stopped:
            return
        if self._since is None and self._reason(now):
            self._since = now
        if self._since is not None and self._settled(now):
            self._decide(now)

    def _lost(self, name: str, now: float) -> bool:
        """Whether a node has been silent for too long."""
        known, membership = self.seen.get(name), self._membership
        if known is None:  # after a restart of the hub it may not have found it yet
            haste = 3 * HASTE if self._missed(name) else membership.timeout
            return now - self._began > min(haste, membership.timeout)
        if known.done:
            return False
        if known.gone is not None:
            return now - known.gone > min(HASTE, membership.grace)
        return now - known.at > membership.timeout

    def _missed(self, name: str) -> bool:
        """Whether a neighbour has lost its connection with a node."""
        return any(
            name in link and not up for known in self.seen.values() for link, up in known.lost
        )

    def _joining(self, name: str) -> bool:
        known = self.seen.get(name)
        if known is None or known.gone is not None or known.done or known.leaving:
            return False
        if self._lost(name, self._now):  # its last word may have been that it is ready
            return False
        return known.ready and (known.epoch == NONE or known.epoch == self.epoch.number)

    def _reason(self, now: float) -> str:
        """Say why the epoch cannot go on, if it cannot."""
        if self.epoch.number == NONE:
            return "the run begins" if self.seen else ""
        for name in self.epoch.members:
            known = self.seen.get(name)
            if self._lost(name, now):
                return f"{name} is lost"
            if known is not None and known.ready and known.token != self._tokens.get(name):
                return f"{name} was started again"
            if known is not None and known.epoch == self.epoch.number:
                if known.leaving and not known.done:
                    return f"{name} leaves"
                if known.lost or known.ready:
                    return f"{name} misses a neighbour"
        outside = [name for name in self.seen if name not in self.epoch.members]
        return next((f"{name} joins" for name in outside if self._joining(name)), "")

    def _settled(self, now: float) -> bool:
        """Whether everybody has spoken that is still awaited."""
        awaited = self.epoch.members or self._membership.names
        first, membership = self.epoch.number == NONE, self._membership
        enough = sum(map(self._joining, membership.names)) >= (membership.least if first else 1)
        patience = membership.start if first else membership.timeout
        late = enough and now - (self._since or now) > patience
        return late or all(self._joining(name) or self._out(name, now) for name in awaited)

    def _out(self, name: str, now: float) -> bool:
        known = self.seen.get(name)
        if known is None:
            return self.epoch.number != NONE and self._lost(name, now)
        return known.done or known.leaving or self._lost(name, now)

    def _decide(self, now: float) -> None:
        before = self.epoch
        ready = [name for name in self._membership.names if self._joining(name)]
        cut = tuple(sorted(link for link in self._cut if set(link) <= set(ready)))
        try:
            _, members = _survivors(self._membership, ready, cut)
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
        t = max((self.seen[name].t for name in members), default=0)
        why = self._why(before, members, cut)
        self.epoch = Epoch(before.number + 1, members, cut, newcomers, t, why)
        self.history.append(self.epoch)
        self._tokens = {name: self.seen[name].token for name in members}
        self._since, self._began = None, now

    def _why(self, before: Epoch, members: Sequence[str], cut: Sequence[Link]) -> str:
        if before.number == NONE:
            lacking = [name for name in self._membership.names if name not in members]
            return "the run begins" + "".join(f" without {name}" for name in lacking)
        said = []
        for name in (name for name in before.members if name not in members):
            known = self.seen.get(name)
            left = known is not None and (known.done or known.leaving)
            said.append(f"{name} left" if left else f"{name} is lost")
        fresh = [name for name in members if self.seen[name].epoch == NONE]
        said += [f"{name} joined" for name in fresh]
        said += [f"the link {j} -> {i} is cut" for j, i in cut if (j, i) not in before.cut]
        return ", ".join(said) or "a node was waited for in vain"
