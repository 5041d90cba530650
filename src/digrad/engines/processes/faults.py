"""Finding out who failed, so that every rank can say so and nobody waits for ever.

A rank that waits in vain writes a notice into the process group's store: whom it waited
for and why it gave up. The culprit is who was waited for and either wrote nothing or gave a
reason of its own. Every call of the store has an end in time.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from types import TracebackType
from typing import Protocol, TypeVar

from torch.distributed import PrefixStore, Store

from digrad.base.errors import DigradError, message
from digrad.engines.transports.transport import LinkError

T = TypeVar("T")
SLACK = 5.0  # seconds that the store may answer late
KEY_PAUSE = 0.01  # seconds between two looks at a key of the store
PAUSE = 0.05  # seconds between two looks at the notices
HASTE = 1.0  # seconds to wait for the notice of a rank whose connection broke: it ended, or will


class StoreError(DigradError, RuntimeError):
    """The store through which the ranks find each other does not answer."""


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what a call of the store returns, or raise if it takes longer.

    Some of them wait without end when the store's host is stopped, hence the thread.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if answers:
        return answers[0]
    why = f": {errors[0]}" if errors else f" within {seconds:.3g} s"
    what = f"the store of the process group does not answer{why}"
    hint = "it lives in rank 0 or in the launcher: look there first"
    raise StoreError(what, hint=hint) from errors[0] if errors else None


def await_key(store: Store, key: str, seconds: float) -> bytes | None:
    """Return what stands under a key, waiting for it; none if nothing comes."""
    end = time.monotonic() + seconds

    def ask() -> bytes | None:
        # Not store.wait: its time-outs are logged by the store's own machinery.
        while not store.check([key]):
            if time.monotonic() >= end:
                return None
            time.sleep(KEY_PAUSE)
        found: bytes = store.get(key)
        return found

    return within(max(0.0, seconds) + SLACK, ask)


def next_corner(store: Store, name: str, rank: int, seconds: float) -> tuple[Store, int]:
    """Return a part of the store for what all ranks make next under a name, and its number.

    Each rank counts in the store what it has made; as all make the same in the same order, the
    numbers agree.

    >>> from torch.distributed import HashStore
    >>> store = HashStore()
    >>> [next_corner(store, "engine", rank, 5)[1] for rank in (0, 1, 1, 0)]
    [0, 0, 1, 1]
    """
    number = within(seconds, lambda: store.add(f"{name}/made by {rank}", 1)) - 1
    return PrefixStore(f"{name}/{number}", store), number


class PeerError(DigradError, RuntimeError):
    """Another rank ended, hangs or gave up; the text names it and the reason."""


@dataclass(frozen=True)
class Notice:
    """What a rank that cannot go on tells the others.

    Args:
        waits_for: the ranks it waited for; none if it stopped for a reason of its own.
        lost: whether a connection broke, rather than time ran out.
    """

    reason: str
    waits_for: tuple[int, ...] = ()
    lost: bool = False

    def text(self) -> str:
        """Write it down."""
        return json.dumps({"reason": self.reason, "for": self.waits_for, "lost": self.lost})

    @classmethod
    def parse(cls, text: bytes) -> "Notice":
        """Read what ``text`` wrote."""
        said = json.loads(text)
        return cls(str(said["reason"]), tuple(map(int, said["for"])), bool(said["lost"]))


@dataclass(frozen=True, eq=False)
class Notices:
    """The notices of all ranks of one engine, in the process group's store."""

    store: Store
    rank: int
    world: int
    grace: float  # seconds to wait for the notices of others

    def post(self, notice: Notice) -> None:
        """Write this rank's notice; the first one stands."""
        within(self.grace, lambda: self.store.compare_set(_key(self.rank), "", notice.text()))

    def read(self) -> dict[int, Notice]:
        """Return the notices written so far."""

        def ask() -> dict[int, Notice]:
            there = [rank for rank in range(self.world) if self.store.check([_key(rank)])]
            return {rank: Notice.parse(self.store.get(_key(rank))) for rank in there}

        return within(self.grace, ask)

    def blame(self, notice: Notice, hang_up: Callable[[], None]) -> PeerError:
        """Write a notice, hang up, wait for the notices of others, and name who is behind it.

        Hanging up lets others notice at once, while all are still there to compare notes.
        """
        try:
            try:
                self.post(notice)
            finally:
                hang_up()
            notices = self._await_notices(notice)
            self._await_others(find_culprits(notices, self.rank))
            return PeerError(failure_text(notices, self.rank))
        except StoreError as error:
            return PeerError(
                "rank 0 or the launcher ended or hangs: it holds the process group's store",
                f"rank {self.rank} {notice.reason}",
                str(error).partition("\n")[0],
                hint="look at the output of rank 0 and of the launcher",
            )

    def _await_others(self, gone: Sequence[int]) -> None:
        """Stay a while if this is rank 0: the store, with which others compare notes, is its own.

        Args:
            gone: the ranks that nobody need wait for.
        """
        end = time.monotonic() + self.grace
        others = [_settled_key(k) for k in range(self.world) if k not in (self.rank, *gone)]
        with suppress(StoreError):  # who is behind it is known by now
            within(self.grace, lambda: self.store.set(_settled_key(self.rank), ""))
            while self.rank == 0 and others and time.monotonic() < end:
                if within(self.grace, lambda: self.store.check(others)):
                    return
                time.sleep(PAUSE)

    def _await_notices(self, notice: Notice) -> dict[int, Notice]:
        """Read until the culprit, or in a circle everybody, has spoken or the grace is over."""
        end = time.monotonic() + (min(HASTE, self.grace) if notice.lost else self.grace)
        while True:
            notices = {**self.read(), self.rank: notice}
            awaited = find_culprits(notices, self.rank) or range(self.world)
            if all(rank in notices for rank in awaited) or time.monotonic() >= end:
                return notices
            time.sleep(PAUSE)


class Faults:
    """Makes of a link that failed an error that names the rank behind it; then all calls raise it.

    Args:
        timeout: seconds that a transport waits.
        hang_up: closes the connections of this rank.
    """

    def __init__(self, notices: Notices, timeout: float, hang_up: Callable[[], None]) -> None:
        self._notices, self._timeout, self._hang_up = notices, timeout, hang_up
        self._failure: PeerError | None = None

    def check(self) -> None:
        """Raise again what made an earlier call fail."""
        if self._failure is not None:
            raise self._failure

    def tell(self, reason: str) -> None:
        """Tell the other ranks why this one stops."""
        self._notices.post(Notice(reason))

    def name_culprit(self, error: BaseException, doing: str) -> PeerError | None:
        """Tell the others whom this rank waited for in vain, and find out who is behind it."""
        if not isinstance(error, LinkError):
            return None
        whom = " and ".join(f"rank {peer}" for peer in error.peers)
        how = f"for {self._timeout:.3g} s" if error.timed_out else "until the connection broke"
        notice = Notice(f"waited for {whom} {how}, {doing}", error.peers, lost=not error.timed_out)
        self._failure = self._notices.blame(notice, self._hang_up)
        return self._failure


class FaultNames(Protocol):
    """What makes of an error of a link one that names who is behind it."""

    def check(self) -> None:
        """Raise again what made an earlier call fail."""

    def name_culprit(self, error: BaseException, doing: str) -> PeerError | None:
        """Return the error that names who is behind another; none if it is no link's."""
        ...


@dataclass(frozen=True, eq=False)
class Naming:
    """A ``with`` block in which links may fail; ``doing`` says what for."""

    faults: FaultNames
    doing: str

    def __enter__(self) -> None:
        """Refuse to go on after a failure."""
        self.faults.check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Name the rank behind a link that failed."""
        named = None if error is None else self.faults.name_culprit(error, self.doing)
        if named is not None:
            raise named from error


_EXCHANGE = re.compile(r"in (exchange \d+ \((\w+)\))")
STEPS = ("pull", "push")  # exchanges that steps consist of; the others follow them
SUMS = ("weighted", "gather")  # what answers, measurements and checkpoints consist of
FOR_ALL = "every rank must call consensus() and save_checkpoint(), not rank 0 alone"


def _key(rank: int) -> str:
    return f"notice/{rank}"


def _settled_key(rank: int) -> str:
    return f"settled/{rank}"


def find_culprits(notices: Mapping[int, Notice], start: int) -> list[int]:
    """Return the ranks a failure comes from, following who waited for whom.

    >>> gone = {2: Notice("waited", waits_for=(1,)), 1: Notice("waited", waits_for=(0,))}
    >>> find_culprits(gone, start=2)  # 0 was waited for and has said nothing
    [0]
    >>> find_culprits({1: Notice("", waits_for=(0, 2)), 2: Notice("out of memory")}, start=1)
    [2]
    """
    seen, ends, ahead = {start}, set(), list(notices[start].waits_for)
    while ahead:
        rank = ahead.pop()
        if rank in seen:
            continue
        seen.add(rank)
        further = notices[rank].waits_for if rank in notices else ()
        ahead += further
        if not further:
            ends.add(rank)
    spoken = {rank for rank in ends if rank in notices}
    return sorted(spoken or ends)


def failure_text(notices: Mapping[int, Notice], rank: int) -> str:
    """Say, for one rank, who is behind a failure and how it showed.

    >>> print(failure_text({1: Notice("lost its connection", (0,), lost=True)}, rank=1))
    rank 0 ended
      rank 1 lost its connection
      hint: look at the output of rank 0
    """
    found = find_culprits(notices, rank)
    if not found:
        return _cycle_text(notices)
    who = ranks(found)
    if found[0] in notices:
        stopped = [f"rank {other} stopped: {notices[other].reason}" for other in found]
        return message("; ".join(stopped), f"rank {rank} {notices[rank].reason}")
    witnesses = {other for other in notices if set(notices[other].waits_for) & set(found)}
    details = [f"rank {other} {notices[other].reason}" for other in sorted(witnesses | {rank})]
    hint = f"look at the output of {who}"
    if any(_is_sum(notices[other]) for other in witnesses):
        hint = f"{FOR_ALL}; else {hint}"
    if any(notices[other].lost for other in witnesses):
        return message(f"{who} ended", *details, hint=hint)
    hint += "; if it only takes longer, raise the timeout"
    does = "does" if len(found) == 1 else "do"
    return message(f"{who} {does} not answer", *details, hint=hint)


def _is_sum(notice: Notice) -> bool:
    match = _EXCHANGE.search(notice.reason)
    return match is not None and match[2] in SUMS


def _cycle_text(notices: Mapping[int, Notice]) -> str:
    """Say which ranks took more or fewer steps than the others, as far as that can be seen.

    >>> steps, after = (f"waited, in exchange 32 ({verb})" for verb in ("push", "weighted"))
    >>> waiting = {0: Notice(steps, (1,)), 1: Notice(after, (0,)), 2: Notice(steps, (1,))}
    >>> print(_cycle_text(waiting).splitlines()[0])
    rank 1 took fewer steps than the others
    """
    details = [f"rank {other} {notice.reason}" for other, notice in sorted(notices.items())]
    said = {other: _EXCHANGE.search(notice.reason) for other, notice in notices.items()}
    doing = {other: match for other, match in said.items() if match}
    if len({match[1] for match in doing.values()}) < 2:
        return message("the ranks wait for each other", *details, hint="raise the timeout")
    going = [other for other, match in doing.items() if match[2] in STEPS]
    over = [other for other in doing if other not in going]
    if not going or not over:
        hint = "all ranks must make the same calls in the same order: has one taken fewer steps?"
        return message("the ranks wait for each other", *details, hint=hint)
    odd, how = (over, "fewer") if len(over) <= len(going) else (going, "more")
    hint = f"all ranks must take as many steps: look at the loop and the data of {ranks(odd)}"
    if any(_is_sum(notices[other]) for other in over):
        hint += f"; {FOR_ALL}"
    return message(f"{ranks(odd)} took {how} steps than the others", *details, hint=hint)


def ranks(which: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 1, 2``."""
    every = sorted(which)
    return f"rank{'s' if len(every) > 1 else ''} {', '.join(map(str, every))}"
