"""How often to measure: so that it costs at most a fifth of a run, by a model of both costs.

The model knows sizes alone (data, module, network, metrics, trials), never a clock: an experiment
is recorded at the same steps on every machine, so that runs can be compared and resumed.
``benchmarks/measuring.py`` puts it beside measured times.
"""

from collections.abc import Collection
from math import ceil
from typing import NamedTuple

from digrad.networks.registry import AnyNetwork
from digrad.problems.base import CostAware, EvaluationCost, Problem

SHARE = 0.2  # of a run that measuring may take
RECORDS = 100  # that are wanted, where they cost little
LEAST_RECORDS = 10  # or a curve is none
LITTLE = 1.0  # seconds that all records of a job may take, whatever their share
# A machine of no particular make, for one core of which these are about right: floating
# operations and numbers read or written in a second, and seconds that a call of a kernel takes.
OPERATIONS, NUMBERS, CALL = 1.2e10, 5e9, 1e-5
# Beside what the problem does: vectors that are read or written for each node, calls.
STEP_VECTORS, STEP_CALLS = 4, 10
RECORD_VECTORS, RECORD_CALLS = 4, 20


class Cost(NamedTuple):
    """Modelled seconds."""

    step: float
    record: float


def cost(problem: Problem, net: AnyNetwork, metrics: Collection[str], trials: int) -> Cost | None:
    """Return the cost of a step and of a record of some trials; none if the problem has none."""
    if not isinstance(problem, CostAware):
        return None
    step, record = problem.efforts(metrics)
    links = (len(net.pull_graph.edges) + len(net.push_graph.edges)) / 2
    mixed = problem.dim * (STEP_VECTORS * problem.nodes + links)
    read = problem.dim * RECORD_VECTORS * problem.nodes
    return Cost(
        _seconds(step, trials) + CALL * STEP_CALLS + trials * mixed / NUMBERS,
        _seconds(record, trials) + CALL * RECORD_CALLS + trials * read / NUMBERS,
    )


def _seconds(effort: EvaluationCost, trials: int) -> float:
    each = effort.operations / OPERATIONS + effort.numbers / NUMBERS + effort.calls * CALL
    return trials * each + effort.shared_numbers / NUMBERS + effort.shared_calls * CALL


def interval(steps: int, costs: Collection[Cost | None]) -> int:
    """Return the steps between records: a hundredth of the run, more if records are dear.

    >>> interval(1500, [Cost(1e-3, 1e-3)]), interval(1500, [Cost(1e-3, 2e-2)])
    (15, 80)
    """
    often, known = max(1, steps // RECORDS), [one for one in costs if one is not None]
    if not known or max(steps // often * one.record for one in known) <= LITTLE:
        return often
    step, record = sum(one.step for one in known), sum(one.record for one in known)
    fair = ceil(record * (1 - SHARE) / (SHARE * step))
    return max(often, min(fair, steps // LEAST_RECORDS))
