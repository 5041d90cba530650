"""Gradient tracking, and where momentum goes in it."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from digrad.algorithms.contract import FORMS, Form, Mix, Scale
from digrad.algorithms.inner import Momentum, decayed
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
    m: Tensor | None  # the momenta, if there are any


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
        if self.follows_momenta and self.nesterov:
            what = "nesterov looks ahead of the tracker, so its placement is the tracker"
            raise ParameterError(message(what, hint='set placement = "tracker"'))

    @property
    def follows_momenta(self) -> bool:
        """Whether trackers sum to the sum of the momenta instead of the gradients."""
        return self.momentum > 0 and self.placement == "tracked"

    def track(self, s: Any, g: Tensor, mix: Mix, form: Form, point: Tensor, lr: Scale) -> Tracked:
        """Make the trackers of a step and what it goes along, s having y, g and m."""
        if self.follows_momenta:
            m = decayed(s.m, g, self.momentum)
            y = tracked(s.y, s.m, m, mix, form)
            return Tracked(y, y, None, m)
        y = tracked(s.y, s.g, g, mix, form)
        d, kept = self.update(s.m, y, point, lr)
        return Tracked(y, d, g, kept.m)
