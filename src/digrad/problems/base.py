"""What a problem must offer: ten lines for a user to write."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from digrad.base.checks import kind_of
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError, short_repr
from digrad.base.machine import check_memory
from digrad.base.metrics import Metric, check_declared

Rows = slice | Tensor  # some of the nodes: in a row, or by their numbers


@runtime_checkable
class Problem(Protocol):
    """f = (1/n) Σᵢ fᵢ, node i holding fᵢ.

    x of shape (..., rows, dim) holds one point per node, x of shape (..., dim) one point for
    all; leading axes are trials.
    """

    nodes: int
    dim: int

    def start(self) -> Tensor:
        """The common start, of shape (dim,), on the problem's device and in its dtype."""
        ...

    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        """What the nodes draw in these steps; first axis: steps, then trials, then rows.

        A function of (seed, node, step) alone: draw from ``sampler`` only.
        """
        ...

    def gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """The stochastic gradient of fᵢ at row i, for the nodes in ``rows``.

        ``sample`` is one step's entry of what ``sample()`` returned. Take the nodes' own data
        with ``data[rows]``, which works for a slice and, as asynchronous methods need, for the
        numbers of nodes.
        """
        ...

    def loss(self, x: Tensor) -> Tensor:
        """f(x) on all data: (..., dim) to (...)."""
        ...

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f(x) on all data: (..., dim) to (..., dim)."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A problem that can be told from another one with the same settings."""

    def digest(self) -> str:
        """A checksum of its data: a stored run goes on with the data it began with only."""
        ...


@runtime_checkable
class Buffered(Protocol):
    """A problem whose nodes each keep numbers that no algorithm moves: batch norm's means."""

    def buffers(self) -> Tensor:
        """What all nodes begin with, of shape (numbers,); empty where there are none."""
        ...

    def gradient_and_buffers(
        self, x: Tensor, sample: Tensor, rows: Rows, buffers: Tensor, *, compiled: bool
    ) -> tuple[Tensor, Tensor]:
        """What ``gradient`` returns, and the buffers, (..., rows, numbers), after it."""
        ...

    def common(self, buffers: Tensor) -> Tensor:
        """The buffers of one model for all nodes: (..., nodes, numbers) to (..., numbers)."""
        ...

    def judged_with(self, buffers: Tensor, own: Tensor) -> "Problem":
        """The same problem, judging answers with such buffers, and nodes with their own."""
        ...


@runtime_checkable
class Compiled(Protocol):
    """A problem that compiles its own gradient, being too large to be fused with the steps."""

    def compiled_gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """What ``gradient`` returns, but for rounding."""
        ...

    def compiling_saves(self, trials: int) -> float:
        """Return about how many seconds of a step it saves on a GPU, once it is compiled."""
        ...


@runtime_checkable
class FiniteSum(Protocol):
    """A problem in which fᵢ is a mean over node i's samples; estimators with a memory need it."""

    sizes: Tensor  # samples of each node, (nodes,)

    def numbers(self, sample: Tensor, rows: slice) -> Tensor:
        """Which samples were drawn, each node's counted from 0: (..., rows, batch)."""
        ...

    def sample_gradient(self, x: Tensor, number: Tensor, rows: slice) -> Tensor:
        """The gradient at row i of the one sample of that number, which is (..., rows)."""
        ...

    def local_gradient(self, x: Tensor, rows: slice) -> Tensor:
        """∇fᵢ on all of its data at row i."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A problem that measures metrics itself: some of digrad's, or its own ``metrics``.

    Two attributes say which, each of them optional: ``metrics``, a list of ``Metric``, declares
    metrics of its own; ``default_metrics``, a list of names, says what is recorded where an
    experiment does not choose: all that the problem has, by default.
    """

    def measure(self, xhat: Tensor, x: Tensor, wanted: Sequence[str]) -> dict[str, Tensor]:
        """Metrics by name, one number per trial, at xhat, (..., dim), and the nodes' own x."""
        ...


def own_metrics(problem: Any) -> tuple[Metric, ...]:
    """Return the metrics that a problem declares beside those of digrad, checked."""
    whose = type(problem).__name__
    own = check_declared(getattr(problem, "metrics", ()), whose)
    if own and not isinstance(problem, Measured):
        what = f"{whose} declares the metric {own[0].name}, but cannot measure it"
        hint = "give it measure(self, xhat, x, wanted), which returns tensors by name"
        raise ParameterError(what, hint=hint)
    return own


class EvaluationCost(NamedTuple):
    """What something takes, whatever the machine: for each trial, and once for all together."""

    operations: float = 0.0  # products and sums
    numbers: float = 0.0  # read or written
    calls: float = 0.0  # of kernels
    shared_numbers: float = 0.0
    shared_calls: float = 0.0


@runtime_checkable
class CostAware(Protocol):
    """A problem that knows what it takes to measure, so that this can be kept small."""

    def efforts(self, metrics: Collection[str]) -> tuple[EvaluationCost, EvaluationCost]:
        """The gradients of a step, and a record of these metrics: from sizes alone."""
        ...


@runtime_checkable
class KnownOptimum(Protocol):
    """A problem whose smallest value is known."""

    def optimum(self) -> Tensor:
        """A minimiser x*, of shape (dim,)."""
        ...


@runtime_checkable
class Classifier(Protocol):
    """A problem for which accuracy means something."""

    def accuracy(self, x: Tensor) -> Tensor:
        """Share of the data classified rightly at x: (..., dim) to (...)."""
        ...


def check_place(device: Any, dtype: Any) -> None:
    """Refuse a device that there is none of, and numbers that are no real ones."""
    kind_of(device, "device", str, torch.device, hint='for example "cpu"')
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).split("\n")[0]
        what = f"device {short_repr(str(device))} cannot be used: {said}"
        raise ParameterError(what, hint='device = "cpu" is always there') from error
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        what = f"dtype must be a floating type of torch, got {short_repr(dtype)}"
        raise ParameterError(what, hint="torch.float32 or torch.float64")


def check_tensor(value: Any, name: str) -> Tensor:
    """Return a tensor of real numbers."""
    if not isinstance(value, Tensor) or value.is_complex() or value.layout != torch.strided:
        what = f"{name} must be a tensor of real numbers, got {short_repr(value)}"
        raise ParameterError(what, hint="torch.as_tensor makes one of a list or an array")
    return value


def check_numbers(count: float, each: float, what: str, hint: str) -> None:
    """Refuse data of so many numbers if memory has no room for them."""
    check_memory(1.0 * count * each, f"{what}, {count:,.0f} numbers,", hint=hint)
