"""Milliseconds of two exchanges (pull and push) of 8 processes over the exponential graph.

Run with ``python benchmarks/peers.py [MB ...]``, on an idle machine. gloo is the engine of
processes without shared memory; plain and TLS are peers with ``encrypt = false`` and ``true``. All
three live in the same processes and take turns within every round; a round's time is that of the
slowest process. Shown: the median of the rounds, and of the rounds' ratios; then milliseconds of
CPU, all processes together, which mean something on a busy machine too. Nothing here asserts
a time.
"""

import os
import socket
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from digrad.engines.processes.engine import Processes
from digrad.networks import build
from digrad_peers.local import key_file, local_run
from digrad_peers.membership import load_membership
from digrad_peers.session import Session

WORLD, ROUNDS = 8, 7
KINDS = ("gloo", "plain", "TLS")


def work(rank: int, port: int, folders: dict[str, Path], sizes: list[float], out: Any) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.TCPStore("127.0.0.1", port, WORLD, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    engines: dict[str, Any] = {
        "gloo": Processes(build("exponential", WORLD), shared_memory=False, timeout=300)
    }
    for kind, folder in folders.items():
        name = f"n{rank}"
        membership = load_membership(folder / "peers.toml")
        engines[kind] = Session(membership, name, key_file(folder, name)).join(0, {})
    for size in sizes:
        x = torch.randn(1, int(size * 1e6 / 4))
        for _ in range(ROUNDS):
            for kind in KINDS:
                dist.barrier()
                began, worked = time.perf_counter(), time.process_time()
                engines[kind].push(engines[kind].pull(x))
                seconds = time.perf_counter() - began
                dist.barrier()  # links still say what has arrived
                out.put((kind, seconds, time.process_time() - worked))
    dist.barrier()
    time.sleep(0.5)


def main() -> None:
    sizes = [float(word) for word in sys.argv[1:]] or [1.0, 50.0]
    names = [f"n{k}" for k in range(WORLD)]
    with tempfile.TemporaryDirectory() as here, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        folders = {kind: Path(here) / kind for kind in KINDS[1:]}
        for kind, folder in folders.items():
            options = {"encrypt": kind == "TLS", "timeout": 300.0, "start": 600.0}
            local_run(folder, names, {"topology": "exponential"}, hub=False, **options)
        free.close()
        context = get_context("spawn")
        out = context.Queue()
        made = [
            context.Process(target=work, args=(rank, port, folders, sizes, out), daemon=True)
            for rank in range(WORLD)
        ]
        for process in made:
            process.start()
        show(sizes, out)
        for process in made:
            process.join()


def show(sizes: list[float], out: Any) -> None:
    each = "".join(f"{kind:>9}" for kind in KINDS) + "  plain/gloo  TLS/plain"
    print(f"{'MB':>4}{each}     CPU:{each}")
    for size in sizes:
        times, works = [], []
        for _ in range(ROUNDS):
            slowest, all_of_them = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
            for _ in range(WORLD * len(KINDS)):
                kind, seconds, worked = out.get(timeout=600)
                slowest[kind] = max(slowest[kind], seconds)
                all_of_them[kind] += worked
            times.append(slowest)
            works.append(all_of_them)
        print(f"{size:4g}{medians(times)}         {medians(works)}", flush=True)


def medians(rounds: list[dict[str, float]]) -> str:
    times = [1e3 * median(one[kind] for one in rounds) for kind in KINDS]
    pairs = ("plain", "gloo"), ("TLS", "plain")
    ratios = [median(one[top] / one[low] for one in rounds) for top, low in pairs]
    return "".join(f"{t:9.0f}" for t in times) + f"{ratios[0]:12.2f}{ratios[1]:11.2f}"


if __name__ == "__main__":
    main()
