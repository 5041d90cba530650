"""What a method keeps and sends, found by trying it instead of being declared.

Which messages of a step wait for the gradients, and which for one another, is read off the graph
of one step: every gradient and every result of a verb carries a tag, and what is sent waits for
the tags that it depends on.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    Algorithm,
    Change,
    MessageCounts,
    Method,
    MixerBase,
    MixerVerb,
    add_changes,
    take_local_steps,
)
from digrad.base.errors import ParameterError

STEPS = 3  # the first have gaps in their state, or send more
DIM = 2  # columns of a vector in the trial; a single number for each node has one
T = TypeVar("T")


def remembered(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Let a function of a method remember its results; methods without a hash are tried again."""
    known = lru_cache(maxsize=256)(function)

    @wraps(function)
    def call(method: Any) -> T:
        return known(method) if isinstance(method, Hashable) else function(method)

    return call


class Call(NamedTuple):
    """One use of a verb."""

    verb: MixerVerb
    width: int  # numbers of each node
    of: str


class CountingMixer(MixerBase):
    """A mixer of one node, which receives from itself only, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """1/2 everywhere: what is drawn does not count."""
        return torch.full_like(like, 0.5)

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        self.calls.append(Call(verb, rows.shape[-1], of))
        return add_changes(rows, changes) if changes else rows.clone()


@torch.no_grad()
def try_steps(algorithm: Algorithm[Any]) -> tuple[Any, list[list[Call]]]:
    """Take three steps on one node; return the state after them, and what each has sent."""
    x, calls = torch.zeros(1, DIM), list[list[Call]]()
    state = check_state(algorithm, algorithm.init(x))
    for _ in range(STEPS):
        mixer = CountingMixer()
        state = check_state(algorithm, _local_steps_without_gradient(algorithm, state))
        state = check_state(algorithm, algorithm.step(state, x, mixer, 0.0))
        calls.append(mixer.calls)
    return state, calls


def _local_steps_without_gradient(algorithm: Algorithm[Any], state: Any) -> Any:
    return take_local_steps(algorithm, state, lambda k, x: torch.zeros(1, DIM), 0.0)


class Costs(NamedTuple):
    """What a node keeps between steps, and what a step sends after the first ones."""

    variables: dict[str, bool]  # by name: whether it is a vector, or one number
    memory: int  # vectors of the model's length, the model among them
    traffic: MessageCounts  # of an asynchronous method: of one exchange


@remembered
def costs(method: Method[Any]) -> Costs:
    """Take three steps on one node; what the last one does counts.

    >>> from digrad.algorithms import SGP, PushPull, RFast
    >>> costs(PushPull()).memory, costs(SGP()).memory  # x, y, g; numerators and models x/w
    (3, 2)
    >>> costs(SGP()).variables, costs(SGP()).traffic.push_scalars
    ({'x': True, 'w': False}, 1)
    >>> costs(RFast()).traffic.pull_vectors, costs(RFast()).traffic.push_vectors
    (1, 1)
    """
    if isinstance(method, Algorithm):
        state, calls = try_steps(method)
        sent, point = count_messages(calls[-1]), method.point(state)
    else:
        state, sent, point = method.init(torch.zeros(1, 1, DIM)), method.messages(), None
    kept = {name: value for name, value in state._asdict().items() if value is not None}
    variables = {name: value.shape[-1] > 1 for name, value in kept.items()}
    # A point like X/w is kept beside X, until all gradients have been computed.
    is_apart = point is not None and not any(value is point for value in kept.values())
    return Costs(variables, sum(variables.values()) + is_apart, sent)


def describe_traffic(method: Method[Any]) -> str:
    """Say in words what a node sends over each link.

    >>> from digrad.algorithms import CPP, SGP, LocalSGP
    >>> describe_traffic(SGP()), describe_traffic(LocalSGP(every=4))
    ('1 push + 1 scalar', '1 push + 1 scalar every 4 gradients')
    >>> describe_traffic(CPP())
    '1 pull + 1 push, 4.5 bits a number'
    """
    sent = costs(method).traffic
    counts = [
        (sent.pull_vectors, "pull"),
        (sent.push_vectors, "push"),
        (sent.pull_scalars + sent.push_scalars, "scalar"),
    ]
    text = " + ".join(f"{count} {what}" for count, what in counts if count) or "all to a server"
    bits = method.row_bits(4096, 32) / 4096
    text += f", {bits:.2g} bits a number" if bits != 32 else ""
    each = method.local_steps + 1
    return (text + f" every {each} gradients" if each > 1 else text) + method.sending_hint


def link_bytes(method: Method[Any], dim: int, itemsize: int) -> tuple[int, int]:
    """Return how many bytes a step sends over each link of the pull and of the push graph.

    Vectors as short as the method makes them, single numbers as they are; ``itemsize`` is what a
    number takes.

    >>> from digrad.algorithms import SGP, PushPull
    >>> link_bytes(PushPull(), 100, 4), link_bytes(SGP(), 100, 4)
    ((400, 400), (0, 404))
    """
    sent, each = costs(method).traffic, -(-method.row_bits(dim, 8 * itemsize) // 8)
    return (
        sent.pull_vectors * each + sent.pull_scalars * itemsize,
        sent.push_vectors * each + sent.push_scalars * itemsize,
    )


def count_messages(calls: list[Call]) -> MessageCounts:
    """Add up the calls of one step."""
    sent: list[tuple[str, bool]] = [(verb, width > 1) for verb, width, _ in calls]
    kinds = [("pull", True), ("push", True), ("push", False), ("pull", False)]
    return MessageCounts(*map(sent.count, kinds))


def check_state(algorithm: Algorithm[Any], state: Any) -> Any:
    """Return a state, or refuse it if it is no NamedTuple of tensors."""
    who = type(algorithm).__name__
    hint = "class State(NamedTuple): x: Tensor; ...; None stands for what is not there yet"
    if not isinstance(state, tuple) or not hasattr(state, "_fields"):
        what = f"the state of {who} is a {type(state).__name__}, not a NamedTuple"
        raise ParameterError(what, hint=hint)
    for name, value in zip(state._fields, state, strict=True):
        if value is not None and not isinstance(value, Tensor):
            what = f"{name} in the state of {who} is a {type(value).__name__}, not a tensor"
            raise ParameterError(what, hint=hint)
    return state


class MixerCall(NamedTuple):
    """One use of a verb in a step, and what it waits for."""

    verb: MixerVerb
    is_vector: bool  # or one number per node
    after_gradient: bool
    after: tuple[int, ...]  # earlier ones of the same step that it waits for


@remembered
def exchanges(algorithm: Algorithm[Any]) -> tuple[MixerCall, ...]:
    """Return what one step sends, in the order in which the verbs are called.

    >>> from digrad.algorithms import SGP, PushPull
    >>> [(e.verb, e.after_gradient, e.after) for e in exchanges(PushPull())]
    [('push', True, ()), ('pull', True, (0,))]
    >>> [(e.is_vector, e.after_gradient) for e in exchanges(SGP())]  # weights leave early
    [(True, True), (False, False)]
    """
    state, mixer = try_steps(algorithm)[0], _TaggingMixer()
    with torch.no_grad():
        state = _local_steps_without_gradient(algorithm, state)
    with torch.enable_grad():
        algorithm.step(state, torch.zeros(1, DIM) + mixer.gradient, mixer, 0.0)
    return tuple(mixer.exchanges)


class _TaggingMixer(CountingMixer):
    """A mixer of one node whose results carry tags."""

    def __init__(self) -> None:
        super().__init__()
        self.gradient = torch.zeros(1, requires_grad=True)
        self.exchanges: list[MixerCall] = []
        self._tags: list[Tensor] = []

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        sent = add_changes(rows, changes)
        waits = self._waits_for(sent)
        after = tuple(k for k, tag in enumerate(waits[1:]) if tag)
        self.exchanges.append(MixerCall(verb, sent.shape[-1] > 1, waits[0], after))
        self._tags.append(torch.zeros(1, requires_grad=True))
        return sent + self._tags[-1]

    def _waits_for(self, sent: Tensor) -> list[bool]:
        tags = [self.gradient, *self._tags]
        if not sent.requires_grad:
            return [False] * len(tags)
        found = torch.autograd.grad(sent.sum(), tags, retain_graph=True, allow_unused=True)
        return [g is not None for g in found]
