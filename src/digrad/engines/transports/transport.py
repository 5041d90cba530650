"""What every way of carrying rows between ranks offers, and how it says that one failed."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from digrad.base.errors import DigradError

Outgoing: TypeAlias = tuple[tuple[int, ...], Tensor]  # ranks, and the rows for all of them
Incoming: TypeAlias = tuple[int, tuple[int, ...]]  # a rank, and the shape of its rows


class LinkError(DigradError, RuntimeError):
    """Waiting for some ranks was in vain.

    A transport only says for whom; who is behind it, and what to do, others find out.

    Args:
        timed_out: whether time ran out; otherwise the connection broke.
    """

    def __init__(self, peers: Sequence[int], *, timed_out: bool) -> None:
        self.peers, self.timed_out = tuple(peers), timed_out
        what = "no answer" if timed_out else "connection lost"
        super().__init__(f"{what}: rank {', '.join(map(str, self.peers))}")


class Batch(NamedTuple):
    """Messages that are posted together.

    Args:
        dtype: what rows travel as.
        early: whether they may have to wait long for their readers, whom nobody waits for.
    """

    outgoing: Sequence[Outgoing]
    incoming: Sequence[Incoming]
    dtype: torch.dtype
    tag: int
    early: bool = False


class Sending(Protocol):
    """Rows on their way out; they must stay as they are until ``wait`` returns."""

    def wait(self) -> object:
        """Wait until the rows have left."""
        ...


class Receiving(Protocol):
    """Rows on their way in."""

    def wait(self) -> Tensor:
        """Wait for the rows; they stay valid until ``release``."""
        ...

    def release(self) -> None:
        """Give their memory back, once, after ``wait``."""
        ...


class Transport(Protocol):
    """Carries rows between this rank and others.

    Every rank that a batch names posts its counterpart. Messages between two ranks that have the
    same tag keep their order; those of different tags may overtake each other. Every wait, also
    one within ``post`` or ``release``, ends within the transport's timeout, or raises
    ``LinkError``; then the transport is of no use any more but to be closed.
    """

    def post(self, batch: Batch) -> tuple[list[Sending], list[Receiving]]:
        """Start sending and receiving; the second list is in the order of ``incoming``."""
        ...

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Return memory from which the next rows can leave without a copy; none if there is none.

        Posting this very tensor gives it back; what it holds then must not be changed any more.
        """
        ...

    def close(self) -> None:
        """Let the others know that nothing more will come; again does no harm."""
        ...


class Split:
    """Rows to and from near ranks go one way, all others another.

    Args:
        peers: the near ranks; the two ends of a link must agree whether it is near.
    """

    def __init__(self, near: Transport, peers: Iterable[int], far: Transport) -> None:
        self._near, self._peers, self._far = near, frozenset(peers), far

    def post(self, batch: Batch) -> tuple[list[Sending], list[Receiving]]:
        """Start sending and receiving, each rank its way."""
        is_near = self._peers.__contains__
        sent, from_far = self._far.post(_part(batch, lambda peer: not is_near(peer)))
        also, from_near = self._near.post(_part(batch, is_near))
        near, far = iter(from_near), iter(from_far)
        return sent + also, [next(near if is_near(peer) else far) for peer, _ in batch.incoming]

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Offer none: rows that go both ways are copied."""
        return None

    def close(self) -> None:
        """Close both."""
        self._near.close()
        self._far.close()


def _part(batch: Batch, wanted: Callable[[int], bool]) -> Batch:
    """Keep what goes to and comes from the ranks that are wanted."""
    outgoing = [(tuple(filter(wanted, peers)), rows) for peers, rows in batch.outgoing]
    return batch._replace(
        outgoing=[(peers, rows) for peers, rows in outgoing if peers],
        incoming=[(peer, shape) for peer, shape in batch.incoming if wanted(peer)],
    )
