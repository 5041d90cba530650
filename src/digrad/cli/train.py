"""The command that runs an experiment on real processes."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.base.errors import DigradError, lookup
from digrad.cli.output import show
from digrad.cli.runs import Checkpoint, Out, Trust, print_summary
from digrad.cli.selecting import read
from digrad.cli.trust import ask_to_trust

DTYPES = ("bfloat16", "float16", "float32")


def train(
    file: Annotated[Path, typer.Argument(help="An experiment (TOML); `digrad init` writes one.")],
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, if there is one.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, or cuda: one GPU for each process.")] = "cpu",
    timeout: Annotated[float, typer.Option(help="Seconds to wait for another process.")] = 300.0,
    message_dtype: Annotated[
        str, typer.Option(help="Round rows that travel: bfloat16, float16 or float32.")
    ] = "",
    no_shared_memory: Annotated[
        bool,
        typer.Option("--no-shared-memory", help="Use sockets also between processes of a machine."),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write scalars into DIR/tensorboard too.")
    ] = False,
    checkpoint: Checkpoint = 5.0,
    trust: Trust = False,
) -> None:
    """Run an experiment on the processes that torchrun started, blocks of nodes on each.

    The run folder is that of `digrad run`: either of the two can go on with it, on any number of
    processes, and `digrad plot` draws both in one picture.

    Example: torchrun --standalone --nproc-per-node 4 -m digrad train experiment.toml
    """
    from digrad.runs.joining import joined

    short = lookup({name: name for name in DTYPES}, message_dtype, "dtype") if message_dtype else ""
    options = {
        "resume": resume,
        "timeout": timeout,
        "shared_memory": False if no_shared_memory else "auto",
        "tensorboard": tensorboard,
        "checkpoint_seconds": checkpoint,
        "allow": lambda experiment: ask_to_trust(experiment, file, trust),
    }
    with joined(device, timeout) as here:
        _train(file, out, device=here, short=short, **options)


def _train(file: Path, out: Path | None, *, short: str, **options: Any) -> None:
    import torch
    from torch import distributed

    from digrad.engines.processes.handshake import DisagreementError
    from digrad.runs.ranks import SharedError
    from digrad.runs.train import train as go

    rank = distributed.get_rank()
    dtype = getattr(torch, short) if short else None
    try:
        experiment = _read(file) if rank == 0 else file
        with _progress(experiment) as progress:
            folder = go(experiment, out, message_dtype=dtype, progress=progress, **options)
    except KeyboardInterrupt:
        if rank == 0:
            print("interrupted; what is done is kept, and --resume goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    except DigradError as error:
        if rank == 0:
            raise
        if isinstance(error, SharedError | DisagreementError):  # rank 0 says the same
            raise typer.Exit(2) from None
        raise type(error)(f"rank {rank}: {error}") from error
    if rank == 0:
        show(f"run: {folder}")
        print_summary(read([folder]))


def _read(file: Path) -> Any:
    """Read the experiment; where that fails, the ranks are to hear of it together, later."""
    from digrad.results.experiment import load_experiment

    try:
        return load_experiment(file)
    except DigradError:
        return file


def _progress(experiment: Any) -> Any:
    """Show progress where the experiment was read."""
    from digrad.show.progress import progress_bar

    return nullcontext() if isinstance(experiment, Path) else progress_bar(experiment)
