"""Buckets: stretches of columns that take a step one after the other.

A recursion treats every column alike, so a step can be taken on a stretch of columns at a
time, and what it needs besides the state is bounded by the size of a stretch.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Mixer, method_name
from digrad.base.errors import ParameterError
from digrad.optim.bucket_mixer import same_memory
from digrad.optim.layout import Layout, ParameterSpan


class Bucket:
    """A stretch of columns of the models, and of the state.

    Where the point of an algorithm is one of its variables, the models are that variable:
    nothing is kept twice. Otherwise (push-sum: X/w) they are a copy.

    Args:
        columns: which, within one parameter group.
        group: the number of that group.
        models: the columns of all rows, shape (own nodes, columns); parameters are views of it.
        slots: the parameters with numbers in these columns, by their place among all.
    """

    def __init__(
        self,
        columns: slice,
        group: int,
        models: Tensor,
        slots: Sequence[tuple[int, ParameterSpan]],
        state: Any,
    ) -> None:
        self.columns, self.group, self.models, self.slots = columns, group, models, slots
        self.state = state

    @property
    def width(self) -> int:
        """How many columns."""
        return self.models.shape[1]

    def step(self, algorithm: Algorithm[Any], g: Tensor, mixer: Mixer, lr: float) -> None:
        """Take one step with the gradients g, which may be the parameters' own."""
        self.settle(algorithm, algorithm.step(self.state, g, mixer, lr), g)

    def places(self, overwrites: Sequence[str]) -> dict[str, Tensor]:
        """Return where results may be put: on variables that are given up, and nobody else has."""
        kept = [value for value in self.state if value is not None]
        memory = {value.untyped_storage().data_ptr() for value in kept}
        if len(memory) < len(kept):
            return {}
        old = {name: getattr(self.state, name) for name in overwrites}
        return {name: value for name, value in old.items() if self._fits(value)}

    def _fits(self, value: Tensor | None) -> bool:
        if value is None or value.shape != self.models.shape:  # push-sum weights are everybody's
            return False
        return value is self.models or value.is_contiguous()

    def settle(self, algorithm: Algorithm[Any], state: Any, lent: Tensor | None = None) -> None:
        """Take over a state, and put its point into the models; what is lent is copied."""
        point = algorithm.point(state)
        kept = {
            name: self._own_copy(name, value, state, lent)
            for name, value in state._asdict().items()
            if value is not None and value is not point
        }
        shown = {name: self.models for name, value in state._asdict().items() if value is point}
        if point is not self.models:
            self.models.copy_(point)
        self.state = state._replace(**kept, **shown)

    def _own_copy(self, name: str, value: Tensor, state: Any, lent: Tensor | None) -> Tensor:
        """Copy what lies in the models, which may change, in gradients or in larger memory."""
        if _owns_memory(value) and not any(
            same_memory(value, other) for other in (self.models, lent)
        ):
            return value
        before: Tensor | None = getattr(self.state, name)
        kept = any(same_memory(before, other) for other in (*state, self.models))
        if before is None or before.shape != value.shape or kept or not _owns_memory(before):
            return value.clone(memory_format=torch.contiguous_format)
        return before.copy_(value)  # where the last step's was, which is in the cache

    def gradients(self, layout: Layout, *, lend: bool) -> Tensor:
        """Gather the gradients of all own nodes; a parameter without one counts as zero.

        Where they lie in one piece and may be lent, they are not copied; nobody may change them.
        """
        if lend and len(self.slots) == len(layout.models) == 1:
            ((k, slot),) = self.slots
            piece = self._piece(slot, layout.models[0][k], self.models[0])
            return piece.unsqueeze(0)
        g = torch.empty_like(self.models, memory_format=torch.contiguous_format)
        for row, model in zip(g, layout.models, strict=True):
            torch.cat([self._piece(slot, model[k], row) for k, slot in self.slots], out=row)
        return g

    def _piece(self, slot: ParameterSpan, parameter: Tensor, row: Tensor) -> Tensor:
        first = max(slot.start, self.columns.start) - slot.start
        last = min(slot.stop, self.columns.stop) - slot.start
        if parameter.grad is None:
            return row.new_zeros(last - first)
        return slot.flat(parameter.grad)[first:last]


def _owns_memory(value: Tensor) -> bool:
    """Whether a tensor has all of its memory for itself, and a place for every number."""
    return value.untyped_storage().nbytes() == value.numel() * value.element_size()


def cut(
    layout: Layout, models: Tensor, algorithm: Algorithm[Any], bucket_bytes: int, most_rows: int
) -> list[Bucket]:
    """Cut the columns of each group into buckets, at the bounds of parameters if that will do.

    All ranks come to the same buckets, since ``most_rows`` is the largest number of rows of
    any. The first bucket has more than one column if any has: see ``Turns``.
    """
    if algorithm.columnwise or algorithm.grain:
        most = max(2, bucket_bytes // (most_rows * models.element_size()))
    elif len(layout.groups) == 1:
        most = layout.dim
    else:
        what = f"{method_name(algorithm)} looks at whole rows, which {len(layout.groups)} groups"
        hint = "give it all parameters as one group"
        raise ParameterError(f"{what} of parameters would cut", hint=hint)
    buckets = []
    for group in range(len(layout.groups)):
        own = [(k, slot) for k, slot in enumerate(layout.slots) if slot.group == group]
        for start, stop in pairwise(_edges([slot for _, slot in own], most, algorithm.grain)):
            part = models[:, start:stop]
            slots = [(k, slot) for k, slot in own if slot.start < stop and slot.stop > start]
            columns = slice(start, stop)
            buckets.append(Bucket(columns, group, part, slots, algorithm.init(part)))
    buckets.sort(key=lambda bucket: bucket.width == 1)  # stable: the others keep their order
    return buckets


def _edges(slots: Sequence[ParameterSpan], most: int, grain: int = 0) -> list[int]:
    """Return where buckets begin and end: small parameters together, large ones in even parts.

    With a grain, all but the last have a multiple of so many columns.
    """
    if grain and slots:
        width = max(grain, most - most % grain)
        return [*range(slots[0].start, slots[-1].stop, width), slots[-1].stop]
    edges = [slots[0].start] if slots else []
    for slot in slots:
        if slot.stop - edges[-1] <= most:
            continue
        if slot.start > edges[-1]:
            edges.append(slot.start)
        width = slot.stop - slot.start
        count = -(-width // most)
        edges += [slot.start + width * k // count for k in range(1, count)]
    return [*edges, slots[-1].stop] if slots else []
