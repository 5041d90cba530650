"""Trial-steps per second of the simulator, as ratios to a naive NumPy loop in the same run.

The work is the paper's: n = 20, p = 400, J = 400, nonconvex logistic regression, S-PP. Run with
``make bench``. Nothing here asserts a time.
"""

import sys
import time
from itertools import product
from statistics import median

import numpy as np
import torch

from digrad.algorithms import PushPull
from digrad.engines.changing import simulator
from digrad.engines.simulator import Simulator
from digrad.networks import (
    Digraph,
    Network,
    build_any,
    directed_ring,
    erdos_renyi,
    one_peer_exponential,
    random_regular,
    weigh,
)
from digrad.problems import Logistic, Quadratic
from digrad.runs.recursion import EAGER, Recursion, StepMode, Trials

NODES, DIM, SAMPLES, RHO = 20, 400, 400, 0.01


def naive(net: Network, seconds: float, full: bool) -> float:
    """Steps per second of what anybody would write in ten minutes, in float64."""
    rng = np.random.default_rng(0)
    R, C, rows = net.R.toarray(), net.C.toarray(), np.arange(NODES)
    H = rng.standard_normal((NODES, SAMPLES, DIM))
    y = np.where(rng.random((NODES, SAMPLES)) < 0.5, 1.0, -1.0)

    def gradient(X):
        if full:
            margin = y * np.einsum("njp,np->nj", H, X)
            G = -np.einsum("nj,njp->np", y / (1 + np.exp(margin)), H) / SAMPLES
        else:
            j = rng.integers(0, SAMPLES, NODES)
            h, label = H[rows, j], y[rows, j]
            G = -(label / (1 + np.exp(label * (h * X).sum(1))))[:, None] * h
        return G + 2 * RHO * X / (1 + X**2) ** 2

    X = np.zeros((NODES, DIM))
    G = gradient(X)
    Y, steps, begin = G, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for _ in range(20):
            X = R @ (X - 0.01 * Y)
            after = gradient(X)
            Y, G = C @ (Y + after - G), after
        steps += 20
    return steps / (time.perf_counter() - begin)


def simulated(
    net: Network, seconds: float, trials: int, *, full: bool, compiled: bool, device: str = "cpu"
) -> float:
    """Trial-steps per second of a Recursion, after its first steps."""
    batch = None if full else 1
    problem = Logistic.generate(NODES, DIM, SAMPLES, rho=RHO, batch=batch, device=device)
    runs = Trials(list(range(trials)), [0.01] * trials)
    torch.compiler.reset()
    engine = Simulator(net, device=device)
    several = StepMode("recorded" if device == "cuda" else "fused")
    mode = several if compiled else EAGER
    work = Recursion(PushPull(), engine, problem, runs, lambda t: 1.0, mode)
    moment = work.advance(work.start(), 64)
    begin, first, stretch = time.perf_counter(), moment.t, 16 if full else 256
    while time.perf_counter() - begin < seconds:
        moment = work.advance(moment, moment.t + stretch)
        _wait(device)
    return (moment.t - first) * trials / (time.perf_counter() - begin)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def sparse_cost(nodes: int, degree: int, dim: int = 1000) -> float:
    """Milliseconds per step of S-PP on a sparse digraph."""
    graph: Digraph = random_regular(nodes, degree)
    problem = Quadratic.generate(nodes, dim, rotate=False, sigma=0.0)
    work = Recursion(
        PushPull(), Simulator(weigh(graph)), problem, Trials([0], [0.01]), lambda t: 1.0
    )
    moment = work.advance(work.start(), 2)
    begin = time.perf_counter()
    work.advance(moment, 12)
    return (time.perf_counter() - begin) * 100


def changing_cost(seconds: float, *, compiled: bool, device: str = "cpu") -> dict[str, float]:
    """Time of a step on networks of degree 1 that change, beside the ring, which does not.

    They take turns, so that what else the machine does meets all of them; medians of the turns'
    ratios.
    """
    nets = {
        "fixed": weigh(directed_ring(NODES)),
        "one peer": one_peer_exponential(NODES),
        "keep": build_any("directed-ring", NODES, keep=0.9),
        "returned": build_any("directed-ring", NODES, loss={"share": 0.1, "kind": "returned"}),
    }
    problem = Logistic.generate(NODES, DIM, SAMPLES, rho=RHO, batch=1, device=device)
    several: StepMode = StepMode("recorded" if device == "cuda" else "fused")
    runs, mode = Trials(list(range(36)), [0.01] * 36), several if compiled else EAGER
    works, moments = {}, {}
    torch.compiler.reset()
    for name, net in nets.items():
        engine = simulator(net, device=device)
        works[name] = Recursion(PushPull(), engine, problem, runs, lambda t: 1.0, mode)
        moments[name] = works[name].advance(works[name].start(), 256)
    times: dict[str, list[float]] = {name: [] for name in nets}
    begin = time.perf_counter()
    while time.perf_counter() - begin < 4 * seconds or len(times["fixed"]) < 9:
        for name, work in works.items():
            start = time.perf_counter()
            moments[name] = work.advance(moments[name], moments[name].t + 256)
            _wait(device)
            times[name].append(time.perf_counter() - start)
    fixed = times["fixed"]
    return {
        name: median(a / b for a, b in zip(each, fixed, strict=True))
        for name, each in times.items()
    }


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    net = weigh(erdos_renyi(NODES, 0.5))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for full in (False, True):
        base = naive(net, seconds, full)
        kind = "full gradients" if full else "minibatch 1"
        print(f"{kind:16s} naive NumPy loop, float64        {base:10,.0f} steps/s")
        for trials, threads in ((1, 1), (36, torch.get_num_threads())):
            for compiled in (False, True):
                before = torch.get_num_threads()
                torch.set_num_threads(threads)
                rate = simulated(net, seconds, trials, full=full, compiled=compiled)
                torch.set_num_threads(before)
                how = "compiled" if compiled else "eager"
                what = f"{trials} trial{'s' * (trials > 1)}, {how}, {threads} thread(s)"
                print(f"{kind:16s} {what:30s} {rate:12,.0f} trial-steps/s  x {rate / base:.2f}")
    if torch.cuda.is_available():
        for trials, compiled in ((1, False), (36, False), (360, False), (36, True), (360, True)):
            rate = simulated(net, seconds, trials, full=False, compiled=compiled, device="cuda")
            how = "compiled" if compiled else "eager"
            print(f"minibatch 1      {trials} trials, {how}, CUDA: {rate:,.0f} trial-steps/s")
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    for device, compiled in product(devices, (False, True)):
        found = changing_cost(seconds, compiled=compiled, device=device)
        how = "compiled" if compiled else "eager"
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
        print(f"changing links, {device}, {how}, times a fixed network's step: {shown}")
    for nodes, degree in ((1000, 5), (1000, 10), (1000, 20), (2000, 10)):
        cost = sparse_cost(nodes, degree)
        print(f"n = {nodes}, {degree} links a node, p = 1000: {cost:.1f} ms a step")


if __name__ == "__main__":
    main()
