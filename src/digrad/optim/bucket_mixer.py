"""What the optimizer asks of an engine, and the wrapper that stands between for one step."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor

from digrad.algorithms.contract import Change, Verb
from digrad.engines.processes.engine import Sent

T = TypeVar("T")


class Landing(Protocol):
    """A mixer that puts results where it is told, and can begin early."""

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor: ...

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor: ...

    def mean(self, rows: Tensor, /) -> Tensor: ...

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Start sending rows that the next call of the verb will be handed, unchanged."""
        ...


class Link(Protocol):
    """An engine that can also measure over all nodes, and end well."""

    rows: slice
    nodes: Tensor
    rank: int
    world: int
    blocks: tuple[int, ...]  # nodes of each rank
    sent: Sent

    def at(self, t: int) -> Landing:
        """Return the mixer of step t."""
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

    def __init__(self, net: Landing) -> None:
        self.net = net
        self.seconds = 0.0  # spent in its verbs
        self._shared: list[Any] = []  # by call: what came back, if it is for all
        self._width = self._call = 0
        self._places: dict[str, Tensor] = {}

    def next(self, width: int, places: Mapping[str, Tensor]) -> "Turns":
        """Begin the next bucket, of so many columns; the first has more than one if any has.

        ``places`` say, by the name of a variable, where what replaces it may be put, once.
        """
        self._width, self._call, self._places = width, 0, dict(places)
        return self

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD)."""
        out = self._place(rows, changes, of)
        return self._once(rows, lambda: self.net.pull(rows, *changes, of=of, out=out))

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD)."""
        out = self._place(rows, changes, of)
        return self._once(rows, lambda: self.net.push(rows, *changes, of=of, out=out))

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return self._once(rows, lambda: self.net.mean(rows))

    def _place(self, rows: Tensor, changes: Sequence[Change], of: str) -> Tensor | None:
        # Rows that are sent must stay as they are until they have left; changed rows are others.
        if not changes and same_memory(rows, self._places.get(of)):
            return None
        return self._places.pop(of, None)  # later calls of that name may still need this result

    def _once(self, rows: Tensor, mix: Callable[[], T]) -> T:
        call, self._call = self._call, self._call + 1
        if call < len(self._shared):
            shared = self._shared[call]
            if shared is not None:
                return cast(T, shared)
        start = perf_counter()
        mixed = mix()
        self.seconds += perf_counter() - start
        if call == len(self._shared):
            self._shared.append(mixed if rows.shape[-1] == 1 < self._width else None)
        return mixed


class LossyTurns(Turns):
    """The same, where messages are lost that nobody hears of."""

    net: Any

    @property
    def arrives(self) -> Tensor:
        """Which of the parcels arrive."""
        arrives: Tensor = self.net.arrives
        return arrives

    def parcels(self, rows: Tensor, /, *changes: Change) -> list[Tensor]:
        """Return what each node keeps, then what each link into it brings."""
        return self._once(rows, lambda: self.net.parcels(rows, *changes))


def turns(net: Landing) -> Turns:
    """Return the verbs for one step."""
    return Turns(net) if getattr(net, "arrives", None) is None else LossyTurns(net)


def same_memory(value: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors share their memory."""
    if value is None or other is None:
        return False
    return value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
