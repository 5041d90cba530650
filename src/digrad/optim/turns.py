"""What the optimizer asks of an engine, and the wrapper that stands between for one step."""

from time import perf_counter
from typing import Literal, Protocol

from torch import Tensor

from digrad.algorithms.base import Roomy, Verb
from digrad.engines.processes import Sent


class Link(Protocol):
    """An engine that can also begin early, measure over all nodes, and end well."""

    rows: slice
    nodes: Tensor
    rank: int
    world: int
    blocks: tuple[int, ...]  # nodes of each rank
    sent: Sent

    def pull(self, rows: Tensor, /) -> Tensor: ...

    def push(self, rows: Tensor, /) -> Tensor: ...

    def mean(self, rows: Tensor, /) -> Tensor: ...

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

    def next(self, width: int) -> "Turns":
        """Begin the next bucket, of so many columns; the first has more than one if any has."""
        self._width, self._call = width, 0
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
        return self.engine.room(like) if isinstance(self.engine, Roomy) else None

    def _mix(self, verb: Literal["pull", "push", "mean"], rows: Tensor) -> Tensor:
        call, self._call = self._call, self._call + 1
        if call < len(self._shared):
            shared = self._shared[call]
            if shared is not None:
                return shared
        start = perf_counter()
        mixed: Tensor = getattr(self.engine, verb)(rows)
        self.seconds += perf_counter() - start
        if call == len(self._shared):
            self._shared.append(mixed if rows.shape[-1] == 1 < self._width else None)
        return mixed


class Alone:
    """One node by itself: shows which variables an algorithm keeps."""

    def pull(self, rows: Tensor, /) -> Tensor:
        return rows.clone()

    def push(self, rows: Tensor, /) -> Tensor:
        return rows.clone()

    def mean(self, rows: Tensor, /) -> Tensor:
        return rows.clone()
