"""Every transport does the same, however it carries rows."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from digrad.engines.transports.channel import Channel, available
from digrad.engines.transports.shared_memory import VIEWS, SharedMemory
from digrad.engines.transports.transport import Batch, LinkError, Split, Transport
from engines import ranks
from engines.conformance import rows_of, talk, waits_in_vain

linux = pytest.mark.skipif(not available(), reason="no anonymous shared memory")
Pair = tuple[SharedMemory, SharedMemory]


def connected(first: int, second: int, timeout: float) -> Pair:
    """The ends of a channel between two ranks."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = {second: Channel(left)}, {first: Channel(right)}
    return SharedMemory(ends[0], timeout), SharedMemory(ends[1], timeout)


@pytest.fixture
def make() -> Iterator[Callable[..., Pair]]:
    made: list[SharedMemory] = []

    def pair(first: int = 0, second: int = 1, timeout: float = 20.0) -> Pair:
        both = connected(first, second, timeout)
        made.extend(both)
        return both

    yield pair
    for each in made:
        each.close()


def together(*calls: Callable[[], object]) -> None:
    """Call functions at the same time; raise what one raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in [pool.submit(call) for call in calls]:
            call.result(60)


@linux
def test_shared_memory_conforms(make: Callable[..., Pair]) -> None:
    left, right = make()
    together(lambda: talk(left, 0, 1), lambda: talk(right, 1, 0))
    assert len(left.slots) < 20


@linux
@pytest.mark.parametrize("near", [{1}, {5}])
def test_split_conforms(near: set[int], make: Callable[..., Pair]) -> None:
    """Whichever of the two ways a rank is on."""
    left, right = make()
    other, _ = make(0, 5)
    split = Split(*((left, near, other) if near == {1} else (other, near, left)))
    together(lambda: talk(split, 0, 1), lambda: talk(right, 1, 0))


@linux
def test_split_sends_each_rank_its_way_and_keeps_the_order(make: Callable[..., Pair]) -> None:
    (mine_near, near), (mine_far, far) = make(0, 1), make(0, 2)
    split: Transport = Split(mine_near, {1}, mine_far)
    for rank, end in ((1, near), (2, far)):
        end.post(Batch([((0,), rows_of(rank, 900))], [], torch.float32, 3))
    sent = rows_of(0, 900)
    expected = [(2, (2, 1, 900)), (1, (2, 1, 900))]
    _, receiving = split.post(Batch([((1, 2), sent)], expected, torch.float32, 3))
    for rank, each in zip((2, 1), receiving, strict=True):
        assert torch.equal(each.wait(), rows_of(rank, 900))
        each.release()
    for end in (near, far):
        _, (each,) = end.post(Batch([], [(0, (2, 1, 900))], torch.float32, 3))
        assert torch.equal(each.wait(), sent)
    assert split.room((1, 9000), torch.float32) is None


def test_the_wire_conforms() -> None:
    ranks.pool().run("engines.tasks:wire_conforms", 2)


@linux
def test_waiting_in_vain(make: Callable[..., Pair]) -> None:
    waits_in_vain(make(timeout=0.1)[0], 1)


@linux
def test_who_is_gone_is_noticed_at_once(make: Callable[..., Pair]) -> None:
    left, right = make(timeout=30)
    right.post(Batch([((0,), rows_of(1, 700))], [], torch.float32, 1))
    right.close()
    right.close()
    began = time.monotonic()
    _, (there, missing) = left.post(Batch([], [(1, (2, 1, 700))] * 2, torch.float32, 1))
    assert torch.equal(there.wait(), rows_of(1, 700))  # what it had sent still arrives
    there.release()  # which it need not know
    with pytest.raises(LinkError, match="connection lost: rank 1") as caught:
        missing.wait()
    assert (caught.value.peers, caught.value.timed_out) == ((1,), False)
    with pytest.raises(LinkError, match="connection lost"):
        left.post(Batch([((1,), rows_of(0, 700))], [], torch.float32, 1))
    assert time.monotonic() - began < 10


@linux
def test_room_that_is_not_used_is_not_lost(make: Callable[..., Pair]) -> None:
    left, _ = make()
    for k in range(20):
        left.room((1, 2000 << k % 3), torch.float32)
    assert len(left.slots) == 3


@linux
def test_views_do_not_pile_up(make: Callable[..., Pair]) -> None:
    left, _ = make()
    for k in range(2 * VIEWS):
        left.room((1, 1000 + k), torch.float32)
    assert left.view.cache_info().currsize == VIEWS
