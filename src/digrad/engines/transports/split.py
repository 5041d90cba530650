"""Two transports as one: some ranks are reached by the first, all others by the second."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from digrad.engines.transports.transport import Batch, Receiving, Sending, Transport


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
