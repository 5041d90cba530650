"""Microseconds of one S-PP step of the paper's CNN, batch 8, for all nodes together.

Against one model per node in a Python loop, measured in the same run, on a CPU in turns; with
CUDA, also sweeps and many nodes. Images are random: values do not matter for speed. Run with
``python benchmarks/deep.py [--profile]``. Nothing here asserts a time.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn import functional

from digrad.algorithms import PushPull
from digrad.engines.simulator import Simulator
from digrad.models import CNN
from digrad.networks import erdos_renyi, weigh
from digrad.problems import ModuleProblem
from digrad.runs.recursion import EAGER, Pace, Recursion, Trials

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PER_NODE, BATCH = 500, 8


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def data(nodes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (nodes, PER_NODE, 1, 28, 28), dtype=torch.uint8)
    return [(pixels, torch.randint(0, 10, (PER_NODE,))) for pixels in images]


def loop(nodes: int) -> Callable[[int], None]:
    """What anybody would write: a model for each node, one after the other, then two products."""
    torch.manual_seed(0)
    net = weigh(erdos_renyi(nodes, 0.5))
    R, C = (torch.from_numpy(W.toarray()).float().to(DEVICE) for W in (net.R, net.C))
    models = [CNN().to(DEVICE) for _ in range(nodes)]
    held = [(x.to(DEVICE), y.to(DEVICE)) for x, y in data(nodes)]

    def gradients() -> torch.Tensor:
        rows = []
        for model, (pixels, labels) in zip(models, held, strict=True):
            k = torch.randint(0, PER_NODE, (BATCH,), device=DEVICE)
            inputs = pixels[k].float() / 255
            loss = functional.cross_entropy(model(inputs), labels[k])
            parts = torch.autograd.grad(loss, list(model.parameters()))
            rows.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(rows)

    def put(X: torch.Tensor) -> None:
        for model, row in zip(models, X, strict=True):
            torch.nn.utils.vector_to_parameters(row, model.parameters())

    X = torch.stack([torch.nn.utils.parameters_to_vector(m.parameters()).detach() for m in models])
    G = gradients()
    Y = G

    def advance(steps: int) -> None:
        nonlocal X, Y, G
        for _ in range(steps):
            X = R @ (X - 0.001 * Y)
            put(X)
            after = gradients()
            Y, G = C @ (Y + after - G), after

    return advance


def seconds(advance: Callable[[int], object], steps: int) -> float:
    wait()
    begin = time.perf_counter()
    advance(steps)
    wait()
    return time.perf_counter() - begin


PACES = {"eager": EAGER, "recorded": Pace("recorded"), "compiled": Pace("recorded", "compiled")}


def recursion(nodes: int, trials: int, pace: Pace) -> Recursion:
    torch.compiler.reset()
    net = weigh(erdos_renyi(nodes, 0.5 if nodes <= 100 else 0.1))
    torch.manual_seed(0)
    problem = ModuleProblem(
        CNN(), data(nodes), batch=BATCH, prepare=lambda x: x.float() / 255, device=DEVICE
    )
    runs = Trials(list(range(trials)), [0.001] * trials)
    return Recursion(PushPull(), Simulator(net, device=DEVICE), problem, runs, lambda t: 1.0, pace)


def on_a_cpu() -> None:
    """In turns, as a shared machine is faster at one time than at another."""
    naive = loop(20)
    naive(3)
    for trials in (1, 3):
        work = recursion(20, trials, Pace("single", "compiled"))
        moment = work.advance(work.start(), 8)
        pairs = []
        for _ in range(9):
            ours = seconds(lambda n: work.advance(moment, moment.t + n), 32) / 32  # noqa: B023
            pairs.append((seconds(naive, 12) / 12, ours))
        ratio = median(trials * theirs / ours for theirs, ours in pairs)
        theirs, ours = (median(side) * 1e6 for side in zip(*pairs, strict=True))
        print(
            f"n = 20, {trials} trial{'s' * (trials > 1)}: loop {trials * theirs:.0f} us a step, "
            f"all nodes at once {ours:.0f}: {ratio:.1f} times as fast"
        )


def on_a_gpu(
    nodes: int, trials: int, steps: int, pace: str, *, profile: bool = False
) -> tuple[float, float]:
    """Microseconds of a step of all trials, and seconds until the first ones were done."""
    work = recursion(nodes, trials, PACES[pace])
    begin = time.perf_counter()
    moment = work.advance(work.start(), 16)
    wait()
    first = time.perf_counter() - begin
    took = seconds(lambda n: work.advance(moment, moment.t + n), steps) / steps * 1e6
    if profile:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as record

        with record(activities=[ProfilerActivity.CUDA]) as seen:
            work.advance(moment, moment.t + 64)
            wait()
        rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
        total = sum(row.self_device_time_total for row in rows)
        print(f"  where {total / 64:.0f} us a step go:")
        for row in rows[:24]:
            each = row.self_device_time_total / 64
            print(f"  {each:8.1f} us {row.count / 64:6.1f} x {row.key[:90]}")
    return took, first


def main() -> None:
    profile = "--profile" in sys.argv
    print(f"torch {torch.__version__}, {DEVICE}, {torch.get_num_threads()} threads")
    if DEVICE == "cpu":
        on_a_cpu()
        return
    naive = loop(20)
    naive(3)
    base = seconds(naive, 20) / 20 * 1e6
    print(f"{'one model per node in a loop, n = 20':44} {base:10.0f} us a step")
    for nodes, trials, steps, pace in (
        (20, 1, 20, "eager"),
        *((20, trials, 800, pace) for trials in (1, 3, 18) for pace in ("recorded", "compiled")),
        (1000, 1, 40, "compiled"),
    ):
        name = f"{pace}, n = {nodes}, {trials} trials"
        show = profile and pace != "eager" and nodes == 20 and trials != 3
        took, first = on_a_gpu(nodes, trials, steps, pace, profile=show)
        per = base * trials * nodes / 20 / took
        print(
            f"{name:44} {took:10.0f} us a step, {took / trials:8.1f} per trial, "
            f"{per:6.1f} x the loop, first 16 steps {first:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
