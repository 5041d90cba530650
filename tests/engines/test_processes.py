"""Real processes do what the simulator does, and fail together, each saying why."""

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from digrad.base.errors import ParameterError
from digrad.engines.processes.engine import Processes
from digrad.networks import build
from engines import ranks
from engines.tasks import VARIANTS, lopsided

slow = pytest.mark.slow
# Every step adds a few roundings of float64, and there are five.
TOLERANCE = 1e-13


def run(task: str, world: int, **arguments: Any) -> list[Any]:
    return ranks.pool().run(f"engines.tasks:{task}", world, **arguments)


LAYOUTS = [
    (2, 2, None),
    (3, 3, None),
    (4, 4, None),
    (2, 7, [5, 2]),
    (4, 9, None),
    (3, 7, [1, 4, 2]),
]
QUICK = [(2, 2, None, "wire")]
EVERY = [
    (*layout, memory)
    for layout in (*LAYOUTS, (8, 8, None), (8, 21, None))
    for memory in ("memory", "wire", "both")
]


@pytest.mark.parametrize(
    ("world", "n", "blocks", "memory"),
    [*QUICK, *(pytest.param(*case, marks=slow) for case in EVERY if case not in QUICK)],
)
def test_every_algorithm_is_the_simulators(
    world: int, n: int, blocks: list[int] | None, memory: str
) -> None:
    """To rounding in float64, two trials at once; bytes as theory counts them."""
    found = run("every_algorithm", world, n=n, blocks=blocks, memory=memory)
    assert all(set(each) == set(VARIANTS) for each in found)
    for name in VARIANTS:
        assert max(each[name][0] for each in found) < TOLERANCE, name
        assert [each[name][1] for each in found] == [0] * world, name
        if n == world:
            assert [each[name][2] for each in found] == [0] * world, name


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=slow)])
def test_the_same_bits_however_rows_travel(world: int) -> None:
    """Early or not, through memory or over the wire, again: nothing changes a bit."""
    ways = [run("bits", world, n=2 * world, shared_memory=memory) for memory in (True, False, True)]
    first = ways[0][0]
    for name in first:
        assert torch.equal(first[name], first[name.replace("True", "False")]), name
        for way in ways:
            for each in way:
                assert torch.equal(each[name], first[name]), name


@pytest.mark.parametrize("shape", [[], [3], [2, 2]])
@pytest.mark.parametrize(("world", "n", "blocks"), [(2, 2, None), (3, 8, [2, 5, 1])])
def test_verbs(world: int, n: int, blocks: list[int] | None, shape: list[int]) -> None:
    for each in run("verbs", world, n=n, shape=shape, blocks=blocks):
        assert len(each) == 5
        assert max(each) < 1e-14
        assert each[3] == 0  # collecting copies


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "wire"])
@pytest.mark.parametrize(("world", "n"), [(4, 4), (2, 5)])
def test_short_messages(world: int, n: int, memory: bool) -> None:
    """What comes from others is rounded, wherever they live; one's own row is not."""
    net = lopsided(n)
    x = np.random.default_rng(0).standard_normal((n, 6)).astype(np.float32)
    short = torch.from_numpy(x).bfloat16().double().numpy()
    links = 0
    for each in run("rounded", world, n=n, kind="bfloat16", shared_memory=memory):
        for verb, W in (("pull", net.R.toarray()), ("push", net.C.toarray())):
            own = np.diag(np.diag(W))
            expected = own @ x + (W - own) @ short
            np.testing.assert_allclose(each[verb].numpy(), expected, atol=3e-7)
        column = net.C.toarray() @ x[:, :1]
        np.testing.assert_allclose(each["column"].numpy(), column, atol=3e-7)
        links = np.count_nonzero(net.R.toarray()) - n
        assert each["bytes"] == links * (6 * 2 + 6 * 2 + 4)


def test_shared_memory_is_used_again() -> None:
    """Slots do not pile up, neither in turn nor when rows leave early: sixty times each."""
    for once, after in run("reuse", 4):
        assert 1 <= once <= 3
        assert after < 20  # a rank may be ahead of others by a few


@pytest.mark.parametrize("memory", [False, True])
def test_verbs_change_the_rows_they_send(memory: bool) -> None:
    assert run("changes", 2, memory=memory) == [[0.0] * 16] * 2


def test_more_early_rows_than_a_socket_holds() -> None:
    assert max(run("crowded", 2, exchanges=600)) < 1e-3


def test_begun_and_forgotten() -> None:
    for off, slots in run("forgotten", 3):
        assert off < 1e-14
        assert slots < 20


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "wire"])
def test_several_engines(memory: bool) -> None:
    assert max(run("several", 4, shared_memory=memory)) < 1e-6


def test_memory_cannot_be_taken_away() -> None:
    assert run("arenas_are_sealed", 2) == [["PermissionError", "OSError"]] * 2


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"about": {"algorithm": "sgp"}}, "rank 3 has sgp"),
        ({"about": {"algorithm": "push-pull", "lr": "0.1"}}, "lr: ranks 0, 1, 2 have nothing"),
        ({"n": 5}, "n: ranks 0, 1, 2 have 4, rank 3 has 5"),
        ({"dtype": "float64"}, "rank 3 has torch.float64"),
        ({"blocks": [1, 1, 1, 1]}, "ranks 0, 1, 2 have even, rank 3 has 1 1 1 1"),
    ],
)
def test_disagreement_is_named_everywhere(odd: dict[str, Any], said: str) -> None:
    errors = run("disagreeing", 4, odd=odd)
    assert len(set(errors)) == 1
    assert errors[0].startswith("DisagreementError: the ranks do not agree about")
    assert said in errors[0]


def test_a_rank_that_does_not_come_is_named() -> None:
    for error in run("absent", 3)[:2]:
        assert error.startswith("PeerError: rank 2 did not come within 1 s")


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "wire"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "rank 1 stopped: ValueError: no more data"),
        ("leaves", "rank 1 (ended|does not answer)"),  # it closes its engine, then its group
        ("hangs", "rank 1 does not answer"),
    ],
)
def test_a_rank_that_fails_is_named_by_all(how: str, said: str, memory: bool) -> None:
    errors = run("failing", 4, how=how, culprit=1, shared_memory=memory)
    for rank in (0, 2, 3):
        assert re.match(f"PeerError: {said}", errors[rank]), errors[rank]


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "wire"])
@pytest.mark.parametrize(("steps", "how"), [(5, "fewer"), (7, "more")])
def test_a_rank_that_took_another_number_of_steps(steps: int, how: str, memory: bool) -> None:
    errors = run("uneven", 3, odd=1, steps=steps, shared_memory=memory)
    for error in errors:
        assert error.startswith(f"PeerError: rank 1 took {how} steps than the others"), errors


def test_a_failed_engine_stays_failed() -> None:
    said = run("again", 2)[0]
    assert len(said) == 2
    assert said[0] == said[1]


def test_rows_that_are_not_held_here() -> None:
    for said in run("wrong_rows", 2):
        assert len(said) == 3
        assert "holds 1 nodes in torch.float32, but was given rows of shape (2, 3)" in said[0]


def test_without_a_process_group() -> None:
    with pytest.raises(ParameterError, match="there is no process group"):
        Processes(build("complete", 2))


KILLED = """
import sys, time, torch, torch.distributed as dist
from datetime import timedelta
from pathlib import Path
from digrad.engines.processes.engine import Processes
from digrad.base.errors import DigradError
from digrad.networks import build

rank, world, port, folder, memory = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
)
x = torch.ones(1, 1 << 18)
engine = Processes(build("exponential", world), timeout=3, shared_memory=memory == "memory")
try:
    for step in range(100_000):
        x = engine.push(engine.pull(x))
        if step == 5:
            (Path(folder) / f"{rank}.ready").touch()
except DigradError as error:
    print("SAID", error, flush=True)
    sys.exit(2)
"""


@slow
@pytest.mark.parametrize("memory", ["memory", "wire"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("culprit", [0, 2])
def test_killed_and_stopped(culprit: int, how: signal.Signals, memory: str, tmp_path: Path) -> None:
    """Every other rank ends in time with status 2 and names the culprit; nothing is left."""
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    world = 4
    processes = ranks.spawn(KILLED, world, str(tmp_path), memory)
    try:
        ranks.wait_for([tmp_path / f"{rank}.ready" for rank in range(world)], processes)
        processes[culprit].send_signal(how)
        started = time.monotonic()
        for rank, process in enumerate(processes):
            if rank == culprit:
                continue
            said, _ = process.communicate(timeout=60)
            assert process.returncode == 2, said
            first = next(line for line in said.splitlines() if line.startswith("SAID"))
            # Rank 0 holds the store in which the others compare notes: without it they know less.
            whom = "rank 0 or the launcher" if culprit == 0 else f"rank {culprit}"
            assert first.startswith(f"SAID {whom}"), said
        assert time.monotonic() - started < 30
    finally:
        for process in processes:
            ranks.end(process)
    assert set(os.listdir("/dev/shm")) - before == set()
