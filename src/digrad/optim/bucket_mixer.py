"""What the optimizer asks of an engine, and the wrapper that stands between for one step."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Verb
from digrad.engines.processes.engine import Sent


class Link(Protocol):
    """An engine that can also begin early, measure over all nodes, and end well."""

    rows: slice
    nodes: Tensor
    rank: int
    world: int
    blocks: tuple[int, ...]  # nodes of each rank
    sent: Sent

    def pull(self, rows: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...

    def push(self, rows: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...

    def mean(self, rows: Tensor, /) -> Tensor: ...

    def room(self, like: Tensor, /) -> Tensor | None:
        """Return memory for rows that the next verb is handed, and nobody looks at after it."""
        ...

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Start sending rows that the next call of the verb will be handed."""
        ...

    def forget(self) -> None:
        """End what was begun and not asked for."""
        ...

    def gather(self, rows: Tensor, /) -> Tensor:
        """Return the rows of all nodes."""
        ...

    def weighted(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ xᵢ over all nodes, in float64."""
        ...

    def fail(self, reason: str) -> None:
        """Tell the other ranks why this one stops."""
        ...

    def close(self) -> None: ...


class Turns:
    """The verbs for one step that is taken bucket by bucket.

    Push-sum weights have one column and are the same in every bucket: they travel with the
    first one, and the others are handed what arrived then. Which calls those are is read off
    the first bucket, never off the numbers, so that all ranks decide alike.
    """

    def __init__(self, engine: Link) -> None:
        self.engine = engine
        self.seconds = 0.0  # spent in the engine
        self._shared: list[Tensor | None] = []  # by call: what came back, if it is for all
        self._width = self._call = 0
        self._places: Mapping[int, Tensor] = {}

    def next(self, width: int, places: Mapping[int, Tensor]) -> "Turns":
        """Begin the next bucket, of so many columns; the first has more than one if any has.

        ``places`` say, by the number of the call, where its result goes.
        """
        self._width, self._call, self._places = width, 0, places
        return self

    def pull(self, rows: Tensor, /) -> Tensor:
        """R X."""
        return self._mix("pull", rows)

    def push(self, rows: Tensor, /) -> Tensor:
        """C X."""
        return self._mix("push", rows)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return self._mix("mean", rows)

    def room(self, like: Tensor, /) -> Tensor | None:
        """Return memory from which rows leave without being copied, if the engine has it."""
        return self.engine.room(like)

    def _mix(self, verb: Literal["pull", "push", "mean"], rows: Tensor) -> Tensor:
        call, self._call = self._call, self._call + 1
        if call < len(self._shared):
            shared = self._shared[call]
            if shared is not None:
                return shared
        start = perf_counter()
        out = self._places.get(call)
        # Rows that are sent must stay as they are until they have left.
        into = {} if out is None or same_memory(rows, out) else {"out": out}
        mixed: Tensor = getattr(self.engine, verb)(rows, **into)
        self.seconds += perf_counter() - start
        if call == len(self._shared):
            self._shared.append(mixed if rows.shape[-1] == 1 < self._width else None)
        return mixed


class Alone:
    """One node by itself: shows what an algorithm does with its variables.

    Args:
        spoils: by the number of a mixing call, what it overwrites on the way.
    """

    def __init__(self, spoils: Mapping[int, Tensor] | None = None) -> None:
        self.came: list[Tensor] = []
        self._spoils = spoils or {}

    def pull(self, rows: Tensor, /) -> Tensor:
        return self._mix(rows)

    def push(self, rows: Tensor, /) -> Tensor:
        return self._mix(rows)

    def mean(self, rows: Tensor, /) -> Tensor:
        self._mix(rows)
        return rows.clone()  # not what came: this one has no place to go to

    def _mix(self, rows: Tensor) -> Tensor:
        spoilt = self._spoils.get(len(self.came))
        self.came.append(rows.clone())
        if spoilt is not None:
            spoilt.fill_(torch.nan)
        return self.came[-1]


def brought(algorithm: Algorithm[Any]) -> dict[int, str]:
    """Return which variable each mixing call brings, where the old one is not needed any more.

    Found by trying: the old one is spoilt during the call, and nothing else may change.

    >>> from digrad.algorithms import SGP, PushPull
    >>> brought(PushPull()), brought(SGP())  # Y, then X; numerators
    ({0: 'y', 1: 'x'}, {0: 'x'})
    """
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    s = algorithm.init(x)
    for k in range(2):
        s = algorithm.step(s, x + k, Alone(), 0.5)
    if any(value is None for value in s):
        return {}

    def step(spoils: Mapping[int, str]) -> tuple[Any, list[Tensor]]:
        own = type(s)(*(value.clone() for value in s))
        mixer = Alone({call: getattr(own, name) for call, name in spoils.items()})
        return algorithm.step(own, x + 7, mixer, 0.5), mixer.came

    wanted, came = step({})
    pairs = [
        (call, name)
        for call, rows in enumerate(came)
        for name, value in wanted._asdict().items()
        if value is rows and value.shape == x.shape
    ]
    return {call: name for call, name in pairs if _equal(step({call: name})[0], wanted)}


def _equal(state: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(state, other, strict=True))


def same_memory(value: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors share their memory."""
    if value is None or other is None:
        return False
    return value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
