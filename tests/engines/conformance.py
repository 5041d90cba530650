"""What every transport must do; both ends call the same function, in threads or processes."""

import pytest
import torch

from digrad.engines.transports.transport import LinkError, Transport


def rows_of(rank: int, size: int, salt: int = 0) -> torch.Tensor:
    """Rows that a receiver can work out too; (2, 1, size)."""
    return torch.arange(2 * size).view(2, 1, size) + 1000.0 * rank + salt


def talk(mine: Transport, rank: int, other: int) -> None:
    """Send and receive in every way that an engine does."""
    sizes_come_through(mine, rank, other)
    tags_overtake(mine, rank, other)
    one_tag_keeps_its_order(mine, rank, other)
    room_is_what_is_sent(mine, rank, other)


def sizes_come_through(mine: Transport, rank: int, other: int) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for size in (1, 300, 70_000):
            sent = rows_of(rank, size)
            sending, (receiving,) = mine.post(
                [((other,), sent)], [(other, (2, 1, size))], dtype, size
            )
            got = receiving.wait()
            assert got.dtype == dtype
            assert torch.equal(got, rows_of(other, size).to(dtype))
            receiving.release()
            for each in sending:
                each.wait()


def tags_overtake(mine: Transport, rank: int, other: int) -> None:
    """What left early is there when it is asked for, after what left later."""
    posted = [
        mine.post(
            [((other,), rows_of(rank, 400, tag))],
            [(other, (2, 1, 400))],
            torch.float32,
            tag,
            early=tag < 16,
        )
        for tag in (14, 15, 16)
    ]
    for tag, (sending, (receiving,)) in reversed(list(zip((14, 15, 16), posted, strict=True))):
        assert torch.equal(receiving.wait(), rows_of(other, 400, tag))
        receiving.release()
        for each in sending:
            each.wait()


def one_tag_keeps_its_order(mine: Transport, rank: int, other: int) -> None:
    posted = [
        mine.post([((other,), rows_of(rank, 400, k))], [(other, (2, 1, 400))], torch.float32, 20)
        for k in range(2)
    ]
    for k, (sending, (receiving,)) in enumerate(posted):
        assert torch.equal(receiving.wait(), rows_of(other, 400, k))
        receiving.release()
        for each in sending:
            each.wait()


def room_is_what_is_sent(mine: Transport, rank: int, other: int) -> None:
    for k in range(8):
        room = mine.room((2, 1, 5000), torch.float32)
        sent = rows_of(rank, 5000, k) if room is None else room.copy_(rows_of(rank, 5000, k))
        sending, (receiving,) = mine.post(
            [((other,), sent)], [(other, (2, 1, 5000))], torch.float32, 30
        )
        assert torch.equal(receiving.wait(), rows_of(other, 5000, k))
        receiving.release()
        for each in sending:
            each.wait()


def waits_in_vain(mine: Transport, other: int) -> None:
    """Nobody sends; the transport has a timeout of a fraction of a second."""
    _, (receiving,) = mine.post([], [(other, (1, 3))], torch.float32, 40)
    with pytest.raises(LinkError) as caught:
        receiving.wait()
    assert (caught.value.peers, caught.value.timed_out) == ((other,), True)
