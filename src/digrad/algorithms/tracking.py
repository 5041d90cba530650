"""Gradient tracking, and where momentum goes in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import FORMS, Form, Mix
from digrad.algorithms.inner import Momentum
from digrad.algorithms.rules import SGD, Kept, decayed
from digrad.base.errors import ParameterError, lookup, message

PLACES = {"tracker": 0, "tracked": 1}


def tracked(y: Tensor | None, last: Tensor | None, g: Tensor, mix: Mix, form: Form) -> Tensor:
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
            raise ParameterError(message(what, hint='set placement = "tracker"'))
        if rule.nesterov:
            what = "nesterov looks ahead of the tracker, so its placement is the tracker"
            raise ParameterError(message(what, hint='set placement = "tracker"'))

    @property
    def follows_momenta(self) -> bool:
        """Whether trackers sum to the sum of the momenta instead of the gradients."""
        return self.placement == "tracked" and self.rule is not None

    def followed(self, s: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the trackers follow, and what they followed last."""
        if not self.follows_momenta:
            return g, s.g
        assert isinstance(self.rule, SGD)
        return decayed(s.m, g, self.rule.momentum), s.m

    def track(
        self, s: Any, g: Tensor, mix: Mix, form: Form, point: Callable[[Any], Tensor]
    ) -> Tracked:
        """Make the trackers of a step and what it goes along, s having y, g and m."""
        new, last = self.followed(s, self.regularized(g, s, point))
        y = tracked(s.y, last, new, mix, form)
        if self.follows_momenta:
            return Tracked(y, y, None, (new,))
        d, kept = self.update(s, y, point)
        return Tracked(y, d, new, kept)
