"""Trial-wakes a second of R-FAST: digrad's event engine against a plain NumPy event loop.

    python benchmarks/events.py [--wakes 20000] [--threads 2] [--cpu]

Logistic regression with n = 20, p = 400, one sample per gradient, on the default clock. Both draw
their samples, both find out who wakes when; the plain loop does one wake at a time. Speeds are of
the best turn, ratios the median of all turns.
"""

import argparse
import heapq
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from digrad.algorithms import RFast
from digrad.clocks import Clock
from digrad.engines.events import EventEngine
from digrad.networks import Network, build
from digrad.problems import Logistic
from digrad.runs.events import AsynchronousRun
from digrad.runs.loop import few_threads
from digrad.runs.recursion import Trials
from digrad.runs.timing import MessageSizes, asynchronous_timing

N, P, LR = 20, 400, 0.01
seconds = perf_counter


def plain(problem: Logistic, net: Network, clock: Clock, wakes: int) -> float:
    """Seconds of a NumPy event loop for so many wakes of one trial."""
    z, rho_weight = problem._z.numpy().reshape(N, -1, P), np.float32(2 * problem.rho)
    R, C = (W.toarray().astype(np.float32) for W in (net.R, net.C))
    into = [[j for j in range(N) if j != i and (R[i, j] or C[i, j])] for i in range(N)]
    out = [[i for i in range(N) if i != j and (R[i, j] or C[i, j])] for j in range(N)]
    draw = np.random.default_rng(0)
    x, g, tracker, total = (np.zeros((N, P), np.float32) for _ in range(4))
    model = np.zeros((N, P), np.float32)
    heard: dict[Any, Any] = {(j, i): x[j].copy() for i in range(N) for j in into[i]}
    got: dict[Any, Any] = {link: np.zeros(P, np.float32) for link in heard}
    used: dict[Any, Any] = {link: np.zeros(P, np.float32) for link in heard}

    def computing() -> float:
        return clock.compute * (1 + clock.spread * draw.exponential())

    start = seconds()
    queue: list[Any] = [(computing(), 1, i, i, None) for i in range(N)]
    heapq.heapify(queue)
    order, done = N, 0
    while done < wakes:
        now, kind, i, _, what = heapq.heappop(queue)
        if kind == 0:
            link, heard[link], got[link] = what
            continue
        sample = z[i, draw.integers(z.shape[1])]
        point = x[i]
        new = sample * (1 / (1 + np.exp(-(sample @ point))))
        new += rho_weight * point / np.square(1 + point * point)
        whole = tracker[i] + new - g[i]
        for j in into[i]:
            whole += C[i, j] * (got[j, i] - used[j, i])
            used[j, i] = got[j, i]
        g[i] = new
        tracker[i] = C[i, i] * whole
        total[i] += whole
        model[i] = point - LR * tracker[i]
        sent = model[i].copy(), total[i].copy()
        for k in out[i]:
            order += 1
            heapq.heappush(queue, (now + clock.latency, 0, k, order, ((i, k), *sent)))
        mixed = R[i, i] * model[i]
        for j in into[i]:
            mixed += R[i, j] * heard[j, i]
        x[i] = mixed
        order, done = order + 1, done + 1
        heapq.heappush(queue, (now + computing(), 1, i, order, None))
    return seconds() - start


def engine(problem: Logistic, net: Network, clock: Clock, trials: int) -> AsynchronousRun:
    """Return the event engine with so many trials."""
    method = RFast()
    calendar = asynchronous_timing(method, net, clock, MessageSizes(4 * P, 4)).calendar
    events = EventEngine(method, net, calendar)  # type: ignore[arg-type]
    some = Trials(list(range(trials)), [LR] * trials)
    return AsynchronousRun(method, events, problem, some, lambda t: 1.0)


def played(loop: AsynchronousRun, rounds: int) -> float:
    """Seconds of the event engine for so many rounds."""
    with few_threads(len(loop.trials) * N * P):  # as ``digrad run`` does
        moment = loop.advance(loop.start(), 10)  # what is made once is made
        start = seconds()
        loop.advance(moment, 10 + rounds)
        return seconds() - start


def main() -> None:
    """Print one line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wakes", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--cpu", action="store_true", help="time of the processor, on busy machines"
    )
    parser.add_argument("--network", default="exponential")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    global seconds  # one clock for all
    seconds = process_time if asked.cpu else perf_counter
    problem, net, clock = Logistic.generate(N, P, 400), build(asked.network, N), Clock()
    loops = {trials: engine(problem, net, clock, trials) for trials in (1, 36)}
    # Turn by turn, so that a busy machine is as busy for one as for the other.
    turns = [turn(loops, problem, net, clock, asked.wakes) for _ in range(asked.times)]
    plainly = min(each[0] for each in turns)
    print(f"plain NumPy loop, 1 trial            {1 / plainly:>10,.0f} trial-wakes/s")
    for k, trials in enumerate(loops, 1):
        best = min(each[k] for each in turns)
        ratio = median(each[0] / each[k] for each in turns)
        name = f"event engine, {trials:>2} trials          "
        print(f"{name}     {1 / best:>10,.0f} trial-wakes/s {ratio:6.2f} x")


def turn(loops: Any, problem: Logistic, net: Network, clock: Clock, wakes: int) -> list[float]:
    """Return seconds of a trial-wake: of the plain loop, then of each engine."""
    took = [plain(problem, net, clock, wakes) / wakes]
    for trials, loop in loops.items():
        rounds = max(1, wakes // N // (1 if trials == 1 else 4))
        took.append(played(loop, rounds) / (trials * rounds * N))
    return took


if __name__ == "__main__":
    main()
