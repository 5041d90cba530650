"""Which exchanges of a step wait for the gradients, and which for one another.

Read off the graph of one step: every gradient and every result of a verb carries a tag, and what
is sent waits for the tags that it depends on.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Change, add_changes, take_local_steps
from digrad.algorithms.counting import DIM, STEPS, CountingMixer


class MixingCall(NamedTuple):
    """One use of a verb in a step."""

    verb: str  # pull, push or mean
    is_vector: bool  # or one number per node
    after_gradient: bool
    after: tuple[int, ...]  # earlier ones of the same step that it waits for


def exchanges(algorithm: Algorithm[Any]) -> tuple[MixingCall, ...]:
    """Return what one step sends, in the order in which the verbs are called.

    >>> from digrad.algorithms import SGP, PushPull
    >>> [(e.verb, e.after_gradient, e.after) for e in exchanges(PushPull())]
    [('push', True, ()), ('pull', True, (0,))]
    >>> [(e.is_vector, e.after_gradient) for e in exchanges(SGP())]  # weights leave early
    [(True, True), (False, False)]
    """
    return _remembered(algorithm) if isinstance(algorithm, Hashable) else _traced(algorithm)


def _traced(algorithm: Algorithm[Any]) -> tuple[MixingCall, ...]:
    x = torch.zeros(1, DIM)
    with torch.no_grad():
        state, mixer = algorithm.init(x), CountingMixer()
        for _ in range(STEPS):
            state = take_local_steps(algorithm, state, lambda k, _: x, 0.0)
            state = algorithm.step(state, x, mixer, 0.0)
        state = take_local_steps(algorithm, state, lambda k, _: x, 0.0)
    tagged = _Tagged()
    with torch.enable_grad():
        algorithm.step(state, x + tagged.gradient, tagged, 0.0)
    return tuple(tagged.found)


_remembered = lru_cache(maxsize=256)(_traced)


class _Tagged:
    """A mixer of one node whose results carry tags."""

    def __init__(self) -> None:
        self.gradient = torch.zeros(1, requires_grad=True)
        self.found: list[MixingCall] = []
        self._tags: list[Tensor] = []

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        return self._mix("pull", rows, changes)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        return self._mix("push", rows, changes)

    def mean(self, rows: Tensor, /) -> Tensor:
        return self._mix("mean", rows, ())

    def _mix(self, verb: str, rows: Tensor, changes: tuple[Change, ...]) -> Tensor:
        sent = add_changes(rows, changes)
        waits = self._waits_for(sent)
        after = tuple(k for k, tag in enumerate(waits[1:]) if tag)
        self.found.append(MixingCall(verb, sent.shape[-1] > 1, waits[0], after))
        self._tags.append(torch.zeros(1, requires_grad=True))
        return sent + self._tags[-1]

    def _waits_for(self, sent: Tensor) -> list[bool]:
        tags = [self.gradient, *self._tags]
        if not sent.requires_grad:
            return [False] * len(tags)
        found = torch.autograd.grad(sent.sum(), tags, retain_graph=True, allow_unused=True)
        return [g is not None for g in found]
