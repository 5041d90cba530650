"""What a record costs beside a step: measured here, and as the model of ``runs.measuring`` has it.

The default interval between records follows from the model's ratio of the two, which has to be
right within a factor of two where records are dear. Times are those of the processor, of which a
busy machine takes nothing away. Nothing here asserts one.

    python benchmarks/measuring.py [--images]
"""

import sys
from dataclasses import replace
from time import process_time

import torch

from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.runs.execution import Execution
from digrad.runs.loop import few_threads
from digrad.runs.measuring import cost
from digrad.runs.planning import plan
from digrad.runs.recursion import RunPosition

STEPS = 100  # timed together: samples are drawn for many steps at a time


def logistic(dim: int, samples: int, batch: int, trials: int, nodes: int = 20) -> Experiment:
    return Experiment(
        networks=(NetworkSpec("exponential", n=nodes),),
        algorithms=(AlgorithmSpec("push-pull"),),
        problem=KindSpec("logistic", {"dim": dim, "samples": samples, "batch": batch}),
        steps=500,
        lr=(0.05,),
        seeds=tuple(range(trials)),
        trials_at_once=trials,
        compile="never",
    )


def images(model: str, nodes: int, trials: int) -> Experiment:
    kind = KindSpec("images", {"data": "digits", "model": model})
    return replace(logistic(1, 1, 1, trials, nodes), problem=kind)


def best_time(call, seconds: float = 1.0) -> float:
    """The shortest of some times: others are those of a machine that had something else to do."""
    call()
    times, end = [], process_time() + seconds
    while process_time() < end or len(times) < 3:
        begin = process_time()
        call()
        times.append(process_time() - begin)
    return min(times)


def row(name: str, experiment: Experiment) -> str:
    work = plan(experiment)
    job = work.jobs[0]
    loop = Execution().make_loop(job)
    start = loop.start()
    numbers = len(job.trials) * job.problem.nodes * job.problem.dim
    with few_threads(numbers):
        step = best_time(lambda: loop.advance(start, STEPS)) / STEPS
        record = best_time(lambda: job.evaluator.read(RunPosition(0, start.state)))
    model = cost(job.problem, job.net, job.evaluator.wanted, len(job.trials))
    ratios = record / step, model.record / model.step
    times = f"{1e3 * step:9.3f} {1e3 * record:9.2f} {ratios[0]:9.1f} {ratios[1]:9.1f}"
    return f"{name:42} {times} {ratios[1] / ratios[0]:7.2f} {work.every:7d}"


def main() -> None:
    torch.set_num_threads(1)
    print(
        f"{'':42} {'step ms':>9} {'record ms':>9} {'ratio':>9} {'modelled':>9} {'off by':>7} every"
    )
    for dim, samples, batch, trials in (
        (400, 400, 1, 1),
        (400, 400, 1, 12),
        (400, 400, 8, 6),
        (100, 200, 1, 6),
        (100, 4000, 1, 6),
        (2000, 200, 1, 4),
        (50, 2000, 16, 12),
        (400, 400, 1, 48),
        (20, 100, 1, 15),
        (400, 4000, 32, 4),
    ):
        name = f"logistic {dim} x {samples}, batch {batch}, {trials} trials"
        print(row(name, logistic(dim, samples, batch, trials)), flush=True)
    if "--images" in sys.argv:
        for trials in (1, 3):
            print(
                row(f"digits, mlp, 10 nodes, {trials} trials", images("mlp", 10, trials)),
                flush=True,
            )


if __name__ == "__main__":
    main()
