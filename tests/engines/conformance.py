"""What every transport must do; both ends call the same function, in threads or processes."""

import pytest
import torch

from digrad.engines.transports.transport import Batch, LinkError, Transport


def rows_of(rank: int, size: int, salt: int = 0) -> torch.Tensor:
    """Rows that a receiver can work out too; (2, 1, size)."""
    return torch.arange(2 * size).view(2, 1, size) + 1000.0 * rank + salt


def talk(mine: Transport, rank: int, other: int) -> None:
    """Send and receive in every way that an engine does."""
    sizes_come_through(mine, rank, other)
    tags_overtake(mine, rank, other)
    one_tag_keeps_its_order(mine, rank, other)
    room_is_what_is_sent(mine, rank, other)


class Swap:
    """Rows for the other end, and those that come from it."""

    def __init__(
        self,
        mine: Transport,
        other: int,
        sent: torch.Tensor,
        tag: int,
        *,
        dtype: torch.dtype = torch.float32,
        early: bool = False,
    ) -> None:
        batch = Batch([((other,), sent)], [(other, tuple(sent.shape))], dtype, tag, early)
        self._sending, (self._receiving,) = mine.post(batch)

    def brings(self, expected: torch.Tensor) -> None:
        """End it, and see what came."""
        got = self._receiving.wait()
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)
        self._receiving.release()
        for each in self._sending:
            each.wait()


def sizes_come_through(mine: Transport, rank: int, other: int) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for size in (1, 300, 70_000):
            swap = Swap(mine, other, rows_of(rank, size), size, dtype=dtype)
            swap.brings(rows_of(other, size).to(dtype))


def tags_overtake(mine: Transport, rank: int, other: int) -> None:
    """What left early is there when it is asked for, after what left later."""
    tags = (14, 15, 16)
    swaps = [Swap(mine, other, rows_of(rank, 400, tag), tag, early=tag < 16) for tag in tags]
    for tag, swap in reversed(list(zip(tags, swaps, strict=True))):
        swap.brings(rows_of(other, 400, tag))


def one_tag_keeps_its_order(mine: Transport, rank: int, other: int) -> None:
    swaps = [Swap(mine, other, rows_of(rank, 400, k), 20) for k in range(2)]
    for k, swap in enumerate(swaps):
        swap.brings(rows_of(other, 400, k))


def room_is_what_is_sent(mine: Transport, rank: int, other: int) -> None:
    for k in range(8):
        room, rows = mine.room((2, 1, 5000), torch.float32), rows_of(rank, 5000, k)
        swap = Swap(mine, other, rows if room is None else room.copy_(rows), 30)
        swap.brings(rows_of(other, 5000, k))


def waits_in_vain(mine: Transport, other: int) -> None:
    """Nobody sends; the transport has a timeout of a fraction of a second."""
    _, (receiving,) = mine.post(Batch([], [(other, (1, 3))], torch.float32, 40))
    with pytest.raises(LinkError) as caught:
        receiving.wait()
    assert (caught.value.peers, caught.value.timed_out) == ((other,), True)
