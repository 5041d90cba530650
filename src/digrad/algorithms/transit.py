"""Messages that are lost silently, and running sums by which nothing is lost for ever.

On every link a sender keeps the sum of all it ever addressed to the receiver and sends that sum;
the receiver takes what is new in it. So a message brings all that was lost before it. The
difference of both sums is in transit. It is all that the recursion sees, so it is what is kept,
as part of the state at the receiver: the sums themselves grow without end, and would cost digits.
In a step, of the link from j to i,

    p + C[i, j] vⱼ  arrives, and p = 0 after it; or it waits, and is p after it.

Then 1ᵀ push(V) + Σ p stays what it was plus 1ᵀ V: C is column-stochastic on a network with one
more node for each link. Spiridonoff, Olshevsky, Paschalidis, Robust Asynchronous Stochastic
Gradient-Push, Journal of Machine Learning Research 2020, and others since.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    Algorithm,
    Change,
    Mixer,
    MixerBase,
    MixerVerb,
    Scale,
    method_name,
    pass_on,
)
from digrad.algorithms.counting import Call, try_steps
from digrad.algorithms.estimators import SAID, EstimatedMethod, WithEstimator
from digrad.algorithms.wrapper import Wrapper, join_state
from digrad.base.errors import ParameterError


def remember_in_transit(algorithm: Algorithm[Any], links: int) -> Algorithm[Any]:
    """Return the algorithm with a memory for so many links into a node; as it is, for none."""
    if not links:
        return algorithm
    if isinstance(algorithm, EstimatedMethod):
        return WithEstimator(remember_in_transit(algorithm.method, links), algorithm.estimator)
    return DelayedMessages(algorithm, links) if push_calls(algorithm) else algorithm


@dataclass(frozen=True)
class DelayedMessages(Wrapper):
    """Any method, with what is in transit on the links into each node.

    Args:
        method: what is run.
        links: most links into a node.
    """

    is_anonymous: ClassVar[bool] = True
    overwrites: ClassVar[tuple[str, ...]] = ()

    method: Algorithm[Any]
    links: int

    def __post_init__(self) -> None:
        for name in SAID:
            if name != "overwrites":
                object.__setattr__(self, name, getattr(self.method, name))
        often = Counter(call.of for call in push_calls(self.method))
        for name, count in often.items():
            if not name or count > 1:
                what = f"{method_name(self.method)} pushes {name or 'a variable'} more than once "
                what += "a step, so what is in transit of each cannot be told apart"
                hint = 'use another method, or loss = { share = ..., kind = "returned" }'
                raise ParameterError(what, hint=hint)
        object.__setattr__(self, "_pushed", tuple(push_calls(self.method)))

    _pushed: ClassVar[tuple[Call, ...]]

    def __repr__(self) -> str:
        """Name the method, and what it is run with."""
        return f"InTransit({self.method!r}, links={self.links})"

    @property
    def names(self) -> tuple[str, ...]:
        """The variables beside those of the method."""
        pushed = [call.of for call in self._pushed]
        return tuple(f"{name}_in_transit_{k}" for name in pushed for k in range(self.links))

    def init(self, x: Tensor) -> Any:
        s = self.method.init(x)
        kind: Any = type(s)
        widths = [x.shape[-1] if call.width > 1 else 1 for call in self._pushed]
        empty = [x.new_zeros(*x.shape[:-1], width) for width in widths for _ in range(self.links)]
        return join_state(kind, self.names)(*s, *empty)

    def step(self, s: Any, g: Tensor, net: Mixer, lr: Scale) -> Any:
        mixer = _WaitingMixer(net, self._waiting(s))
        own = self.method.step(self.inside(s), g, mixer, lr)
        return type(s)(*own, *(part for parts in mixer.waiting.values() for part in parts))

    def _waiting(self, s: Any) -> dict[str, list[Tensor]]:
        memory = list(s[len(s) - len(self._pushed) * self.links :])
        parts = [memory[k : k + self.links] for k in range(0, len(memory), self.links)]
        return {call.of: part for call, part in zip(self._pushed, parts, strict=True)}


class _WaitingMixer(MixerBase):
    """A mixer that adds what arrives on each link to what waits there, or lets it wait."""

    def __init__(self, net: Any, waiting: dict[str, list[Tensor]]) -> None:
        self._net, self.waiting = net, waiting

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        if verb != "push" or not hasattr(self._net, "parcels"):  # nothing is lost there
            return pass_on(self._net, verb, rows, changes, of)
        mixed, *brought = self._net.parcels(rows, *changes)
        links = zip(self._net.arrives, self.waiting[of], brought, strict=True)
        left = []
        for arrives, before, parcel in links:
            held = before + parcel
            mixed = mixed + torch.where(arrives, held, 0)
            left.append(torch.where(arrives, 0, held))
        self.waiting = {**self.waiting, of: left}
        return mixed  # type: ignore[no-any-return]


def push_calls(algorithm: Algorithm[Any]) -> list[Call]:
    """Return the pushes of one step, once an algorithm has its stride."""
    return [call for call in try_steps(algorithm)[1][-1] if call.verb == "push"]
