"""Milliseconds of a whole training step on real processes, against DDP, side by side.

Run with ``python benchmarks/processes.py``, on an idle machine; ``--quick`` and the other options
choose few rows. For 2, 4 and 8 processes, 1 MB and 50 MB of parameters, the directed ring and the
directed exponential graph:

- DDP: stock DistributedDataParallel with gloo, and SGD;
- S-PP: push-pull, two messages over every link, through shared memory;
- wire: the same without shared memory, every message through gloo;
- cta: its form CY + G⁺ - G, whose push leaves before backward, with overlap and without;
- gossip: SGP, one message over every link, in the same code;
- peer: S-PP on the one-peer exponential graph, whose only link changes from step to step; through
  shared memory, and without it (peer, wire);
- messages: the two exchanges of S-PP alone, in buckets of the same size;
- sums: what is left of the recursion without messages, X - γY and Y + G⁺ - G, as three passes
  over whole vectors;
- model: forward and backward alone.

A step is zero_grad, forward, backward, step of a model that does next to nothing but has that
many parameters. The cases take turns within every round, and a round's time is that of the
slowest process. Shown: the median of the rounds (the fastest one), and the medians of the
rounds' ratios. ``above`` is what S-PP's step takes beyond messages, sums and model, as a share of
the step. Nothing here asserts a time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from digrad.algorithms import SGP, PushPull
from digrad.networks import build_any
from digrad.optim import Decentralized, processes

TENSORS = 24  # that the parameters consist of, as a model's do
NETWORKS = ("directed-ring", "exponential")
RATIOS = {
    "S-PP/DDP": ("S-PP", "DDP"),
    "wire/S-PP": ("wire", "S-PP"),
    "gossip/S-PP": ("gossip", "S-PP"),
    "peer/S-PP": ("peer", "S-PP"),
    "peer/S-PP, both wire": ("peer, wire", "wire"),
}
PARTS = ("messages", "sums", "model")  # of a step of S-PP


class Idle(nn.Module):
    """So many megabytes of parameters, and nothing to compute with them."""

    def __init__(self, megabytes: float) -> None:
        super().__init__()
        size = int(megabytes * 1e6 / 4 / TENSORS)
        self.parts = nn.ParameterList(torch.zeros(size) for _ in range(TENSORS))

    def forward(self) -> torch.Tensor:
        return torch.stack([part.sum() for part in self.parts]).sum()


def training(model: nn.Module, opt: torch.optim.Optimizer | None) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        model().backward()
        if opt is not None:
            opt.step()

    return step


def exchanging(opt: Decentralized) -> Callable[[], None]:
    """The same messages in the same buckets, and nothing else."""
    rows = [torch.zeros(1, bucket.width) for bucket in opt.rows.buckets]

    def step() -> None:
        for each in rows:
            opt.engine.push(each)
            opt.engine.pull(each)

    return step


def summing(megabytes: float) -> Callable[[], None]:
    x, y, g, last, changed = (torch.zeros(int(megabytes * 1e6 / 4)) for _ in range(5))

    def step() -> None:
        torch.sub(x, y, alpha=0.01, out=changed)
        y.add_(g).sub_(last)

    return step


def ours(megabytes: float, name: str, algorithm: Any, **options: Any) -> tuple[nn.Module, Any]:
    model, net = Idle(megabytes), build_any(name, dist.get_world_size())
    return model, Decentralized(
        model.parameters(), algorithm, net, lr=0.01, engine=processes(**options)
    )


def stock(megabytes: float) -> Callable[[], None]:
    model = DistributedDataParallel(Idle(megabytes))
    return training(model, torch.optim.SGD(model.parameters(), lr=0.01))


CTA, PEER = PushPull(y_form="cta"), "one-peer-exponential"
CASES: dict[str, Callable[[float, str], Callable[[], None]]] = {
    "DDP": lambda size, _: stock(size),
    "S-PP": lambda size, name: training(*ours(size, name, PushPull())),
    "wire": lambda size, name: training(*ours(size, name, PushPull(), shared_memory=False)),
    "cta": lambda size, name: training(*ours(size, name, CTA, overlap=False)),
    "cta, overlap": lambda size, name: training(*ours(size, name, CTA, overlap=True)),
    "gossip": lambda size, name: training(*ours(size, name, SGP())),
    "peer": lambda size, _: training(*ours(size, PEER, PushPull())),
    "peer, wire": lambda size, _: training(*ours(size, PEER, PushPull(), shared_memory=False)),
    "messages": lambda size, name: exchanging(ours(size, name, PushPull())[1]),
    "sums": lambda size, _: summing(size),
    "model": lambda size, _: training(Idle(size), None),
}


def slowest(seconds: float) -> float:
    worst = torch.tensor([seconds])
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return float(worst)


def measure(steps: dict[str, Callable[[], None]], rounds: int, seconds: float) -> dict[str, list]:
    """Milliseconds of a step, for each case and round; a round lasts about so many seconds."""
    counts = {}
    for name, step in steps.items():
        step()
        step()
        began = time.perf_counter()
        step()
        took = slowest(time.perf_counter() - began)
        counts[name] = max(1, min(100, int(seconds / took)))
    found: dict[str, list] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            dist.barrier()
            began = time.perf_counter()
            for _ in range(counts[name]):
                step()
            found[name].append(slowest(time.perf_counter() - began) / counts[name] * 1e3)
    return found


def columns(names: Sequence[str]) -> list[str]:
    """The cases measured, and what can be said of them."""
    ratios = [name for name, pair in RATIOS.items() if set(pair) <= set(names)]
    above = ["above"] if {"S-PP", *PARTS} <= set(names) else []
    return [*names, *ratios, *above]


def cell(column: str, found: dict[str, list]) -> str:
    if column in found:
        return f"{median(found[column]):.4g} ({min(found[column]):.4g})"
    if column in RATIOS:
        top, bottom = (found[name] for name in RATIOS[column])
        return f"{median(a / b for a, b in zip(top, bottom, strict=True)):.2f}"
    whole, parts = median(found["S-PP"]), sum(median(found[name]) for name in PARTS)
    return f"{(whole - parts) / whole:.0%}"


def line(first: Sequence[object], cells: Iterable[str]) -> str:
    return f"| {' | '.join([*map(str, first), *cells])} |"


def rank(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(arguments.store, arguments.world)
    dist.init_process_group("gloo", store=store, rank=arguments.rank, world_size=arguments.world)
    for megabytes, network in product(arguments.megabytes, arguments.networks):
        steps = {name: CASES[name](megabytes, network) for name in arguments.cases}
        found = measure(steps, arguments.rounds, arguments.seconds)
        if arguments.rank == 0:
            cells = [cell(column, found) for column in columns(arguments.cases)]
            print(line((arguments.world, f"{megabytes:g} MB", network), cells), flush=True)
        del steps
    dist.destroy_process_group()


def launch(world: int, options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--world", str(world), "--store", f"{folder}/store"]
        env = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen([*command, *options, "--rank", str(k)], env=env) for k in range(world)
        ]
        for process in ranks:
            if process.wait():
                sys.exit(f"a process of {world} ended with {process.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 processes, 1 MB and 5 MB")
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 50])
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, for each case")
    for hidden in ("--rank", "--world"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        rank(arguments)
        return
    if arguments.quick:
        arguments.worlds, arguments.megabytes = [2], [1, 5]
        arguments.rounds, arguments.seconds = 3, 0.3
    print(f"torch {torch.__version__}, {os.cpu_count()} cores; ms a step: median (fastest)")
    head = columns(arguments.cases)
    print(line(("ranks", "size", "network"), head))
    print("|" + "---|" * (3 + len(head)), flush=True)
    options = ["--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds)]
    for name in ("megabytes", "networks", "cases"):
        options += [f"--{name}", *map(str, getattr(arguments, name))]
    for world in arguments.worlds:
        launch(world, options)


if __name__ == "__main__":
    main()
