"""Time to a given loss over slow links: S-PP with small messages, beside DDP.

A perceptron with 50 MB of parameters learns digits on 8 nodes, whose data differ: half of a
node's images are of one or two digits. The loss is that of the nodes' own models on images of
all nodes, on average. What takes how long is found in two parts, since how fast links are does not
change a single bit of a run:

- ``steps``: how many steps each way takes to the loss, for the best of some step sizes; all nodes
  in one process, ``--device cuda`` if there is one;
- ``times``: how long a step takes, 8 processes in 8 network namespaces joined by a bridge, every
  namespace's link slowed by ``tc`` to 100 Mbit/s and to 1 Gbit/s, both ways; and how long a core
  works in it, which is what it takes beyond the link where processes have one each. Needs root.

``--width 1070`` makes it 5 MB; over links of 10 and 100 Mbit/s that is the same ratio of bytes to
speed, with a tenth of the arithmetic, for machines on which 8 processes have no cores of their own.
``table`` puts both parts together. All three read and write one JSON file, ``--out``.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from digrad.data.sets import read_digits
from digrad.optim import Decentralized, processes

NODES, BATCH = 8, 32
LOSS = 0.3
SIZES = (0.1, 0.3)
MOST = 400  # steps
EVERY = 5  # steps from one look at the loss to the next
LOOKED_AT = 300  # images
RATES = ("100mbit", "1gbit")
CODES: dict[str, dict[str, Any] | None] = {
    "S-PP": None,
    "S-PP bf16": {"kind": "bf16"},
    "S-PP 4 bits": {"kind": "nearest", "bits": 4},
    "S-PP top 1 %": {"kind": "top-k", "k": 1, "block": 100},
    "S-PP top 10 %": {"kind": "top-k", "k": 1, "block": 10},
    "S-PP 2 bits": {"kind": "nearest", "bits": 2},
}
GRAPHS = ("directed-ring", "exponential")


def perceptron(width: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def split() -> tuple[Tensor, Tensor, list[Tensor]]:
    """All images and digits, and which of them each node has."""
    train, _ = read_digits(Path())
    x, y = torch.from_numpy(train.pixels).flatten(1) / 255, torch.from_numpy(train.labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    sorted_half = order[: len(y) // 2][y[order[: len(y) // 2]].argsort(stable=True)]
    parts = zip(sorted_half.chunk(NODES), order[len(y) // 2 :].chunk(NODES), strict=True)
    return x, y, [torch.cat(pair) for pair in parts]


def batch(mine: Tensor, node: int, t: int) -> Tensor:
    """What a node draws in a step."""
    draw = torch.Generator().manual_seed(1000 * t + node)
    return mine[torch.randint(len(mine), (BATCH,), generator=draw)]


def steps_of(graph: str | None, code: Any, lr: float, width: int, device: str, loss: float) -> int:
    """How many steps it takes to the loss; a graph of none is SGD on the mean gradient."""
    x, y, parts = split()
    models = [perceptron(width).to(device) for _ in range(NODES if graph else 1)]
    if graph:
        opt: Any = Decentralized(
            [m.parameters() for m in models], "push-pull", graph, lr, compress=code
        )
    else:
        opt = torch.optim.SGD(models[0].parameters(), lr)
    measure, far = nn.functional.cross_entropy, 10 * measured(models[:1], x, y, device)
    for t in range(MOST):
        opt.zero_grad()
        for node, part in enumerate(parts):
            which, model = batch(part, node, t), models[node % len(models)]
            share = 1 if graph else NODES
            (measure(model(x[which].to(device)), y[which].to(device)) / share).backward()
        opt.step()
        if t % EVERY == EVERY - 1:
            reached = measured(models, x, y, device)
            if reached <= loss:
                return t + 1
            if not reached < far:
                break
    return 0


@torch.no_grad()
def measured(models: list[nn.Module], x: Tensor, y: Tensor, device: str) -> float:
    x, y = x[:LOOKED_AT].to(device), y[:LOOKED_AT].to(device)
    return sum(float(nn.functional.cross_entropy(m(x), y)) for m in models) / len(models)


def ways(arguments: argparse.Namespace) -> Iterator[tuple[str, str | None, Any]]:
    yield "DDP", None, None
    for graph in arguments.graphs:
        for name in arguments.codes:
            yield f"{name}, {graph}", graph, CODES[name]


def count_steps(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, graph, code in ways(arguments):
        tried: dict[float, int] = {}
        for lr in arguments.sizes:
            tried[lr] = steps_of(graph, code, lr, arguments.width, arguments.device, arguments.loss)
            if not tried[lr] and any(tried.values()):
                break  # larger ones diverge too
        best = min((n, lr) for lr, n in tried.items() if n) if any(tried.values()) else (0, 0)
        found[name] = {"steps": best[0], "lr": best[1], "tried": tried}
        print(name, found[name], flush=True)
    return found


class Hosts:
    """Eight network namespaces on a bridge, their links slowed down."""

    def __init__(self, rate: str) -> None:
        self.rate, self.tag = rate, f"dg{os.getpid() % 10000}"
        self.names = [f"{self.tag}-{k}" for k in range(NODES)]

    def __enter__(self) -> "Hosts":
        ip("link", "add", f"{self.tag}b", "type", "bridge")
        ip("link", "set", f"{self.tag}b", "up")
        for k, name in enumerate(self.names):
            inside, outside = f"{self.tag}i{k}", f"{self.tag}o{k}"
            ip("netns", "add", name)
            ip("link", "add", inside, "type", "veth", "peer", "name", outside)
            ip("link", "set", outside, "master", f"{self.tag}b", "up")
            ip("link", "set", inside, "netns", name)
            ip("-n", name, "link", "set", inside, "name", "eth0")
            ip("-n", name, "addr", "add", f"10.78.0.{k + 1}/24", "dev", "eth0")
            for up in ("lo", "eth0"):
                ip("-n", name, "link", "set", up, "up")
            slow = ["root", "tbf", "rate", self.rate, "burst", "256kb", "latency", "200ms"]
            command(["tc", "-n", name, "qdisc", "add", "dev", "eth0", *slow])
            command(["tc", "qdisc", "add", "dev", outside, *slow])
        return self

    def __exit__(self, *_: object) -> None:
        for k, name in enumerate(self.names):  # links too: a namespace may linger
            subprocess.run(["ip", "link", "delete", f"{self.tag}o{k}"], check=False)
            subprocess.run(["ip", "netns", "delete", name], check=False)
        subprocess.run(["ip", "link", "delete", f"{self.tag}b"], check=False)


def ip(*words: str) -> None:
    command(["ip", *words])


def command(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


def measure_times(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a step, by way and rate."""
    found: dict[str, Any] = {}
    for rate in arguments.rates:
        with Hosts(rate) as hosts, tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "times.json"
            ranks = [
                subprocess.Popen(
                    [
                        *("ip", "netns", "exec", name, sys.executable, __file__, "rank"),
                        *("--width", str(arguments.width), "--out", str(target)),
                        *("--repeats", str(arguments.repeats), "--graphs", *arguments.graphs),
                        *("--codes", *arguments.codes),
                    ],
                    env=os.environ
                    | {"RANK": str(k), "WORLD_SIZE": str(NODES), "GLOO_SOCKET_IFNAME": "eth0"}
                    | {"MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29511"}
                    | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // NODES))},
                )
                for k, name in enumerate(hosts.names)
            ]
            try:
                codes = [rank.wait() for rank in ranks]
            finally:  # or a namespace would outlive an interrupt
                for rank in ranks:
                    rank.kill()
            if any(codes):
                raise SystemExit(f"ranks ended with {codes}")
            found[rate] = json.loads(target.read_text())
    return found


def rank_times(arguments: argparse.Namespace) -> None:
    """What one rank does: all ways, a few steps each; rank 0 writes the slowest rank's times."""
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), dict[str, Any]()
    x, y, parts = split()
    cases: list[tuple[str, str | None, Any]] = [("DDP", None, "float32"), ("DDP bf16", None, "")]
    cases += [(name, graph, code) for name, graph, code in ways(arguments) if graph]
    for name, graph, code in cases:
        model = perceptron(arguments.width)
        step, close = prepared(model, graph, code)
        seconds, worked = [], []
        for t in range(arguments.repeats + 1):
            which = batch(parts[rank], rank, t)
            dist.barrier()
            start, busy = time.perf_counter(), time.process_time()
            step(x[which], y[which])
            spent = time.perf_counter() - start, time.process_time() - busy
            took = torch.tensor(spent)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(float(took[0]))
            worked.append(float(took[1]))
        each = {"seconds": median(seconds[1:]), "cpu": median(worked[1:])}
        found[name] = each | {"all": seconds}
        if rank == 0:
            print(f"{name:34s} {each['seconds']:8.2f} s, {each['cpu']:8.2f} of a core", flush=True)
        close()
    if rank == 0:
        arguments.out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def in_bf16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Add gradients up in bfloat16, as PyTorch's own hook does where there is NCCL."""
    short = bucket.buffer().to(torch.bfloat16).div_(NODES)
    work = dist.all_reduce(short, async_op=True)
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


def prepared(
    model: nn.Module, graph: str | None, code: Any
) -> tuple[Callable[[Tensor, Tensor], None], Callable[[], None]]:
    """Return a step, and what ends it all."""
    opt: Any
    if graph is None:
        whole: nn.Module = DistributedDataParallel(model)
        if not code:
            whole.register_comm_hook(None, in_bf16)
        opt = torch.optim.SGD(model.parameters(), 0.01)
    else:
        whole, engine = model, processes(shared_memory=False, timeout=300.0)
        params = model.parameters()
        opt = Decentralized(params, "push-pull", graph, 0.01, compress=code, engine=engine)

    def step(x: Tensor, y: Tensor) -> None:
        opt.zero_grad()
        nn.functional.cross_entropy(whole(x), y).backward()
        opt.step()

    return step, getattr(opt, "close", lambda: None)


def show(found: dict[str, Any]) -> None:
    """Print time to the loss, by way and rate, where both parts are there."""
    if "steps" not in found:
        return
    for rate, times in found.get("times", {}).items():
        print(
            f"\n{rate}: steps to a loss of {found['loss']}, seconds of a step, minutes to the loss"
        )
        for name, each in times.items():
            steps = found["steps"].get(name.replace(" bf16", "") if name == "DDP bf16" else name)
            if steps is None or not steps["steps"]:
                continue
            seconds, count = each["seconds"], steps["steps"]
            print(
                f"{name:34s} γ {steps['lr']:<5g} {count:6d} {seconds:8.2f} "
                f"{count * seconds / 60:8.1f}"
            )


def ended(number: int, frame: object) -> None:
    """Leave by an exception, so that namespaces are taken down."""
    raise SystemExit(128 + number)


def main() -> None:
    signal.signal(signal.SIGTERM, ended)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["steps", "times", "table", "rank"])
    parser.add_argument("--width", type=int, default=3500, help="of the hidden layers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--loss", type=float, default=LOSS)
    parser.add_argument("--sizes", type=float, nargs="+", default=list(SIZES), help="step sizes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--codes", nargs="+", default=list(CODES), choices=CODES)
    parser.add_argument("--rates", nargs="+", default=list(RATES))
    parser.add_argument("--out", type=Path, default=Path("slow_links.json"))
    arguments = parser.parse_args()
    if arguments.part == "rank":
        rank_times(arguments)
        return
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if arguments.part == "steps":
        found |= {"steps": count_steps(arguments), "loss": arguments.loss}
    elif arguments.part == "times":
        if os.geteuid() != 0 or shutil.which("tc") is None:
            raise SystemExit("slowing links down needs root, ip and tc")
        found["times"] = measure_times(arguments)
    arguments.out.write_text(json.dumps(found, indent=1))
    show(found)


if __name__ == "__main__":
    main()
