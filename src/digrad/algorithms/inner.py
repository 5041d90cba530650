"""Momentum and other inner optimizers, between the direction a method has found and its step.

A method finds a direction for each node: its tracker, or its gradient. An inner optimizer makes
the update of it and remembers what it needs, as variables of the method's state, so that it is
stored, resumed and cut into buckets like everything else. What it remembers never travels.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import FORMS, Form, Method, Mix, Scale
from digrad.algorithms.inner_kinds import as_inner
from digrad.algorithms.rules import SGD, Inner, Kept, accumulate_momentum
from digrad.algorithms.wrapper import join_state
from digrad.base.errors import ParameterError, lookup, short_repr


@dataclass(frozen=True, kw_only=True)
class Momentum(Method[Any]):
    """Gives a method an inner optimizer on what it steps along; a plain method has none.

    A state of such a method ends in m, and is made by ``type(s)(..., *kept)``.

    Args:
        momentum: β, from 0 to less than 1. In the long run a step counts 1/(1 - β)-fold, which a
            fair step size is divided by.
        nesterov: whether to look ahead: Y + βM instead of M.
        inner: an inner optimizer instead; see ``digrad.algorithms.as_inner``. It gets the step
            size that it is used to: none is divided by its momentum.
    """

    momentum: float = 0.0
    nesterov: bool = False
    inner: Any = None

    def __post_init__(self) -> None:
        SGD(self.momentum, self.nesterov)  # or says what is wrong with them
        if self.inner is None:
            return
        if self.momentum:
            what = f"momentum = {self.momentum} beside the inner optimizer {short_repr(self.inner)}"
            raise ParameterError(what, hint="give the momentum to the inner optimizer")
        object.__setattr__(self, "inner", as_inner(self.inner))

    def __init_subclass__(cls) -> None:
        """Keep dataclasses from writing a repr of their own: see ``__repr__``."""
        super().__init_subclass__()
        cls.__repr__ = Momentum.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Name the class and its parameters, momentum where there is any.

        A plain method is called what it was before it could have momentum, as stored runs say.
        """
        plain = {one.name: one.default for one in fields(Momentum)} | {"placement": "tracker"}
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        said = [f"{key}={value!r}" for key, value in own.items() if plain.get(key) != value]
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def rule(self) -> Inner | None:
        """The inner optimizer; none in the plain method."""
        if self.inner is not None:
            made: Inner = self.inner
            return made
        return SGD(self.momentum, self.nesterov) if self.momentum else None

    @property
    def speed(self) -> float:
        """How many times as far as a plain step it moves in the long run."""
        return 1 / (1 - self.momentum)

    @property
    def linear(self) -> bool:
        """Whether it moves twice as far along twice the direction."""
        return self.rule is None or self.rule.linear

    @property
    def traceable(self) -> bool:
        """Whether its steps are operations on tensors alone."""
        return self.rule is None or self.rule.traceable

    def state(self, kind: Any) -> Any:
        """Return the type of states for what is remembered, ``kind`` ending in m."""
        return join_state(kind, self.rule.names[1:]) if self.rule else kind

    def direction(self, s: Any, g: Tensor) -> Any:
        """Return D for a step along the gradients g, and what is to be remembered."""
        return self.update(s, self.add_weight_decay(g, s))

    def add_weight_decay(self, g: Tensor, s: Any) -> Tensor:
        """G + λX, where weight decay belongs to the gradients."""
        rule = self.rule
        if rule is None or rule.decoupled or not rule.weight_decay:
            return g
        return torch.add(g, self.point(s), alpha=rule.weight_decay)

    def update(self, s: Any, direction: Tensor) -> Any:
        """Return D, for a step X - γD, and what is to be remembered."""
        rule = self.rule
        if rule is None:
            return direction, ()
        d, kept = rule(s[s._fields.index("m") :], direction)
        if rule.decoupled and rule.weight_decay:
            d = torch.add(d, self.point(s), alpha=rule.weight_decay)
        return d, kept


def inverse(lr: Scale) -> Scale:
    """1/γ, and 0 where γ is 0: there the models have not moved."""
    if isinstance(lr, Tensor):
        return torch.where(lr == 0, 0, 1 / lr)
    return 1 / lr if lr else 0.0


PLACES = {"tracker": 0, "tracked": 1}


def update_trackers(
    y: Tensor | None, last: Tensor | None, g: Tensor, mix: Mix, form: Form
) -> Tensor:
    """Y⁺ = C(Y + G⁺ - G) or CY + G⁺ - G, ``last`` being G; Y⁰ = G⁰."""
    if y is None or last is None:
        return g
    return FORMS[form](mix, y, (1, g), (-1, last), of="y")


class Tracked(NamedTuple):
    """What a step of a tracking method goes along, and what it remembers."""

    y: Tensor  # the trackers
    d: Tensor  # what the models move along
    g: Tensor | None  # the gradients, if these are tracked
    kept: Kept  # what the inner optimizer remembers: momenta first


@dataclass(frozen=True, kw_only=True)
class TrackingMomentum(Momentum):
    """Momentum for methods that track.

    Args:
        placement: ``tracker``: M⁺ = βM + Y at home, after the tracker; ``tracked``: M⁺ = βM + G,
            and the trackers follow M instead of G. Both reach the optimum.
    """

    placement: Literal["tracker", "tracked"] = "tracker"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(PLACES, self.placement, "placement")
        if not self.follows_momenta:
            return
        rule = self.rule
        if not isinstance(rule, SGD):
            what = f"momenta are tracked, which {rule} does not form of the gradients alone"
            raise ParameterError(what, hint='set placement = "tracker"')
        if rule.nesterov:
            what = "nesterov looks ahead of the tracker, so its placement is the tracker"
            raise ParameterError(what, hint='set placement = "tracker"')

    @property
    def follows_momenta(self) -> bool:
        """Whether trackers sum to the sum of the momenta instead of the gradients."""
        return self.placement == "tracked" and self.rule is not None

    def tracked_rows(self, s: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the trackers follow, and what they followed last."""
        if not self.follows_momenta:
            return g, s.g
        assert isinstance(self.rule, SGD)
        return accumulate_momentum(s.m, g, self.rule.momentum), s.m

    def track(self, s: Any, g: Tensor, mix: Mix, form: Form) -> Tracked:
        """Make the trackers of a step and what it goes along, s having y, g and m."""
        new, last = self.tracked_rows(s, self.add_weight_decay(g, s))
        y = update_trackers(s.y, last, new, mix, form)
        if self.follows_momenta:
            return Tracked(y, y, None, (new,))
        d, kept = self.update(s, y)
        return Tracked(y, d, new, kept)
