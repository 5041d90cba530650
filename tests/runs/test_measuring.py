"""How often a run is measured: by a model of sizes, the same on every machine."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from digrad.problems import Logistic, ModuleProblem
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.runs.measuring import Cost, cost, interval
from digrad.runs.planning import Overrides, plan

# Ratios of a record to a step, in processor time of one core (``benchmarks/measuring.py``):
# (dim, samples, batch, trials). The model must not be off by more than a factor of two.
MEASURED = {
    (400, 400, 1, 1): 17.3,
    (400, 400, 1, 12): 24.7,
    (400, 400, 1, 48): 14.1,
    (400, 400, 8, 6): 12.8,
    (100, 200, 1, 6): 6.5,
    (100, 4000, 1, 6): 136.9,
    (2000, 200, 1, 4): 25.1,
    (50, 2000, 16, 12): 16.7,
    (20, 100, 1, 15): 4.8,
    (400, 4000, 32, 4): 38.8,
}
METRICS = ("loss", "gradient_norm", "accuracy")


def experiment(**keys: object) -> Experiment:
    made = Experiment(
        networks=(NetworkSpec("exponential", n=20),),
        algorithms=(AlgorithmSpec("push-pull"),),
        problem=KindSpec("logistic", {"dim": 20, "samples": 50}),
        steps=500,
        lr=(0.05,),
    )
    return replace(made, **keys)


@pytest.mark.parametrize("sizes", MEASURED)
def test_the_model_is_right_within_a_factor_of_two(sizes: tuple[int, int, int, int]) -> None:
    dim, samples, batch, trials = sizes
    features, labels = torch.zeros(samples, dim), torch.ones(samples)
    problem = Logistic([features] * 20, [labels] * 20, batch=batch)
    net = plan(experiment()).jobs[0].net
    modelled = cost(problem, net, METRICS, trials)
    ratio = modelled.record / modelled.step
    assert 0.5 <= ratio / MEASURED[sizes] <= 2


@pytest.mark.parametrize(
    ("steps", "costs", "every"),
    [
        (1500, [Cost(1e-3, 1e-3)], 15),  # little: a hundredth
        (50, [Cost(1e-3, 1e-3)], 1),
        (1500, [Cost(1e-5, 1e-3)], 15),  # dear, but a tenth of a second altogether
        (1500, [Cost(1e-3, 2e-2)], 80),  # a fifth
        (1500, [Cost(1e-3, 1.0)], 150),  # ten records there must be
        (1500, [None], 15),
    ],
)
def test_measuring_takes_a_fifth_at_most(steps: int, costs: list[Cost | None], every: int) -> None:
    assert interval(steps, costs) == every


def test_a_large_set_is_measured_less_often_and_a_key_overrules() -> None:
    small = plan(experiment())
    assert small.every == 5
    features, labels = torch.zeros(1000, 100), torch.ones(1000)
    given = Overrides(problem=Logistic([features] * 20, [labels] * 20))
    dear = experiment(steps=3000, seeds=tuple(range(40)))
    every = plan(dear, given=given).every
    assert 60 < every < 300
    assert plan(replace(dear, metrics_every=7), given=given).every == 7
    assert plan(replace(dear, metrics=("loss",)), given=given).every < every


def test_passes_of_a_module_are_counted() -> None:
    data = [(torch.zeros(30, 6), torch.zeros(30, dtype=torch.long)) for _ in range(4)]
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    test = torch.zeros(50, 6), torch.zeros(50, dtype=torch.long)
    problem = ModuleProblem(module, data, test=test, batch=2, node_samples=10)
    one = 2 * (6 * 5 + 5 * 3)
    one = max(one, 2 * problem.dim)
    step, record = problem.efforts(["loss", "test_loss", "worst_accuracy"])
    assert step.operations == 3 * one * 4 * 2
    assert record.operations == one * (120 + 50 + 4 * 10)
    assert problem.efforts(["gradient_norm"])[1].operations == one * 3 * 120


def test_a_problem_that_cannot_be_counted_is_measured_a_hundred_times() -> None:
    made = plan(experiment(problem=KindSpec("quadratic", {"dim": 3}), steps=400))
    assert made.every == 4
