"""Milliseconds of a whole training step on real processes, against DDP, side by side.

Run with ``python benchmarks/processes.py [--quick]``, on an idle machine. For 2, 4 and 8
processes, 1 MB and 50 MB of parameters, the directed ring and the directed exponential graph:

- DDP: stock DistributedDataParallel with gloo, and SGD;
- S-PP: push-pull, two messages over every link; and its form CY + G⁺ - G, whose push leaves
  before backward, with overlap and without;
- gossip: SGP, one message over every link, in the same code;
- messages: the two exchanges of S-PP alone, in buckets of the same size;
- sums: what is left of the recursion without messages, X - γY and Y + G⁺ - G, as three passes
  over whole vectors;
- model: forward and backward alone.

A step is zero_grad, forward, backward, step of a model that does next to nothing but has that
many parameters. The cases take turns within every round, and a round's time is that of the
slowest process. Shown: the median of the rounds (the fastest one). ``above`` is what S-PP's
step takes beyond messages, sums and model, as a share of the step. Nothing here asserts a time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from digrad.algorithms import SGP, PushPull
from digrad.networks import build
from digrad.optim import Decentralized

TENSORS = 24  # that the parameters consist of, as a model's do
NETWORKS = ("directed-ring", "exponential")
CASES = ("DDP", "S-PP", "S-PP cta", "cta, overlap", "gossip", "messages", "sums", "model")


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


def cases(megabytes: float, name: str) -> dict[str, Callable[[], None]]:
    net = build(name, dist.get_world_size())

    def ours(algorithm: object, **options: object) -> tuple[nn.Module, Decentralized]:
        model = Idle(megabytes)
        return model, Decentralized(model.parameters(), algorithm, net, lr=0.01, **options)

    stock = DistributedDataParallel(Idle(megabytes))
    spp, bare = ours(PushPull()), ours(PushPull())
    cta = PushPull(y_form="cta")
    made = {
        "DDP": training(stock, torch.optim.SGD(stock.parameters(), lr=0.01)),
        "S-PP": training(*spp),
        "S-PP cta": training(*ours(cta, overlap=False)),
        "cta, overlap": training(*ours(cta, overlap=True)),
        "gossip": training(*ours(SGP())),
        "messages": exchanging(bare[1]),
        "sums": summing(megabytes),
        "model": training(Idle(megabytes), None),
    }
    assert tuple(made) == CASES
    return made


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


def line(world: int, megabytes: float, network: str, found: dict[str, list]) -> str:
    mid = {name: median(times) for name, times in found.items()}
    cells = [f"{mid[name]:.4g} ({min(found[name]):.4g})" for name in CASES]
    best = min(mid["S-PP"], mid["cta, overlap"])
    alone = sum(mid[name] for name in ("messages", "sums", "model"))
    above = (mid["S-PP"] - alone) / mid["S-PP"]
    cells += [
        f"{mid['S-PP'] / mid['DDP']:.2f}",
        f"{best / mid['DDP']:.2f}",
        f"{mid['gossip'] / mid['S-PP']:.2f}",
        f"{above:.0%}",
    ]
    return f"| {world} | {megabytes:g} MB | {network} | " + " | ".join(cells) + " |"


def rank(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(arguments.store, arguments.world)
    dist.init_process_group("gloo", store=store, rank=arguments.rank, world_size=arguments.world)
    for megabytes in arguments.megabytes:
        for network in NETWORKS:
            steps = cases(megabytes, network)
            found = measure(steps, arguments.rounds, arguments.seconds)
            if arguments.rank == 0:
                print(line(arguments.world, megabytes, network, found), flush=True)
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
    names = ("S-PP/DDP", "best/DDP", "gossip/S-PP", "above")
    print("| ranks | size | network | " + " | ".join((*CASES, *names)) + " |")
    print("|" + "---|" * (3 + len(CASES) + len(names)), flush=True)
    sizes = ["--megabytes", *map(str, arguments.megabytes)]
    options = ["--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds), *sizes]
    for world in arguments.worlds:
        launch(world, options)


if __name__ == "__main__":
    main()
