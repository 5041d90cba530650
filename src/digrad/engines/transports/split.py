"""Two transports as one: some ranks are reached by the first, all others by the second."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from digrad.engines.transports.transport import (
    Incoming,
    Outgoing,
    Receiving,
    Sending,
    Transport,
)


class Split:
    """Rows to and from near ranks go one way, all others another.

    Args:
        peers: the near ranks; the two ends of a link must agree whether it is near.
    """

    def __init__(self, near: Transport, peers: Iterable[int], far: Transport) -> None:
        self._near, self._peers, self._far = near, frozenset(peers), far

    def post(
        self,
        outgoing: Sequence[Outgoing],
        incoming: Sequence[Incoming],
        dtype: torch.dtype,
        tag: int,
        *,
        early: bool = False,
    ) -> tuple[list[Sending], list[Receiving]]:
        """Start sending and receiving, each rank its way."""
        is_near = self._peers.__contains__
        to_far = _part(outgoing, incoming, lambda peer: not is_near(peer))
        to_near = _part(outgoing, incoming, is_near)
        sent, from_far = self._far.post(*to_far, dtype, tag, early=early)
        also, from_near = self._near.post(*to_near, dtype, tag, early=early)
        near, far = iter(from_near), iter(from_far)
        return sent + also, [next(near if is_near(peer) else far) for peer, _ in incoming]

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Offer none: rows that go both ways are copied."""
        return None

    def close(self) -> None:
        """Close both."""
        self._near.close()
        self._far.close()


def _part(
    outgoing: Sequence[Outgoing], incoming: Sequence[Incoming], wanted: Callable[[int], bool]
) -> tuple[list[Outgoing], list[Incoming]]:
    """Return what goes to and comes from the ranks that are wanted."""
    leaving = [(tuple(filter(wanted, peers)), rows) for peers, rows in outgoing]
    return (
        [(peers, rows) for peers, rows in leaving if peers],
        [(peer, shape) for peer, shape in incoming if wanted(peer)],
    )
