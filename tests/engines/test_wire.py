"""Batches for GPUs, without a GPU: what is started together, and how long one waits."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import FileStore

from digrad.engines.processes.faults import Board, PeerError
from digrad.engines.transports.wire import DeviceWire


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


def test_one_batch_for_all_messages_of_a_call(started: list[Any], tmp_path: Path) -> None:
    board = Board(FileStore(str(tmp_path / "store"), 4), 0, 4, 0.2)
    wire = DeviceWire("group", board, timeout=0.3)
    rows = [torch.full((1, 2), float(k)) for k in range(3)]
    going, coming = wire.post([(1, rows[0]), (2, rows[0])], [(3, rows[1]), (1, rows[2])], tag=5)
    ((calls, work),) = started
    assert [(call, peer) for call, peer, _ in calls] == [
        (dist.isend, 1),
        (dist.isend, 2),
        (dist.irecv, 3),
        (dist.irecv, 1),
    ]
    assert wire.wait(coming[0], "pulling") is rows[1]
    assert work.waited
    assert wire.wait(coming[1], "pulling") is rows[2]
    assert wire.wait(going[0], "pulling") is rows[0]
    assert wire.post([], [], tag=6) == ([], [])
    assert len(started) == 1  # nothing to send, nothing started


def test_a_batch_that_never_ends(started: list[Any], tmp_path: Path) -> None:
    board = Board(FileStore(str(tmp_path / "store"), 4), 0, 4, 0.2)
    wire = DeviceWire("group", board, timeout=0.2)
    wire.post([], [(1, torch.ones(1))], tag=1)
    _, coming = wire.post([(2, torch.ones(1))], [(1, torch.ones(1))], tag=2)
    with pytest.raises(PeerError, match="ranks 1, 2 do not answer"):
        wire.wait(coming[0], "in exchange 2 (pull)")
    with pytest.raises(PeerError):
        wire.post([], [], tag=3)
