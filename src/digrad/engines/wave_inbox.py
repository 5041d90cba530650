"""What the nodes of a wave have heard: parcels in their slots, weighed and added up."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from digrad.engines.event_state import Activation, StepSizes, VariableTable


class WeightedSlots(NamedTuple):
    """For each wake of a wave, weighted slots that are added up."""

    slots: Tensor
    places: Tensor  # where those of each wake begin
    weights: Tensor

    def summed(self, values: Tensor) -> Tensor:
        """Add up weighted rows; nothing is copied on the way."""
        table = values.flatten(1)
        found = functional.embedding_bag(
            self.slots, table, self.places, mode="sum", per_sample_weights=self.weights
        )
        return found.view(len(self.places), *values.shape[1:])

    @property
    def rows(self) -> Tensor:
        """Which wake each slot belongs to."""
        ends = torch.cat([self.places[1:], self.places.new_tensor([len(self.slots)])])
        return torch.repeat_interleave(ends - self.places)


class ParcelRoutes(NamedTuple):
    """Where the parcels of a wave go, and come from."""

    slots: Tensor  # of what the nodes give
    pull: WeightedSlots  # the newest of all links that end at them
    push: WeightedSlots  # what is read for the first time


class WaveInbox:
    """What the nodes of one wave have heard."""

    def __init__(
        self,
        sums: tuple[str, ...],
        parcels: VariableTable,
        steps: StepSizes,
        who: Activation,
        mail: ParcelRoutes,
        scales: tuple[Tensor, Tensor, Tensor],
        times: Any,
    ) -> None:
        self.who, self.slots = who, mail.slots
        self.own, self.kept, self.lr = scales
        self._parcels, self._steps, self._sums = parcels, steps, sums
        self._mail, self._times = mail, times
        self._pushed: dict[str, Tensor] = {}

    @property
    def now(self) -> Tensor:
        """When each of them wakes."""
        return torch.from_numpy(self._times).to(self.who.nodes.device)[:, None, None]

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value."""
        return self._mail.pull.summed(self._parcels[name])

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new; the same if asked again."""
        if name not in self._pushed:
            bags = self._mail.push
            if self._sums and name not in self._sums:  # a share, not what a sum has grown by
                bags = WeightedSlots(bags.slots[::2], bags.places // 2, bags.weights[::2])
            self._pushed[name] = bags.summed(self._parcels[name])
        return self._pushed[name]

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Σⱼ R[i, j] times the newest value, and Σⱼ R[i, j], of those that sent it since."""
        pull, push = self._mail.pull, self._mail.push
        step = 2 if self._sums else 1
        # The same slot may be old news to one wake and new to another.
        count = len(pull.places)
        fresh = torch.isin(pull.slots * count + pull.rows, (push.slots * count + push.rows)[::step])
        values = self._parcels[name]
        some = pull._replace(weights=pull.weights * fresh)
        return some.summed(values), some.summed(torch.ones_like(values[:, :1, :1]))

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values."""
        bags = self._mail.pull
        rows = self._parcels[name].index_select(0, bags.slots)
        most = rows.new_zeros((len(self.who.pairs), *rows.shape[1:]))
        places = bags.rows[:, None, None].expand_as(rows)
        return most.scatter_reduce_(0, places, rows, "amax")

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """The steps number first .. last."""
        return self._steps.total(first, last)
