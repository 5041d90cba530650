"""Memory that is used again, and the sockets that say when."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch

from digrad.engines.transports.buffers import RECYCLED, BufferPool, TensorPool, buffer_size
from digrad.engines.transports.channel import Channel, Listener, available, connect
from digrad.engines.transports.shared_memory import (
    ARENA,
    MessageSlot,
    SharedMemoryError,
    Slots,
    make_arena,
    open_arena,
)

linux = pytest.mark.skipif(not available(), reason="no anonymous shared memory")


def test_results_are_used_again_when_nobody_holds_them() -> None:
    results, like = TensorPool(), torch.empty(1, RECYCLED)
    first = results.take(like)
    where, part = first.data_ptr(), first[:, 5:9]
    second = results.take(like)
    assert second.data_ptr() != where
    del first
    third = results.take(like)
    assert third.data_ptr() != where  # a view still holds it
    del part
    assert results.take(like).data_ptr() == where
    assert len({second.data_ptr(), third.data_ptr(), where}) == 3


def test_results_have_the_shape_asked_for() -> None:
    results = TensorPool()
    for like in (torch.empty(2, 3, RECYCLED // 8).double(), torch.empty(4, 2).mT):
        got = results.take(like)
        assert (got.shape, got.dtype, got.is_contiguous()) == (like.shape, like.dtype, True)


def test_idle_results_do_not_pile_up() -> None:
    results = TensorPool()
    for k in range(40):
        results.take(torch.empty(1, RECYCLED + k))
    assert len(results._idle) <= 4


def test_pool_lends_and_takes_back() -> None:
    pool = BufferPool(torch.device("cpu"), pinned=False)
    buffer, rows = pool.take((2, 3), torch.float64)
    assert (rows.shape, rows.dtype, rows.data_ptr()) == ((2, 3), torch.float64, buffer.data_ptr())
    other, _ = pool.take((2, 3), torch.float64)
    assert other.data_ptr() != buffer.data_ptr()
    pool.give(buffer)
    assert pool.take((5,), torch.bfloat16)[0] is buffer  # of one size class


def test_sizes_are_rounded_up() -> None:
    assert [buffer_size(size) for size in (0, 1, 4096, 4097, 10_000)] == [
        4096,
        4096,
        4096,
        8192,
        16384,
    ]


def lent(slots: Slots, size: int, readers: list[int], *, early: bool) -> MessageSlot:
    slot = slots.take(size)
    slots.lend(slot, readers, early=early)
    return slot


@linux
def test_slots_come_back_when_all_have_read() -> None:
    slots = Slots()
    slot = lent(slots, 5000, [1, 2], early=False)
    slots.read(slot.number, 1)
    assert lent(slots, 5000, [1], early=False) is not slot
    slots.read(slot.number, 2)
    assert slots.has_free(5000)
    assert not slots.has_free(50_000)
    assert lent(slots, 8000, [3], early=True) is slot
    assert list(slots.unread) == [1]  # early ones do not count
    slots.close()


@linux
def test_slots_do_not_overlap_and_need_few_files() -> None:
    slots = Slots()
    every = [lent(slots, size, [1], early=True) for size in [4096, 9000, 1 << 20] * 40]
    ends: dict[int, int] = {}
    for slot in every:
        assert slot.offset >= ends.get(slot.arena.number, 0)
        assert slot.offset + slot.size <= len(slot.arena.memory)
        ends[slot.arena.number] = slot.offset + slot.size
    assert len(ends) <= 2
    big = slots.take(ARENA * 2)
    assert len(big.arena.memory) == ARENA * 2
    slots.close()


@linux
def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SharedMemoryError, match="4096 more bytes of shared memory cannot be had"):
        Slots().take(100)


@linux
def test_arenas_are_handed_over() -> None:
    arena = make_arena(0, 8192)
    theirs = open_arena(os.dup(arena.handle))
    arena.memory[10] = 7
    assert theirs[10] == 7
    assert len(theirs) == 8192


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    both = Channel(left), Channel(right)
    yield both
    for channel in both:
        channel.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener(2)
    yield made
    made.close()


@linux
def test_messages_keep_their_bounds_and_files(
    channels: tuple[Channel, Channel], tmp_path: Path
) -> None:
    left, right = channels
    (tmp_path / "file").write_text("hello")
    handle = os.open(tmp_path / "file", os.O_RDONLY)
    left.send(b"one", None, 1, [])
    left.send(b"two", handle, 1, [])
    assert right.receive(1) == (b"one", None)
    text, theirs = right.receive(1)
    assert text == b"two"
    assert theirs is not None
    assert os.read(theirs, 9) == b"hello"
    os.close(theirs)
    os.close(handle)


@linux
def test_what_was_sent_before_hanging_up_still_arrives(channels: tuple[Channel, Channel]) -> None:
    """Also when the one who hung up had messages unread, of which the system complains first."""
    left, right = channels
    right.send(b"never read", None, 1, [])
    left.send(b"last words", None, 1, [])
    left.close()
    assert right.receive(1) == (b"last words", None)
    with pytest.raises(ConnectionError):
        right.receive(1)
    with pytest.raises(ConnectionError):
        right.send(b"too late", None, 1, [])


FORKING = """
import os, socket, time
from digrad.engines.transports.channel import Channel
left, right = map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
child = os.fork()
if child == 0:
    time.sleep(30)
left.close()
try:
    right.receive(5)
except ConnectionError:
    print("noticed")
os.kill(child, 9)
"""


@linux
def test_a_forked_worker_does_not_keep_a_dead_rank_alive() -> None:
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "noticed\n", done.stderr


@linux
def test_nothing_comes(channels: tuple[Channel, Channel]) -> None:
    _, right = channels
    with pytest.raises(TimeoutError):
        right.receive(0.05)


@linux
def test_two_who_fill_each_others_queues(channels: tuple[Channel, Channel]) -> None:
    """Each takes in what the other sends while its own does not get through."""
    left, right = channels
    count, got = 3000, []

    def talk(channel: Channel) -> None:
        for k in range(count):
            channel.send(b"%d" % k, None, 20, [channel])
        got.append([int(channel.receive(20)[0]) for _ in range(count)])

    threads = [Thread(target=talk, args=(channel,)) for channel in (left, right)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == [list(range(count))] * 2


@linux
def test_a_full_queue_that_nobody_reads(channels: tuple[Channel, Channel]) -> None:
    left, _ = channels

    def talk() -> None:
        for _ in range(100_000):
            left.send(b"x" * 1000, None, 0.05, [])

    with pytest.raises(TimeoutError):
        talk()


@linux
def test_connecting(listener: Listener) -> None:
    first, second = connect(listener.name, 3), connect(listener.name, 5)
    assert first is not None
    assert second is not None
    accepted = listener.accept(2, 1)
    assert sorted(accepted) == [3, 5]
    accepted[5].send(b"for five", None, 1, [])
    assert second.receive(1) == (b"for five", None)
    for channel in (first, second, *accepted.values()):
        channel.close()


@linux
def test_connecting_with_nobody(listener: Listener) -> None:
    listener.close()
    assert connect(listener.name, 1) is None
    assert connect("digrad-nobody", 1) is None


@linux
def test_other_users_are_turned_away(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = connect(listener.name, 1)
    assert caller is not None
    monkeypatch.setattr(os, "getuid", lambda: -5)
    assert connect(listener.name, 1) is None
    with pytest.raises(TimeoutError):
        listener.accept(1, 0.1)
    caller.close()
