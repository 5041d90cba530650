"""Seconds that a clock predicts for a run on processes, against those it takes.

    python benchmarks/predicted.py [--world 4] [--steps 60] [--figure predicted.png]

Every process measures how long its gradients take and how long an exchange over a link takes, in
some steps beforehand. A clock with these times predicts the steps that follow, which are then
taken. A gradient is a small one and a sleep, of node 0 three times as long where it is slow:
so processes do not compete for cores, and what is compared is who waits for whom.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import nn

from digrad.algorithms import as_algorithm
from digrad.clocks import Clock
from digrad.networks import Network, build
from digrad.optim import Decentralized
from digrad.runs.timing import MessageSizes, synchronous_timing
from digrad.show.figures import save_figure

METHODS = ("push-pull", "sgp", "ab-cta")
SLEEP, SLOW = 0.03, 3.0  # seconds of a gradient, and how many times slower node 0 is
WIDTH = 400  # of the model: 0.6 MB
LOOK = 20  # steps that are measured beforehand


def everybody(value: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def training(model: nn.Module, opt: Decentralized, sleep: float) -> Callable[[], float]:
    """Return a step, which returns how long its gradient took."""
    inputs = torch.ones(1, WIDTH)

    def step() -> float:
        began = time.perf_counter()
        opt.zero_grad()
        model(inputs).square().mean().backward()
        time.sleep(sleep)
        took = time.perf_counter() - began
        opt.step()
        return took

    return step


def exchanging(opt: Decentralized) -> float:
    """Return how long an exchange takes on this rank when all begin together."""
    rows, took = [torch.zeros(1, bucket.width) for bucket in opt.rows.buckets], []
    for _ in range(LOOK):
        dist.barrier()
        began = time.perf_counter()
        for each in rows:
            opt.engine.pull(each)
        took.append(time.perf_counter() - began)
    return median(took)


def run(name: str, net: Network, slow: float, steps: int) -> tuple[list[float], list[float]]:
    """Return when the last node has done each step: as predicted, and in fact."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    opt = Decentralized(model.parameters(), name, net, lr=1e-3)
    step = training(model, opt, SLEEP * (slow if dist.get_rank() == 0 else 1.0))
    step()
    trace = everybody([step() for _ in range(LOOK)])
    latency = median(everybody(exchanging(opt)))
    clock = Clock(trace=tuple(map(tuple, trace)), latency=latency)
    waiting = synchronous_timing(as_algorithm(name), net, clock, MessageSizes(4.0 * WIDTH**2, 4.0))
    dist.barrier()
    began, ends = time.perf_counter(), []
    for _ in range(steps):
        step()
        ends.append(time.perf_counter() - began)
    real = [max(at) for at in zip(*everybody(ends), strict=True)]
    return [waiting.time(t + 1) for t in range(steps)], real


def draw(found: dict[str, tuple[list[float], list[float]]]) -> Figure:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for k, (name, (predicted, real)) in enumerate(found.items()):
        steps = range(1, len(real) + 1)
        axes.plot(steps, real, color=f"C{k}", label=name)
        axes.plot(steps, predicted, color=f"C{k}", linestyle="--")
    axes.set(xlabel="step", ylabel="seconds (dashed: predicted)")
    axes.legend(frameon=False, fontsize="small")
    return figure


def rank(asked: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(asked.store, asked.world)
    dist.init_process_group("gloo", store=store, rank=asked.rank, world_size=asked.world)
    net, found = build("exponential", asked.world), {}
    for slow, said in ((1.0, "equal nodes"), (SLOW, "node 0 three times slower")):
        for name in METHODS:
            predicted, real = run(name, net, slow, asked.steps)
            found[f"{name}, {said}"] = predicted, real
            off = predicted[-1] / real[-1] - 1
            if asked.rank == 0:
                times = f"predicted {predicted[-1]:6.2f} s   real {real[-1]:6.2f} s   {off:+.1%}"
                print(f"{name:10} {said:26} {times}", flush=True)
    if asked.rank == 0 and asked.figure:
        save_figure(draw(found), Path(asked.figure))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--figure", default="")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank >= 0:
        rank(asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        env = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv, "--store", f"{folder}/store", "--rank"]
        ranks = [subprocess.Popen([*command, str(k)], env=env) for k in range(asked.world)]
        ends = [process.wait() for process in ranks]
    if any(ends):
        sys.exit(f"processes ended with {ends}")


if __name__ == "__main__":
    main()
