"""The optimizer on real processes."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from digrad.runs.metrics import Evaluator
from engines.ranks import pool
from optim.test_decentralized import Problem
from optim.training import FORMS, answer, expected, network_of

EXACT = {"rtol": 0.0, "atol": 1e-12}
SLOW = [(3, None), (4, None), (8, 8)]
RANKS = [(2, 2), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((2, None), *SLOW))]
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def ran(task: str, world: int, **arguments: Any) -> list[Any]:
    return pool().run(f"optim.tasks:{task}", world, **arguments)


def errors(task: str, world: int, **arguments: Any) -> list[str]:
    return [o.error for o in pool().outcomes(f"optim.tasks:{task}", world, **arguments)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])
@pytest.mark.parametrize(("world", "n"), RANKS)
def test_the_same_run_as_in_one_process(world: int, n: int | None, device: str) -> None:
    """Every algorithm, several buckets, blocks of nodes; and bytes as the theory counts them."""
    made = ran("runs", world, steps=8, n=n, device=device)
    for form, algorithm in FORMS.items():
        net = network_of(form, n)
        end = expected(algorithm, net, 8)
        x = torch.cat([rank[form]["x"] for rank in made])
        torch.testing.assert_close(x, algorithm.point(end), **EXACT)
        for rank in made:
            torch.testing.assert_close(rank[form]["xhat"], answer(algorithm, net, end), **EXACT)
            assert torch.equal(
                rank[form]["shown"], rank[form]["xhat"].expand_as(rank[form]["shown"])
            )
        evaluator = Evaluator.make(algorithm, Problem(), net)  # type: ignore[arg-type]
        each = getattr(algorithm, "local_steps", 0) + 1  # steps at home send nothing
        exchanges = 8 // each - 6 // each  # in the last two steps
        assert sum(rank[form]["bytes"] for rank in made) == exchanges * evaluator.bytes(1), form


def test_overlap_changes_no_bit() -> None:
    """Not with evaluation and stored states in between either."""
    with_, without = (ran("overlapping", 2, overlap=overlap) for overlap in (True, False))
    for a, b in zip(with_, without, strict=True):
        assert len(a) == 6
        assert all(torch.equal(a[form], b[form]) for form in a)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_rank_may_end_first(shared_memory: bool) -> None:
    """When all steps are taken nobody needs what would be sent ahead."""
    assert ran("ends_first", 2, shared_memory=shared_memory) == [3, 3]


def test_a_gradient_that_is_not_finite_ends_all_ranks() -> None:
    at, other = errors("not_finite", 2)[::-1]
    node = network_of("push-pull").n - network_of("push-pull").n // 2
    where = f"non-finite gradient in vector of node {node} at step 2"
    assert f"GradientError: {where}" in at
    assert f"PeerError: rank 1 stopped: {where}" in other


def test_or_skips_one_node_while_all_take_the_step() -> None:
    counts = ran("one_skips", 2)
    assert sum(counts[0]) == 0
    assert counts[1] == [1] + [0] * (len(counts[1]) - 1)


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ("model", "parameters: rank 0 has 2 tensors, 3 numbers"),
        ("algorithm", "algorithm: rank 0 has PushPull"),
        ("network", "the ranks do not agree about .*R"),
        ("lr", r"rank 0 has \[\[0.1, 0.0\]\], rank 1 has \[\[0.2"),
        ("messages", "message_dtype: rank 0 has torch.float32, rank 1 has torch.bfloat16"),
    ],
)
def test_ranks_that_differ(what: str, field: str) -> None:
    for error in errors("differing", 2, what=what):
        assert "DisagreementError" in error
        assert re.search(field, error), error


@pytest.mark.parametrize(
    ("n", "own", "text"),
    [
        (3, 1, "the network has 3 nodes, but there are 2 ranks with one model each"),
        (3, 2, "rank 1 holds 1 of 3 nodes, but was given 2 models"),
    ],
)
def test_wrong_numbers_of_nodes(n: int, own: int, text: str) -> None:
    assert text in errors("wrong_size", 2, n=n, own=own)[1]


def test_all_ranks_evaluate_with_the_same_buffers() -> None:
    """Those of all data taken together; each rank's own come back."""
    made = ran("buffers", 2)
    means, variances, counts = zip(*(rank["own"] for rank in made), strict=True)
    assert not torch.equal(means[0], means[1])
    mean = torch.stack(means).mean(0)
    spread = torch.stack([v + (m - mean) ** 2 for m, v in zip(means, variances, strict=True)])
    for rank in made:
        torch.testing.assert_close(rank["common"][0], mean)
        torch.testing.assert_close(rank["common"][1], spread.mean(0))
        assert torch.equal(rank["common"][2], counts[0])
        assert all(map(torch.equal, rank["common"], made[0]["common"]))
        assert all(map(torch.equal, rank["common"], rank["again"]))
        assert all(map(torch.equal, rank["common"], rank["by groups"]))
        assert all(map(torch.equal, rank["own"], rank["after"]))


def test_every_rank_stores_its_own_buffers(tmp_path: Path) -> None:
    made = ran("stored_buffers", 2, folder=str(tmp_path))
    for before, after in made:
        assert all(map(torch.equal, before, after))
    assert not torch.equal(made[0][0][0], made[1][0][0])


def test_step_sizes_that_drift_apart_are_named(tmp_path: Path) -> None:
    """Once, on rank 0; and each rank goes on with its own, of which a new optimizer warns too."""
    first, other = ran("drifted", 2, folder=str(tmp_path))
    assert [len(said) for said in first["said"]] == [0, 1, 0, 1]
    assert "group 0: lr is 0.4 on rank 0; 0.2 on rank 1\n" in first["said"][1][0]
    assert "hint: give schedulers the same number on every rank" in first["said"][1][0]
    assert other["said"] == [[], [], [], []]
    assert [first["lr"], other["lr"]] == [0.4, 0.2]


def test_wrappers_that_average_gradients_over_nodes_are_refused() -> None:
    """Wherever the parameters were taken from; within a node they are fine."""
    for said in ran("wrapped", 2):
        for how in ("before", "after"):  # the optimizer was made
            assert "DistributedDataParallel, which averages over 2 ranks" in said[how]
            assert "hint: remove the DistributedDataParallel(...) line" in said[how]
        assert (said["inside"], said["gone"]) == ("fine", "fine")


@NO_GPU
def test_one_rank_over_nccl() -> None:
    (found,) = ran("nccl", 1)
    assert found == found
