"""What an algorithm keeps and sends, counted by trying it instead of being declared."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    Algorithm,
    Change,
    MessageCounts,
    add_changes,
    take_local_steps,
)
from digrad.base.errors import ParameterError, message

STEPS = 3  # the first have gaps in their state, or send more
DIM = 2  # columns of a vector in the trial; a single number for each node has one


class Call(NamedTuple):
    """One use of a verb."""

    verb: Literal["pull", "push", "mean"]
    width: int  # numbers of each node
    of: str


class CountingMixer:
    """A mixer of one node, which hears only itself, and writes down what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """X + Σ αD."""
        return self._mix("pull", rows, changes, of)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """X + Σ αD."""
        return self._mix("push", rows, changes, of)

    def mean(self, rows: Tensor, /) -> Tensor:
        """X."""
        return self._mix("mean", rows, (), "")

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """1/2 everywhere: what is drawn does not count."""
        return torch.full_like(like, 0.5)

    def _mix(
        self,
        verb: Literal["pull", "push", "mean"],
        rows: Tensor,
        changes: tuple[Change, ...],
        of: str,
    ) -> Tensor:
        self.calls.append(Call(verb, rows.shape[-1], of))
        return add_changes(rows, changes) if changes else rows.clone()


class Costs(NamedTuple):
    """What a node keeps between steps, and what a step sends once it has its stride."""

    variables: dict[str, bool]  # by name: whether it is a vector, or one number
    memory: int  # vectors of the model's length, the model among them
    traffic: MessageCounts


def costs(algorithm: Algorithm[Any]) -> Costs:
    """Take three steps on one node; what the last one does counts.

    >>> from digrad.algorithms import SGP, PushPull
    >>> costs(PushPull()).memory, costs(SGP()).memory  # x, y, g; numerators and models x/w
    (3, 2)
    >>> costs(SGP()).variables, costs(SGP()).traffic.push_scalars
    ({'x': True, 'w': False}, 1)
    """
    return _remembered(algorithm) if isinstance(algorithm, Hashable) else _counted(algorithm)


@torch.no_grad()
def _counted(algorithm: Algorithm[Any]) -> Costs:
    x = torch.zeros(1, DIM)
    state = checked_state(algorithm, algorithm.init(x))
    mixer = CountingMixer()
    for _ in range(STEPS):
        mixer.calls.clear()
        state = checked_state(algorithm, take_local_steps(algorithm, state, lambda k, _: x, 0.0))
        state = checked_state(algorithm, algorithm.step(state, x, mixer, 0.0))
    kept = {name: value for name, value in state._asdict().items() if value is not None}
    variables = {name: value.shape[-1] > 1 for name, value in kept.items()}
    point = algorithm.point(state)
    apart = not any(value is point for value in kept.values())  # X/w is kept beside X
    return Costs(variables, sum(variables.values()) + apart, traffic(mixer.calls))


_remembered = lru_cache(maxsize=256)(_counted)


def link_bytes(algorithm: Algorithm[Any], dim: int, itemsize: int) -> tuple[int, int]:
    """Return how many bytes a step sends over each link of the pull and of the push graph.

    Vectors as short as the method makes them, single numbers as they are; ``itemsize`` is what a
    number takes.

    >>> from digrad.algorithms import SGP, PushPull
    >>> link_bytes(PushPull(), 100, 4), link_bytes(SGP(), 100, 4)
    ((400, 400), (0, 404))
    """
    sent, each = costs(algorithm).traffic, -(-algorithm.row_bits(dim, 8 * itemsize) // 8)
    return (
        sent.pull_vectors * each + sent.pull_scalars * itemsize,
        sent.push_vectors * each + sent.push_scalars * itemsize,
    )


def traffic(calls: list[Call]) -> MessageCounts:
    """Add up the calls of one step."""
    sent: list[tuple[str, bool]] = [(verb, width > 1) for verb, width, _ in calls]
    kinds = [("pull", True), ("push", True), ("push", False), ("pull", False)]
    return MessageCounts(*map(sent.count, kinds))


def checked_state(algorithm: Algorithm[Any], state: Any) -> Any:
    """Refuse a state that is no NamedTuple of tensors."""
    who = type(algorithm).__name__
    hint = "class State(NamedTuple): x: Tensor; ...; None stands for what is not there yet"
    if not isinstance(state, tuple) or not hasattr(state, "_fields"):
        what = f"the state of {who} is a {type(state).__name__}, not a NamedTuple"
        raise ParameterError(message(what, hint=hint))
    for name, value in zip(state._fields, state, strict=True):
        if value is not None and not isinstance(value, Tensor):
            what = f"{name} in the state of {who} is a {type(value).__name__}, not a tensor"
            raise ParameterError(message(what, hint=hint))
    return state
