"""What the optimizer asks of an engine, and the wrapper that stands between for one step."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor

from digrad.algorithms.compression.mixer import draw_uniforms
from digrad.algorithms.contract import Change, Code, Mixer, Verb
from digrad.base.counters import Sampler
from digrad.engines.processes.linked import CodedMixer, SentCounter
from digrad.networks import AnyNetwork

T = TypeVar("T")


class OutMixer(Protocol):
    """A mixer that puts results where it is told, and can begin early."""

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor: ...

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor: ...

    def mean(self, rows: Tensor, /) -> Tensor: ...

    def coded(self, code: Code) -> Mixer:
        """Return a mixer for the rows that a code stands for."""
        ...

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Start sending rows that the next call of the verb will be handed, unchanged."""
        ...


class OptimizerEngine(Protocol):
    """An engine that can also measure over all nodes, and end well."""

    network: AnyNetwork
    rows: slice
    nodes: Tensor
    rank: int
    world: int
    blocks: tuple[int, ...]  # nodes of each rank
    sent: SentCounter

    def at(self, t: int) -> OutMixer:
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


class BucketMixer:
    """The verbs for one step that is taken bucket by bucket.

    Push-sum weights have one column and are the same in every bucket: they travel with the
    first one, and the others are handed what arrived then. Which calls those are is read off
    the first bucket, never off the numbers, so that all ranks decide alike.

    Args:
        sampler: draws for the nodes here; asked by random compressors only.
        t: the number of the step.
    """

    def __init__(self, net: OutMixer, sampler: Sampler, t: int) -> None:
        self.net, self._sampler, self._t = net, sampler, t
        self.seconds = 0.0  # spent in its verbs
        self._shared: list[Any] = []  # by call: what came back, if it is for all
        self._width = self._call = self._first = 0
        self._places: dict[str, Tensor] = {}

    def next(self, columns: slice, places: Mapping[str, Tensor]) -> "BucketMixer":
        """Begin the bucket of these columns; the first has more than one if any has.

        ``places`` say, by the name of a variable, where what replaces it may be put, once.
        """
        self._first, self._width = columns.start, columns.stop - columns.start
        self._call, self._places = 0, dict(places)
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

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1) by purpose, node, step and column: see ``Drawing``."""
        return draw_uniforms(self._sampler, self._t, self._first, like, purpose, nodes)

    def coded(self, code: Code) -> CodedMixer:
        """Return the verbs for rows in a code."""
        return CodedMixer(self, code)

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X for rows in a code."""
        net = self.net.coded(code)
        mix = net.pull if verb == "pull" else net.push
        return self._once(rows, lambda: mix(rows))

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


class LossyBucketMixer(BucketMixer):
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


def bucket_mixer(net: OutMixer, sampler: Sampler, t: int) -> BucketMixer:
    """Return the verbs for one step."""
    kind = BucketMixer if getattr(net, "arrives", None) is None else LossyBucketMixer
    return kind(net, sampler, t)


def same_memory(value: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors share their memory."""
    if value is None or other is None:
        return False
    return value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
