"""Inner optimizers by name, as objects, and any class of ``torch.optim``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor

from digrad.algorithms.rules import SGD, Adam, AdamW, Inner, Kept, check_decay
from digrad.base.errors import ParameterError, lookup, message, shown
from digrad.base.own_code import is_own, load_object

INNERS: dict[str, Callable[..., Inner]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}

# What PyTorch's classes are told about how to compute, not what.
_HOW = ("foreach", "fused", "capturable", "differentiable")
_OURS: dict[type, Callable[..., Inner]] = {
    torch.optim.SGD: SGD,
    torch.optim.Adam: Adam,
    torch.optim.AdamW: AdamW,
}


def as_inner(given: Any, **options: Any) -> Inner:
    """Return an inner optimizer as it is, or make one.

    Args:
        given: an inner optimizer; ``sgd``, ``adam`` or ``adamw``; the name of another class of
            ``torch.optim``, or of one of your own as ``mine.py:Lion``; such a class, or a
            ``functools.partial`` of one; or a table with any of these names as its ``kind``.
        options: its options, such as ``momentum`` or ``betas``.

    >>> from functools import partial
    >>> as_inner(partial(torch.optim.AdamW, betas=(0.9, 0.95)))
    AdamW(betas=(0.9, 0.95), eps=1e-08, weight_decay=0.01)
    >>> as_inner("sgd", momentum=0.9) == as_inner({"kind": "sgd", "momentum": 0.9})
    True
    """
    if isinstance(given, Mapping):
        table = {**given, **options}
        kind = table.pop("kind", None)
        if kind is None:
            hint = 'as in { kind = "adamw", betas = [0.9, 0.95] }'
            raise ParameterError(message("the inner optimizer has no kind", hint=hint))
        return as_inner(kind, **table)
    if isinstance(given, partial):
        if given.args:
            what = f"the partial of {_name(given.func)} has {len(given.args)} arguments by place"
            raise ParameterError(message(what, hint="give them by name: momentum=0.9"))
        return as_inner(given.func, **{**given.keywords, **options})
    if isinstance(given, str):
        return as_inner(_found(given), **options)
    if isinstance(given, type) and issubclass(given, torch.optim.Optimizer):
        return _of_torch(given, options)
    if given in INNERS.values():
        return _made(given, options)
    if isinstance(given, type) or not hasattr(given, "having"):
        hint = 'pass "adamw", torch.optim.AdamW, or partial(torch.optim.AdamW, betas=...)'
        if isinstance(given, torch.optim.Optimizer):
            hint = f"pass the class: partial(torch.optim.{_name(type(given))}, ...)"
        what = f"the inner optimizer is {shown(given)}"
        raise ParameterError(message(what, hint=hint))
    made: Inner = given
    return made if not options else made.having({**made.options, **options})


def written(inner: Inner) -> dict[str, Any]:
    """Return an inner optimizer as a table of plain values, if a file can hold it.

    >>> written(SGD(0.9))
    {'kind': 'sgd', 'momentum': 0.9, 'nesterov': False, 'weight_decay': 0.0}
    """
    kinds = {make: kind for kind, make in INNERS.items()}
    make: Any = type(inner)
    if make not in kinds:
        return {}
    options = inner.options | {"weight_decay": inner.weight_decay}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    return {"kind": kinds[make], **plain}


def _name(made: Any) -> str:
    return getattr(made, "__name__", type(made).__name__)


def _found(name: str) -> Any:
    if is_own(name):
        return load_object(name)
    of_torch = {
        key: value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    return lookup({**of_torch, **INNERS}, name, "inner optimizer")


def _made(make: Callable[..., Any], options: Mapping[str, Any]) -> Inner:
    known: Any = make
    takes = dict.fromkeys(f.name for f in fields(known))
    for key in options:
        lookup(takes, key, f"option of {_name(make)}")
    made: Inner = make(**options)
    return made


def _of_torch(cls: type[torch.optim.Optimizer], options: dict[str, Any]) -> Inner:
    """Return the rule that a class of PyTorch's follows: ours where it is the same."""
    takes = signature(cls).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for key in options if not free else ():
        lookup({k: 0 for k in takes if k != "params"}, key, f"option of {cls.__name__}")
    if "lr" in options:
        what = f"lr = {shown(options['lr'])} is given to the inner optimizer {cls.__name__}"
        raise ParameterError(message(what, hint="give it to the whole: Decentralized(..., lr=0.1)"))
    said = {key: value for key, value in options.items() if key not in _HOW}
    ours = _OURS.get(cls)
    if ours is not None:
        plain = {k for k in said if k in takes and takes[k].default == said[k]}
        unknown = {key for key in said if key not in {f.name for f in fields(_any(ours))}}
        if unknown <= plain:
            return _made(ours, {key: value for key, value in said.items() if key not in unknown})
    return Torch.of(cls, said)


def _any(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Torch:
    """A class of ``torch.optim``, fed with directions, as a rule.

    It steps from 0 with step size 1 and without weight decay, so that what it moves by is -D to
    the last bit. Classes of which D is not all there is are refused: those that look at the
    parameters themselves, at their shapes, or at more than the step size multiplies.
    """

    traceable: ClassVar[bool] = False  # they count steps and branch in Python

    cls: type[torch.optim.Optimizer]
    said: tuple[tuple[str, Any], ...]
    weight_decay: float = 0.0
    decoupled: bool = False

    @classmethod
    def of(cls, kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> "Torch":
        """Try a class out, and take it or say why not."""
        takes = signature(kind).parameters
        own = dict(options)
        decay = own.pop("weight_decay", None)
        default = takes["weight_decay"].default if "weight_decay" in takes else 0.0
        # Classes that decouple it, or can, say so; AdamW's children do without.
        decoupled = bool(own.pop("decoupled_weight_decay", issubclass(kind, torch.optim.AdamW)))
        made = cls(
            kind,
            tuple((key, _hashable(value)) for key, value in own.items()),
            float(default if decay is None else decay),
            decoupled,
        )
        check_decay(made.weight_decay)
        made._try()
        return made

    def __repr__(self) -> str:
        """Name the class and what it was told."""
        said = dict(self.said) | {"weight_decay": self.weight_decay}
        inside = ", ".join(f"{key}={value!r}" for key, value in said.items())
        return f"{self.cls.__module__}.{self.cls.__qualname__}({inside})"

    @property
    def options(self) -> dict[str, Any]:
        without = ("lr", "weight_decay", "maximize", *_HOW, "decoupled_weight_decay")
        known = self._optimizer(torch.zeros(1, 2)).defaults
        return {key: value for key, value in known.items() if key not in without}

    def having(self, options: Mapping[str, Any]) -> "Inner":
        own = dict(options)
        decay = own.pop("weight_decay", self.weight_decay)
        kept = {key: value for key, value in own.items() if value is not None}
        said = tuple((key, _hashable(value)) for key, value in (dict(self.said) | kept).items())
        return Torch(self.cls, said, decay, self.decoupled)

    @cached_property
    def _memory(self) -> dict[str, bool]:
        """What it remembers, by its own name: whether it is a vector, or one number."""
        _, state = self._step({}, torch.ones(1, 2))
        kept = {k: torch.is_tensor(v) and v.dim() > 0 for k, v in state.items() if v is not None}
        return dict(sorted(kept.items(), key=lambda one: not one[1]))  # vectors first

    @property
    def names(self) -> tuple[str, ...]:
        return ("m", *(f"m_{key}" for key in list(self._memory)[1:]))[: len(self._memory)]

    @cached_property
    def linear(self) -> bool:
        """Whether twice the direction gives twice the update."""
        once, twice = (self._path(torch.ones(1, 2) * k, steps=9)[0] for k in (1.0, 2.0))
        return bool(torch.allclose(2 * once, twice, rtol=1e-4))

    def __call__(self, kept: Kept, direction: Tensor) -> tuple[Tensor, Kept]:
        state = {}
        if kept and kept[0] is not None:
            for (key, vector), value in zip(self._memory.items(), kept, strict=True):
                assert value is not None
                state[key] = value.clone() if vector else value.flatten()[0].cpu().clone()
        d, after = self._step(state, direction)
        column = direction[..., :1]
        made = (
            after[key] if vector else torch.full_like(column, float(after[key]), dtype=_KIND)
            for key, vector in self._memory.items()
        )
        return d, tuple(made)

    def _optimizer(self, at: Tensor, **more: Any) -> torch.optim.Optimizer:
        told: dict[str, Any] = {"lr": 1.0, **dict(self.said), **more}
        if "weight_decay" in signature(self.cls).parameters:
            told.setdefault("weight_decay", 0.0)
        try:
            return self.cls([at], **told)
        except (TypeError, ValueError) as error:
            what = f"the inner optimizer {self.cls.__name__} cannot be made: {error}"
            raise ParameterError(message(what, hint="look at its options")) from error

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
        self, direction: Tensor, steps: int = 3, **more: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Take some steps, and return what they came to."""
        total, state = torch.zeros_like(direction), dict[str, Any]()
        for k in range(steps):
            d, state = self._from(torch.zeros_like(direction), state, direction * (1 + k), **more)
            total = total + d
        return total, state

    def _try(self) -> None:
        name, some = self.cls.__name__, torch.tensor([[0.5, -1.0], [2.0, 0.25]])
        try:
            plain, state = self._path(some)
            faster, _ = self._path(some, lr=0.5)
            moved, _ = self._from(torch.ones_like(some), {}, some)
            still, _ = self._from(torch.zeros_like(some), {}, some)
            parts = torch.cat([self._path(some[:, k : k + 1])[0] for k in range(2)], dim=1)
        except ParameterError:
            raise
        except Exception as error:
            what = f"the inner optimizer {name} does not step from a gradient alone: {error}"
            raise ParameterError(message(what, hint='"sgd", "adam" and "adamw" do')) from error
        odd = [key for key, v in state.items() if _odd(v, some)]
        hint = 'take "sgd" or "adamw", or write the rule as digrad.algorithms.Inner'
        reasons = {
            "moves otherwise from other parameters": not _near(moved + 1, still),
            "does not move in proportion to its step size": not _near(2 * faster, plain),
            "looks at more than one number of a row at a time": not _near(parts, plain),
            f"remembers {', '.join(odd)}, of another shape than the parameters": bool(odd),
        }
        for reason, holds in reasons.items():
            if holds:
                raise ParameterError(message(f"the inner optimizer {name} {reason}", hint=hint))


_KIND = torch.float32  # in which PyTorch counts steps


def _near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def _odd(value: Any, like: Tensor) -> bool:
    if value is None or isinstance(value, int | float):
        return False
    return not torch.is_tensor(value) or (value.dim() > 0 and value.shape != like.shape)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
