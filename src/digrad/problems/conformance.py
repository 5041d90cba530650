"""Does a problem keep its contract? Read ``CHECKS`` first.

All checks are at a few points near the start, of a few nodes, trials and steps; a problem is
held to the arithmetic of its own number type.
"""

from typing import Any

import torch
from torch import Tensor

from digrad.base.check_results import Check, CheckResult, FailedCheckError, run_checks
from digrad.base.counters import Sampler
from digrad.problems.base import Measured, Problem, own_metrics

SEEDS = (0, 1)
DRAWS = 400  # steps whose samples are averaged
DEVIATIONS = 7.0  # standard errors that a mean may be off: once in 10¹¹ numbers by chance
DIRECTIONS = 5


def _sampler(problem: Problem, rows: slice | None = None) -> Sampler:
    device = problem.start().device
    nodes = torch.arange(problem.nodes, device=device)
    return Sampler(torch.tensor(SEEDS, device=device), nodes if rows is None else nodes[rows])


def _points(problem: Problem) -> Tensor:
    """Points for each trial and node, (trials, nodes, dim), near the start and all different."""
    start = problem.start()
    made = torch.Generator().manual_seed(0)
    shape = len(SEEDS), problem.nodes, problem.dim
    return start + 0.1 * torch.randn(shape, generator=made, dtype=torch.float64).to(start)


def _loose(problem: Problem) -> float:
    """How far sums in another order may be apart, relatively."""
    return 1e-9 if problem.start().dtype == torch.float64 else 1e-3


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) if a.numel() else 0.0


def check_shapes(problem: Problem) -> None:
    """Shapes and number types are those of the contract."""
    start, x = problem.start(), _points(problem)
    rows, dim = slice(0, problem.nodes), problem.dim
    sample = problem.sample(_sampler(problem), range(3))
    found = {
        "start()": (start, (dim,)),
        "sample() on its first three axes": (sample, (3, len(SEEDS), problem.nodes)),
        "gradient()": (problem.gradient(x, sample[0], rows), tuple(x.shape)),
        "loss() of one point for each trial": (problem.loss(x[:, 0]), (len(SEEDS),)),
        "full_gradient()": (problem.full_gradient(x[:, 0]), (len(SEEDS), dim)),
    }
    for what, (value, shape) in found.items():
        if tuple(value.shape[: len(shape)]) != shape:
            raise FailedCheckError(
                f"{what} has shape {tuple(value.shape)}, not {shape}",
                f"there are {problem.nodes} nodes, {len(SEEDS)} trials and {dim} numbers",
            )
        if "sample" not in what and value.dtype != start.dtype:
            raise FailedCheckError(
                f"{what} is of {value.dtype}, start() of {start.dtype}", "use one type throughout"
            )


def check_loss(problem: Problem) -> None:
    """The full gradient is the derivative of the loss, by central differences."""
    x, double = _points(problem)[0, 0], problem.start().dtype == torch.float64
    h, tolerance = (1e-5, 1e-5) if double else (3e-2, 3e-2)
    gradient = problem.full_gradient(x)
    for k in range(DIRECTIONS):
        made = torch.Generator().manual_seed(k)
        v = torch.randn(problem.dim, generator=made, dtype=torch.float64).to(x)
        v = v / v.norm()
        slope = float(problem.loss(x + h * v) - problem.loss(x - h * v)) / (2 * h)
        said = float(gradient @ v)
        if not abs(slope - said) <= tolerance * max(float(gradient.norm()), 1e-2, abs(slope)):
            raise FailedCheckError(
                f"in direction {k} the loss rises by {slope:.6g}, full_gradient() says {said:.6g}",
                "both are means over all data of all nodes",
            )


def check_mean(problem: Problem) -> None:
    """The mean of the nodes' stochastic gradients at one point is the full gradient there."""
    x = _points(problem)[0, 0].expand(1, problem.nodes, -1)
    sampler = Sampler(_sampler(problem).seeds[:1], _sampler(problem).rows)
    samples, rows = problem.sample(sampler, range(DRAWS)), slice(0, problem.nodes)
    drawn = torch.stack([problem.gradient(x, sample, rows)[0].mean(0) for sample in samples])
    drawn, full = drawn.double(), problem.full_gradient(x[0, 0]).double()
    error = drawn.std(0) / DRAWS**0.5
    rounding = _loose(problem) * full.abs().max()
    off = (drawn.mean(0) - full).abs() - DEVIATIONS * error - rounding
    k = int(off.argmax())
    if not off[k] <= 0:
        raise FailedCheckError(
            f"number {k} of the gradient is {drawn.mean(0)[k]:.6g} on average over {DRAWS} steps, "
            f"give or take {error[k]:.1e}, but {full[k]:.6g} in full_gradient()",
            "samples must be drawn so that the nodes' gradients average to the full gradient",
        )


def check_samples(problem: Problem) -> None:
    """What a node draws depends on seed, node and step alone: not on what else is drawn."""
    whole = problem.sample(_sampler(problem), range(6))
    parts = torch.cat(
        [problem.sample(_sampler(problem), steps) for steps in (range(2), range(2, 6))]
    )
    some = slice(problem.nodes // 2, problem.nodes)
    ours = problem.sample(_sampler(problem, some), range(6))
    for what, one, other in (
        ("steps are drawn in two parts", whole, parts),
        ("other nodes draw elsewhere", whole[:, :, some], ours),
    ):
        if one.shape != other.shape or not torch.equal(one, other):
            raise FailedCheckError(
                f"samples differ when {what}", "draw from the sampler only, never from torch.rand"
            )


def check_rows(problem: Problem) -> None:
    """A node's gradient depends on its own row alone, in any block of nodes and any trial."""
    x, some = _points(problem), slice(problem.nodes // 2, problem.nodes)
    sample = problem.sample(_sampler(problem), range(1))[0]
    whole = problem.gradient(x, sample, slice(0, problem.nodes))
    block = problem.gradient(x[:, some], sample[:, some], some)
    trial = problem.gradient(x[:1], sample[:1], slice(0, problem.nodes))
    for what, part, wanted in (("block", block, whole[:, some]), ("trial", trial, whole[:1])):
        gap = _apart(part, wanted)
        if not gap < _loose(problem):
            raise FailedCheckError(
                f"the gradient of a node in a {what} of its own is off by {gap:.1e}",
                "use the data of the nodes in rows, and count axes from the end",
            )


def check_metrics(problem: Problem) -> None:
    """Metrics that the problem declares are measured: one number per trial for each."""
    own, x = own_metrics(problem), _points(problem)
    if not isinstance(problem, Measured):
        return
    for metric in own:
        found = problem.measure(x[:, 0], x, [metric.name])
        value = found.get(metric.name)
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != (len(SEEDS),):
            raise FailedCheckError(
                f"measure() gives {shape} for the metric {metric.name}, not one number per trial",
                f"return a tensor of shape {(len(SEEDS),)}: xhat is (trials, dim), x the models "
                "of the nodes, (trials, nodes, dim)",
            )


CHECKS: dict[str, Check] = {
    "shapes": check_shapes,
    "loss": check_loss,
    "mean": check_mean,
    "samples": check_samples,
    "rows": check_rows,
    "metrics": check_metrics,
}


@torch.no_grad()
def check_problem(problem: Any) -> list[CheckResult]:
    """Hold a problem to its contract.

    >>> from digrad.problems import Quadratic
    >>> {verdict.failure for verdict in check_problem(Quadratic.generate(3, 4))}
    {''}
    """
    return list(run_checks(CHECKS, problem))
