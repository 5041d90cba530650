"""What the ranks of these tests do: functions of (rank, world, ...) run by ``engines.ranks``."""

import io
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed

from digrad.base.errors import DigradError
from digrad.results.experiment import parse_experiment
from digrad.runs import execution
from digrad.runs import train as training
from digrad.runs.metrics import Evaluator
from digrad.runs.planning import Job, Plan
from digrad.runs.recursion import RunPosition


def train(
    rank: int,
    world: int,
    table: dict[str, Any],
    out: str,
    stop: list[int] | None = None,
    message_dtype: str = "",
    launcher: str = "",
    **options: Any,
) -> str:
    """Run an experiment; say what it raised. Rank 0 is interrupted at step stop[1] of job stop[0].

    The others then lose rank 0, as they do when all are interrupted and it goes first.
    """

    def progress(job: Job, t: int) -> None:
        if stop == [job.index, t]:
            distributed.barrier()  # or the others may not have come so far
            if rank == 0:
                raise KeyboardInterrupt

    os.environ["TORCHELASTIC_RUN_ID"] = launcher
    dtype = getattr(torch, message_dtype) if message_dtype else None
    options = {
        "timeout": 20.0,
        "checkpoint_seconds": -1.0,
        "progress": progress,
        "message_dtype": dtype,
        **options,
    }
    try:
        training.train(parse_experiment(table), out, **options)
    except (KeyboardInterrupt, DigradError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ["TORCHELASTIC_RUN_ID"]
    return ""


def counted(rank: int, world: int, table: dict[str, Any], out: str, **options: Any) -> list[int]:
    """Run an experiment; return the bytes that this rank's nodes have sent, by network."""
    kept: list[training.Processes] = []
    plain = training.connect

    def keep(*arguments: Any) -> dict[str, training.Processes]:
        engines = plain(*arguments)
        kept.extend(engines.values())
        return engines

    training.connect = keep
    try:
        assert train(rank, world, table, out, **options) == ""
    finally:
        training.connect = plain
    return [engine.sent.bytes for engine in kept]


def unlucky(rank: int, world: int, culprit: int, **arguments: Any) -> str:
    """One rank cannot build the problem, say because its machine lacks the data."""
    plain = training.plan

    def fail(*given: Any, **named: Any) -> Plan:
        raise DigradError("there is no data here")

    training.plan = fail if rank == culprit else plain
    try:
        return train(rank, world, **arguments)
    finally:
        training.plan = plain


def stumbling(rank: int, world: int, culprit: int, at: int, **arguments: Any) -> str:
    """One rank raises in the middle."""
    plain = execution.PlacedJob.ended
    calls = 0

    def ended(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if rank == culprit and calls == at:
            raise DigradError("the disk is full")
        return plain(*given)

    execution.PlacedJob.ended = ended
    try:
        return train(rank, world, **arguments)
    finally:
        execution.PlacedJob.ended = plain


def command(rank: int, world: int, file: str, out: str, **options: Any) -> list[Any]:
    """The command itself: what it prints, and how it ends."""
    import typer

    from digrad.cli.train import train as go

    said, complained, end = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(said), redirect_stderr(complained):
        try:
            go(Path(file), Path(out), timeout=20.0, **options)
        except typer.Exit as error:
            end = error.exit_code
        except DigradError as error:  # which main() prints
            print(error)
            end = 2
    return [end, said.getvalue(), complained.getvalue()]


def example(rank: int, world: int, script: str, options: list[str]) -> str:
    """Run a script as it is, inside the process group that is there; return what it prints."""
    said, before = io.StringIO(), sys.argv
    sys.argv = [script, *options]
    try:
        with (
            patch.object(distributed, "init_process_group"),
            patch.object(distributed, "destroy_process_group"),
            redirect_stdout(said),
        ):
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before
    return said.getvalue()


def overflowing(rank: int, world: int, culprit: int, since: int, **arguments: Any) -> str:
    """One rank alone finds numbers of trial 0 that are not finite, from some step on."""
    plain = Evaluator.finite

    def finite(evaluator: Evaluator, moment: RunPosition) -> torch.Tensor:
        found = plain(evaluator, moment)
        found[0] &= rank != culprit or moment.t < since
        return found

    with patch.object(Evaluator, "finite", finite):
        return train(rank, world, **arguments)
