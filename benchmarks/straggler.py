"""Seconds to a loss on 8 real processes, one of them five times slower: S-PP, and R-FAST beside it.

Run with ``python benchmarks/straggler.py [SECONDS]``, the time of a gradient (0.1). A gradient is
computed and then slept over, so that eight processes need no cores of their own. S-PP waits for
its neighbours, R-FAST for nobody; both go over the links of peers, encrypted. The clock predicts
the times with the same gradients, and each method takes the step that is best there, of a grid.
The loss is that of the mean of the nodes' newest models; it is reached when it stays below.
"""

import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import digrad as dg
from digrad.algorithms.robust import RFast
from digrad.base.counters import Sampler
from digrad.engines.event_state import StepSizes
from digrad.networks import build
from digrad.optim import Decentralized
from digrad.problems import Quadratic
from digrad.theory.cycles import root_vectors
from digrad_peers.async_peer import AsyncPeer
from digrad_peers.local import key_file, local_run
from digrad_peers.membership import load_membership
from digrad_peers.participation import peer
from digrad_peers.session import Session

N, SLOWER, ROUNDS = 8, 5.0, 400
TARGET = 0.02  # of the gap at the start
GRID = tuple(0.05 * 1.4**k for k in range(12))
METHODS = {"push-pull": "S-PP", "r-fast": "R-FAST"}


def problem() -> Quadratic:
    return Quadratic.generate(N, 10, condition=10.0, sigma=0.5, dtype=torch.float64)


def gradient(task: Quadratic, k: int, t: int, x: torch.Tensor, seconds: float) -> torch.Tensor:
    """Node k's gradient number t, which takes its time."""
    began = time.monotonic()
    sampler = Sampler(torch.tensor([0]), torch.tensor([k]))
    (drawn,) = task.sample(sampler, range(t, t + 1))
    g = task.gradient(x.reshape(1, 1, -1), drawn, slice(k, k + 1)).reshape(-1)
    time.sleep(max(0.0, seconds * (SLOWER if k == 0 else 1.0) - (time.monotonic() - began)))
    return g


def work(
    k: int, folder: Path, method: str, lr: float, seconds: float, lasts: float, out: Any
) -> None:
    """One node; what it puts into ``out`` is when it had which model."""
    torch.set_num_threads(1)
    task, name, path = problem(), f"n{k}", list[Any]()
    x = torch.nn.Parameter(torch.zeros(10, dtype=torch.float64))
    if method == "push-pull":
        opt = Decentralized([x], method, lr=lr, engine=peer(folder / "peers.toml", node=name))
        began = time.monotonic()
        while opt.t * SLOWER * seconds < lasts:  # all take the same number of steps
            path.append((time.monotonic() - began, x.detach().clone()))
            x.grad = gradient(task, k, opt.t, x.detach(), seconds)
            opt.step()
        opt.close()
    else:
        membership = load_membership(folder / "peers.toml")
        session = Session(membership, name, key_file(folder, name))
        engine = session.join(0, {}, dtype=torch.float64)
        net = membership.graph
        scaled = torch.tensor([lr / root_vectors(net).n_pi], dtype=torch.float64)
        steps = StepSizes(scaled, lambda t: 1.0)
        node = AsyncPeer(RFast(), net, k, engine.links, x.detach(), steps)
        began = time.monotonic()
        while (now := time.monotonic() - began) < lasts:
            path.append((now, node.point.clone()))
            node.step(lambda at: gradient(task, k, node.count, at, seconds))
    out.put((k, [(t, point.tolist()) for t, point in path]))
    time.sleep(2.0)  # the others may still wait for what this node has sent


def measured(method: str, lr: float, seconds: float, lasts: float) -> float:
    """Return after how many seconds eight processes reach the loss."""
    with tempfile.TemporaryDirectory() as here:
        names = [f"n{k}" for k in range(N)]
        options = {"timeout": 120.0, "start": 600.0}
        local_run(Path(here), names, {"topology": "exponential"}, hub=False, **options)
        context = get_context("spawn")
        out = context.Queue()
        words = [(k, Path(here), method, lr, seconds, lasts, out) for k in range(N)]
        made = [context.Process(target=work, args=each, daemon=True) for each in words]
        for process in made:
            process.start()
        paths = dict(out.get(timeout=1200) for _ in made)
        for process in made:
            process.join()
    times = np.linspace(0, lasts, 2000)
    means = np.mean([_at(paths[k], times) for k in range(N)], axis=0)
    return reached(times, gaps(torch.from_numpy(means)))


def _at(path: list[Any], times: Any) -> Any:
    """A node's newest model at some times."""
    known = np.searchsorted([t for t, _ in path], times, side="right") - 1
    return np.array([x for _, x in path])[np.maximum(known, 0)]


def gaps(x: torch.Tensor) -> Any:
    task = problem()
    least = task.loss(task.optimum().unsqueeze(0))
    return ((task.loss(x) - least) / (task.loss(torch.zeros_like(x[:1])) - least)).numpy()


def reached(times: Any, gap: Any) -> float:
    """When the gap has come below the target for good; infinity if never."""
    above = np.flatnonzero(gap > TARGET)
    return float(times[above[-1] + 1]) if above[-1] + 1 < len(times) else np.inf


def predicted(method: str, seconds: float) -> tuple[float, float]:
    """Return the time by the clock, and the step with which it is least."""
    clock = dg.clock(compute=seconds, straggler=SLOWER, distribution="constant", latency=0.0)
    net, options = build("exponential", N), {"dtype": "float64", "compile": "never"}
    options |= {"lr": GRID, "steps": ROUNDS, "every": 1, "clock": clock, "progress": False}
    run = dg.simulate(problem(), net, method, **options)
    gap, times = run["gap"].to_numpy(), run["time"].to_numpy()
    each = [reached(times[:, k], gap[:, k] / gap[0, k]) for k in range(len(GRID))]
    return min(zip(each, GRID, strict=True))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    print(f"a gradient takes {seconds:g} s, of one node {SLOWER * seconds:g} s")
    print("method   best step  predicted  measured")
    times = {}
    for method, name in METHODS.items():
        guess, lr = predicted(method, seconds)
        times[method] = guess, measured(method, lr, seconds, 2 * guess + 2)
        print(f"{name:8}{lr:10.3f}{guess:9.1f} s{times[method][1]:8.1f} s", flush=True)
    factors = [times["push-pull"][k] / times["r-fast"][k] for k in (0, 1)]
    print(f"R-FAST is sooner by {factors[0]:.2f} (predicted), {factors[1]:.2f} (measured)")


if __name__ == "__main__":
    main()
