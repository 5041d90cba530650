"""Joining the processes that torchrun has started."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore
from torch.distributed.rendezvous import rendezvous

from digrad.base.errors import DigradError, ParameterError

GIVEN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # by torchrun, to every process
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
LAUNCHER_SECONDS = 0.5  # from one look at the launcher to the next


class JoinError(DigradError, RuntimeError):
    """Processes that did not find each other."""


@contextmanager
def joined(device: str, timeout: float) -> Iterator[str]:
    """Make the process group that torchrun has prepared; give this process's device.

    A process group that is there already is used and left alone.

    Args:
        device: ``cpu``, or ``cuda`` for one GPU per process of a machine, in turn.
        timeout: seconds to wait for the others.
    """
    if dist.is_initialized():
        yield device
        return
    _check_environment()
    stay_on_this_machine()
    place = _own_device(device)
    with _ending_with_the_launcher():
        try:
            _join(_backend(place), timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            what = f"the processes did not find each other: {error}"
            hint = "look at the output of the others, and at the address and port of the first"
            raise JoinError(what, hint=hint) from error
        yield place
        # Not after an error: others may be gone, and saying goodbye to them would wait.
        with suppress(RuntimeError):
            dist.destroy_process_group()


@contextmanager
def _ending_with_the_launcher() -> Iterator[None]:
    """End this process if torchrun's is killed: nobody would restart, stop or count it any more.

    A process that no torchrun has started may outlive its parent, as with ``nohup``.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    left = Event()
    Thread(target=_watch, args=(os.getppid(), left), daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _watch(launcher: int, left: Event) -> None:
    while not left.wait(LAUNCHER_SECONDS):
        if os.getppid() != launcher:
            rank = os.environ["RANK"]
            said = f"error: rank {rank}: torchrun (process {launcher}) was killed: this rank ends\n"
            with suppress(OSError):
                os.write(2, said.encode())
            os._exit(1)  # at once, as if killed too: what is on disk is whole


def _join(backend: str, timeout: timedelta) -> None:
    store, rank, world = next(rendezvous("env://", timeout=timeout))
    # torchrun hands workers that it starts again the store of those before, with the addresses
    # of the dead in it: every attempt gets a corner of its own.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    corner = PrefixStore(f"attempt/{attempt}", store)
    dist.init_process_group(backend, store=corner, rank=rank, world_size=world, timeout=timeout)


def _check_environment() -> None:
    lacking = [name for name in GIVEN if name not in os.environ]
    if lacking:
        raise ParameterError(
            f"this is not one of several processes: {', '.join(lacking)} is not set",
            hint="start it with `torchrun --standalone --nproc-per-node 4 SCRIPT.py`, or "
            "`-m digrad train FILE` instead of the script",
        )


def stay_on_this_machine() -> None:
    """Let messages go over the loopback interface, if all processes are here.

    Where gloo and NCCL would otherwise listen depends on the machine. A choice of the user's
    stands.
    """
    here, everywhere = (os.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if here is not None and here == everywhere and names:
        for variable in INTERFACES:
            os.environ.setdefault(variable, names[0])


def _own_device(device: str) -> str:
    if device != "cuda" or not torch.cuda.is_available():
        return device
    mine = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(mine)
    return f"cuda:{mine}"


def _backend(device: str) -> str:
    """Choose how messages travel: NCCL wants a GPU for each process."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    alone = device.startswith("cuda") and torch.cuda.device_count() >= processes
    return "cpu:gloo,cuda:nccl" if alone and dist.is_nccl_available() else "gloo"


class Joined(NamedTuple):
    """One of several processes."""

    rank: int
    world: int
    device: str


@contextmanager
def join(device: str = "cpu", timeout: float = 300.0) -> Iterator[Joined]:
    """Join the processes that torchrun has started; leave when all are done.

    A process group that is there already is used and left alone.

    Args:
        device: ``cpu``, or ``cuda`` for one GPU per process of a machine, in turn.
        timeout: seconds to wait for the others.
    """
    found = dist.is_initialized()
    with joined(device, timeout) as here:
        yield Joined(dist.get_rank(), dist.get_world_size(), here)
        # Not after an error: others may be gone. Without it a process could end while a thread
        # of gloo still holds the last tensors, and abort.
        if not found:
            with suppress(RuntimeError):
                dist.barrier()
