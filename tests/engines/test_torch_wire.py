"""Batches for GPUs, without a GPU: what is started together, and how long one waits."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from digrad.engines.transports.torch_wire import Message, start_batch
from digrad.engines.transports.transport import LinkError


class Work:
    """What NCCL hands back: done after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.waited = looks, False

    def is_completed(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait(self) -> None:
        assert self.looks < 0
        self.waited = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every batch that was started: calls, peers, rows, work."""
    batches: list[Any] = []

    def batch(calls: list[Any]) -> list[Work]:
        work = Work(looks=3 if not batches else 10**9)
        batches.append((calls, work))
        return [work]

    monkeypatch.setattr(dist, "batch_isend_irecv", batch)
    monkeypatch.setattr(
        dist, "P2POp", lambda call, rows, group, group_peer: (call, group_peer, rows)
    )
    return batches


def test_one_batch_for_all_messages_of_a_call(started: list[Any]) -> None:
    rows = [torch.full((1, 2), float(k)) for k in range(3)]
    sends, receives = [(1, rows[0]), (2, rows[0])], [(3, rows[1]), (1, rows[2])]
    going, coming = start_batch("group", sends, receives, 5)
    ((calls, work),) = started
    assert [(call, peer) for call, peer, _ in calls] == [
        (dist.isend, 1),
        (dist.isend, 2),
        (dist.irecv, 3),
        (dist.irecv, 1),
    ]
    assert [len(going), len(coming)] == [2, 2]
    for (_, there), each in zip((*sends, *receives), (*going, *coming), strict=True):
        assert Message(there, *each, timeout=0.3).wait() is there
        assert work.waited
    assert start_batch("group", [], [], 6) == ([], [])
    assert len(started) == 1  # nothing to send, nothing started


def test_a_batch_that_never_ends(started: list[Any]) -> None:
    start_batch("group", [], [(1, torch.ones(1))], 1)
    _, (coming,) = start_batch("group", [(2, torch.ones(1))], [(1, torch.ones(1))], 2)
    with pytest.raises(LinkError, match="no answer: rank 1, 2") as caught:
        Message(torch.ones(1), *coming, timeout=0.2).wait()
    assert (caught.value.peers, caught.value.timed_out) == ((1, 2), True)
