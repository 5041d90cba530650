"""Gradient estimators with a memory: noise that dies out, for any method that takes one gradient.

Where a node's function is a mean over samples, an estimator takes the gradient of one sample and
corrects it by what it remembers of that sample. Its noise then goes to zero with the distance to
the optimum, and an exact method is exact with noise. The memory is part of the state.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Mixer, Scale, Verb
from digrad.algorithms.push_pull import ABCta, PushPull
from digrad.algorithms.push_sum import AddOpt, PushDigingATC
from digrad.algorithms.wrapper import Wrapper, join_state
from digrad.base.errors import ParameterError

# By name in ``Estimator.names``; none before the first step.
EstimatorMemory = tuple[Tensor | None, ...]


class Samples(Protocol):
    """What an estimator may ask of a problem in one step."""

    sizes: Tensor  # samples of each node here, (rows,)
    drawn: Tensor  # numbers of those drawn in this step, (..., rows, batch)

    def one(self, x: Tensor, number: Tensor) -> Tensor:
        """The gradient of one sample of each node at its row; its number of shape (..., rows)."""
        ...

    def whole(self, x: Tensor) -> Tensor:
        """Each node's gradient on all of its samples."""
        ...


class Estimator(Protocol):
    """Makes a gradient of a sample's and a memory, whose tensors it may overwrite."""

    names: ClassVar[tuple[str, ...]]

    def vectors(self, samples: int) -> int:
        """How many vectors it keeps for a node with so many samples."""
        ...

    def __call__(
        self, memory: EstimatorMemory, t: int, x: Tensor, samples: Samples
    ) -> tuple[Tensor, EstimatorMemory]:
        """Return the estimates of step t at x, and the memory."""
        ...


class _Table(NamedTuple):
    table: Tensor  # (..., samples, rows, dim): the gradient last seen of each sample
    mean: Tensor  # (..., rows, dim): their mean


@dataclass(frozen=True)
class Saga:
    """SAGA: g = ∇f_s(x) - T[s] + mean T, then T[s] = ∇f_s(x); the table T begins at the start.

    Keeps one vector for each sample. Defazio, Bach, Lacoste-Julien, NeurIPS 2014.
    """

    names: ClassVar[tuple[str, ...]] = _Table._fields

    def vectors(self, samples: int) -> int:
        return samples + 1

    def __call__(
        self, memory: EstimatorMemory, t: int, x: Tensor, samples: Samples
    ) -> tuple[Tensor, EstimatorMemory]:
        _check_drawn(samples)
        table, mean = memory
        if table is None or mean is None:
            numbers = torch.arange(int(samples.sizes.max()), device=x.device)
            last = samples.sizes - 1  # a node with fewer samples repeats its last, with no weight
            parts = [samples.one(x, k.minimum(last).expand(x.shape[:-1])) for k in numbers]
            table = torch.stack(parts, dim=-3)
            mean = _mean(table, samples.sizes)
            return mean, _Table(table, mean.clone())
        if t % table.shape[-3] == 0:  # adding up differences drifts by rounding
            mean = _mean(table, samples.sizes)
        return self._later(table, mean, x, samples)

    def _later(
        self, table: Tensor, mean: Tensor, x: Tensor, samples: Samples
    ) -> tuple[Tensor, EstimatorMemory]:
        fresh = [samples.one(x, number) for number in samples.drawn.unbind(-1)]
        places = [_place(number, x) for number in samples.drawn.unbind(-1)]
        before = [table.gather(-3, place).squeeze(-3) for place in places]
        # In this order: a sample that is the only one gives its gradient to the bit.
        g = torch.stack([new + (mean - old) for new, old in zip(fresh, before, strict=True)]).mean(
            0
        )
        for new, place in zip(fresh, places, strict=True):  # twice the same changes it once
            old = table.gather(-3, place).squeeze(-3)
            mean = mean + (new - old) / samples.sizes.unsqueeze(-1)
            table.scatter_(-3, place, new.unsqueeze(-3))
        return g, _Table(table, mean)


def _place(number: Tensor, x: Tensor) -> Tensor:
    return number[..., None, :, None].expand(*x.shape[:-2], 1, *x.shape[-2:])


def _mean(table: Tensor, sizes: Tensor) -> Tensor:
    numbers = torch.arange(table.shape[-3], device=table.device)[:, None]
    weights = torch.where(numbers < sizes, 1 / sizes.to(table), 0)
    return (table * weights.unsqueeze(-1)).sum(-3)


class _Snapshot(NamedTuple):
    at: Tensor  # Q, the points of the last snapshot
    whole: Tensor  # the nodes' whole gradients there


@dataclass(frozen=True)
class Svrg:
    """SVRG: g = ∇f_s(x) - ∇f_s(q) + ∇f(q), q a snapshot taken every ``period`` steps.

    Keeps two vectors, and goes over all data at every snapshot. Johnson & Zhang, NeurIPS 2013.

    Args:
        period: steps from one snapshot to the next; 0 takes as many as a node has samples.
    """

    period: int = 0

    names: ClassVar[tuple[str, ...]] = _Snapshot._fields

    def __post_init__(self) -> None:
        if self.period < 0:
            what = f"period must be at least 0, got {self.period}"
            raise ParameterError(what, hint="0 takes as many as a node has samples")

    def vectors(self, samples: int) -> int:
        return 2

    def __call__(
        self, memory: EstimatorMemory, t: int, x: Tensor, samples: Samples
    ) -> tuple[Tensor, EstimatorMemory]:
        _check_drawn(samples)
        at, whole = memory
        if at is None or whole is None or t % (self.period or int(samples.sizes.max())) == 0:
            g = samples.whole(x)
            return g, _Snapshot(x.clone(), g.clone())
        pairs = [(samples.one(x, s), samples.one(at, s)) for s in samples.drawn.unbind(-1)]
        g = torch.stack([new + (whole - old) for new, old in pairs]).mean(0)
        return g, _Snapshot(at, whole)


def _check_drawn(samples: Samples) -> None:
    if not samples.drawn.shape[-1]:
        what = "the problem draws no samples: its gradients have no noise to be rid of"
        raise ParameterError(what, hint="set batch = 1, or drop the estimator")


ESTIMATORS: dict[str, type[Saga] | type[Svrg]] = {"saga": Saga, "svrg": Svrg}

SAID = ("needs", "exact", "overwrites", "columnwise", "root_weighted", "moves_by_n_pi")


class EstimatedMethod(Wrapper):
    """A method whose gradients an estimator makes; its state is the method's, then the memory."""

    @property
    @abstractmethod
    def estimator(self) -> Estimator:
        """Who makes the gradients."""

    def estimate(self, s: Any, t: int, samples: Samples) -> tuple[Tensor, Any]:
        """Return the gradients of step t, and the state with the new memory.

        The tensors of the old memory may be overwritten: see ``own``.
        """
        memory = s[len(self.inside(s)) :]
        g, memory = self.estimator(memory, t, self.point(s), samples)
        return g, type(s)(*self.inside(s), *memory)

    def own(self, s: Any) -> Any:
        """Return the state with a memory that may be overwritten."""
        memory = s[len(self.inside(s)) :]
        return type(s)(*self.inside(s), *(None if v is None else v.clone() for v in memory))

    def init(self, x: Tensor) -> Any:
        s = self.method.init(x)
        kind: Any = type(s)
        return join_state(kind, self.estimator.names)(*s)

    def step(self, s: Any, g: Tensor, net: Mixer, lr: Scale) -> Any:
        own = self.inside(s)
        return type(s)(*self.method.step(own, g, net, lr), *s[len(own) :])

    def early(self, s: Any) -> tuple[tuple[Verb, Tensor], ...]:
        return self.method.early(self.inside(s))


@dataclass(frozen=True)
class WithEstimator(EstimatedMethod):
    """Any method that takes one gradient a step, with any estimator."""

    is_anonymous: ClassVar[bool] = True

    method: Algorithm[Any]
    with_estimator: Estimator

    def __post_init__(self) -> None:
        if self.method.samples > 1:
            what = f"{self.method!r} takes {self.method.samples} gradients a step, an estimator one"
            raise ParameterError(what, hint="use the method without the estimator")
        for name in SAID:
            object.__setattr__(self, name, getattr(self.method, name))

    @property
    def estimator(self) -> Estimator:
        return self.with_estimator


class _NamedEstimator(EstimatedMethod):
    """A method and an estimator under a name of their own."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in SAID:
            setattr(cls, name, getattr(cls.method, name))


@dataclass(frozen=True)
class PushSaga(_NamedEstimator):
    """Push-SAGA: Push-DIGing, adapted twice, with SAGA: exact with the noise of sampling.

    Qureshi, Xin, Kar, Khan, IEEE Control Systems Letters 2022.
    """

    method = PushDigingATC()
    estimator = Saga()


@dataclass(frozen=True)
class ABSaga(_NamedEstimator):
    """AB-SAGA: Push-Pull, X⁺ = R(X - γY), Y⁺ = C(Y + G⁺ - G), with SAGA.

    Qureshi, Xin, Kar, Khan; as in their group's code, adapted twice.
    """

    method = PushPull()
    estimator = Saga()


@dataclass(frozen=True)
class ABSvrg(_NamedEstimator):
    """AB-SVRG: X⁺ = RX - γY, Y⁺ = CY + G⁺ - G, with SVRG.

    Qureshi, Xin, Kar, Khan. ``period``: see ``Svrg``.
    """

    method = ABCta()
    period: int = 0

    @property
    def estimator(self) -> Estimator:
        return Svrg(self.period)


@dataclass(frozen=True)
class PushSvrg(_NamedEstimator):
    """Push-SVRG: ADD-OPT with SVRG.

    Qureshi, Xin, Kar, Khan. ``period``: see ``Svrg``.
    """

    method = AddOpt()
    period: int = 0

    @property
    def estimator(self) -> Estimator:
        return Svrg(self.period)
