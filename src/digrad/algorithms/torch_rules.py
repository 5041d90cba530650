"""Classes of ``torch.optim`` as rules from directions to updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from digrad.algorithms.rules import Inner, Kept
from digrad.base.checks import real
from digrad.base.errors import ParameterError

# Options of PyTorch's classes that change how they compute, but not what.
HOW = ("foreach", "fused", "capturable", "differentiable")

Decay = Literal["added to the gradients", "added to the update", "something else"]
DECAY, RATES = 0.1, (1.0, 0.25, 2.0)  # that classes are tried out with


@dataclass(frozen=True)
class TorchRule:
    """A class of ``torch.optim``, fed with directions, as a rule.

    It steps from 0 with step size 1 and without weight decay, so that what it moves by is -D to
    the last bit. Classes of which D is not all there is are refused: those that look at the
    parameters themselves, at their shapes, or at more than the step size multiplies. What they
    make of weight decay is tried out, too, as they do not say it.
    """

    traceable: ClassVar[bool] = False  # they count steps and branch in Python

    cls: type[torch.optim.Optimizer]
    said: tuple[tuple[str, Any], ...]
    weight_decay: float = 0.0
    decay: Decay = "added to the gradients"
    keeps: tuple[tuple[str, bool], ...] = ()  # what it remembers besides, as it did before

    @classmethod
    def of(cls, kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> "TorchRule":
        """Try a class out, and take it or say why not."""
        takes = signature(kind).parameters
        own = dict(options)
        decay = own.pop("weight_decay", None)
        default = takes["weight_decay"].default if "weight_decay" in takes else 0.0
        default = 0.0 if default is Parameter.empty else default
        said = tuple((key, _hashable(value)) for key, value in own.items())
        made = cls(kind, said)
        made._try()
        lost = float(default if decay is None else decay)
        real(lost, "weight_decay", least=0, hint="try 1e-4")
        return cls(kind, said, lost, made._tried_decay() if "weight_decay" in takes else made.decay)

    def __post_init__(self) -> None:
        if self.weight_decay and self.decay == "something else":
            own = ", ".join(f"{key}={value!r}" for key, value in self.said)
            what = f"weight_decay={self.weight_decay} in {self.cls.__name__}({own}) is neither "
            what += "added to the gradients, as SGD does, nor to the update, as AdamW does"
            raise ParameterError(what, hint="take weight_decay=0, or another class")

    @property
    def decoupled(self) -> bool:
        return self.decay != "added to the gradients"

    def __repr__(self) -> str:
        """Name the class and its options."""
        said = dict(self.said) | {"weight_decay": self.weight_decay}
        inside = ", ".join(f"{key}={value!r}" for key, value in said.items())
        return f"{self.cls.__module__}.{self.cls.__qualname__}({inside})"

    @property
    def options(self) -> dict[str, Any]:
        without = ("lr", "weight_decay", "maximize", *HOW, "decoupled_weight_decay")
        known = self._optimizer(torch.zeros(1, 2)).defaults
        return {key: value for key, value in known.items() if key not in without}

    def having(self, options: Mapping[str, Any]) -> "Inner":
        own = dict(options)
        decay = own.pop("weight_decay", self.weight_decay)
        kept = {key: value for key, value in own.items() if value is not None}
        said = tuple((key, _hashable(value)) for key, value in (dict(self.said) | kept).items())
        return TorchRule(self.cls, said, decay, self.decay, tuple(self._memory.items()))

    @cached_property
    def _memory(self) -> dict[str, bool]:
        """What it remembers, by its own name: whether it is a vector, or one number.

        What it has no use for any more, as a momentum that was set to 0, it keeps as it is.
        """
        _, state = self._step({}, torch.ones(1, 2))
        kept = {k: torch.is_tensor(v) and v.dim() > 0 for k, v in state.items() if v is not None}
        if kept.items() <= dict(self.keeps).items():
            return dict(self.keeps)
        return dict(sorted(kept.items(), key=lambda one: not one[1]))  # vectors first

    @property
    def names(self) -> tuple[str, ...]:
        return ("m", *(f"m_{key}" for key in list(self._memory)[1:]))[: len(self._memory)]

    @cached_property
    def linear(self) -> bool:
        """Whether twice the direction gives twice the update."""
        once, twice = (self._path(torch.ones(1, 2) * k, [1.0] * 9)[0] for k in (1.0, 2.0))
        return bool(torch.allclose(2 * once, twice, rtol=1e-4))

    def __call__(self, kept: Kept, direction: Tensor) -> tuple[Tensor, Kept]:
        state = {}
        if kept and kept[0] is not None:
            for (key, vector), value in zip(self._memory.items(), kept, strict=True):
                assert value is not None
                state[key] = value.clone() if vector else value.flatten()[0].cpu().clone()
        d, after = self._step(state, direction)
        column, nothing = direction[..., :1], torch.zeros_like(direction)
        made = (
            after.get(key, nothing)
            if vector
            else torch.full_like(column, float(after.get(key, 0)), dtype=_KIND)
            for key, vector in self._memory.items()
        )
        return d, tuple(made)

    def _optimizer(self, at: Tensor, **more: Any) -> torch.optim.Optimizer:
        own: dict[str, Any] = {"lr": 1.0, **dict(self.said), **more}
        if "weight_decay" in signature(self.cls).parameters:
            own.setdefault("weight_decay", 0.0)
        try:
            return self.cls([at], **own)
        except (TypeError, ValueError) as error:
            what = f"the inner optimizer {self.cls.__name__} cannot be made: {error}"
            raise ParameterError(what, hint="look at its options") from error

    def _step(self, state: dict[str, Any], direction: Tensor) -> tuple[Tensor, dict[str, Any]]:
        return self._from(torch.zeros_like(direction), state, direction)

    def _from(
        self, at: Tensor, state: dict[str, Any], direction: Tensor, **more: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        at.grad = direction.clone()  # some write into it
        optimizer = self._optimizer(at, **more)
        optimizer.state[at].update(state)
        with torch.no_grad():
            optimizer.step()
        return at.neg(), dict(optimizer.state[at])

    def _path(
        self, direction: Tensor, rates: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> tuple[Tensor, dict[str, Any]]:
        """Take steps from 0 with some step sizes; return each, divided by it, and what is kept."""
        moves, state = [], dict[str, Any]()
        for k, lr in enumerate(rates):
            at = torch.zeros_like(direction)
            move, state = self._from(at, state, direction * (1 + k), lr=lr)
            moves.append(move / lr)
        return torch.stack(moves), state

    def _decaying(self, direction: Tensor, decay: float, coupled: bool | None) -> Tensor:
        """Return where steps lead that decay weights: the class's own, or one of the known ways."""
        at, state = torch.ones_like(direction), dict[str, Any]()
        for k, lr in enumerate(RATES):
            pull, slope = decay * at, direction * (1 + k)
            if coupled is None:
                back, state = self._from(at.clone(), state, slope, lr=lr, weight_decay=decay)
                at = back.neg()
                continue
            d, state = self._step(state, slope + pull if coupled else slope)
            at = at - lr * (d if coupled else d + pull)
        return at

    def _tried_decay(self) -> Decay:
        some = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
        try:
            own = self._decaying(some, DECAY, None)
        except Exception:  # a class that takes none, for whatever reason
            return "something else"
        if _near(self._decaying(some, DECAY, True), own):
            return "added to the gradients"
        if _near(self._decaying(some, DECAY, False), own):
            return "added to the update"
        return "something else"

    def _try(self) -> None:
        name, some = self.cls.__name__, torch.tensor([[0.5, -1.0], [2.0, 0.25]])
        try:
            plain, state = self._path(some)
            faster, _ = self._path(some, RATES)
            moved, _ = self._from(torch.ones_like(some), {}, some)
            still, _ = self._from(torch.zeros_like(some), {}, some)
            parts = torch.cat([self._path(some[:, k : k + 1])[0] for k in range(2)], dim=-1)
        except ParameterError:
            raise
        except Exception as error:
            what = f"the inner optimizer {name} does not step from a gradient alone: {error}"
            raise ParameterError(what, hint='"sgd", "adam" and "adamw" do') from error
        odd = [key for key, v in state.items() if _odd(v, some)]
        hint = 'take "sgd" or "adamw", or write the rule as digrad.algorithms.Inner'
        reasons = {
            "moves otherwise from other parameters": not _near(moved + 1, still),
            "does not move in proportion to its step size, or not when that changes": not _near(
                faster, plain
            ),
            "looks at more than one number of a row at a time": not _near(parts, plain),
            f"remembers {', '.join(odd)}, of another shape than the parameters": bool(odd),
        }
        for reason, holds in reasons.items():
            if holds:
                raise ParameterError(f"the inner optimizer {name} {reason}", hint=hint)


_KIND = torch.float32  # in which PyTorch counts steps


def _near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def _odd(value: Any, like: Tensor) -> bool:
    if value is None or isinstance(value, int | float):
        return False
    return not torch.is_tensor(value) or (value.dim() > 0 and value.shape != like.shape)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
