"""Every node on one device, and a network that changes: mixing is a product with other matrices."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from digrad.algorithms.contract import Change, add_changes
from digrad.engines.simulator import MatrixMixer, Simulator, WeightMatrix, is_sparse
from digrad.networks.network import Slot
from digrad.networks.registry import AnyNetwork
from digrad.networks.timetable import Timetable

AHEAD_NUMBERS = 4_000_000  # in the matrices that are drawn ahead of the steps that use them
AT_ONCE = 8  # steps that are fused or recorded together, so that a stretch holds whole blocks
Parts = tuple[Tensor, ...]  # of some steps, or of one: R and C, and what ``Parcels`` needs


def simulator(
    net: AnyNetwork, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> "Simulator | ChangingSimulator":
    """Return the engine for all nodes of a network here, which may change."""
    if isinstance(net, Timetable):
        return ChangingSimulator(net, device=device, dtype=dtype)
    return Simulator(net, device=device, dtype=dtype)


def mixes_sparsely(net: AnyNetwork) -> bool:
    """Whether a product of any step is sparse, which cannot be fused."""
    slots = net.slots if isinstance(net, Timetable) else (net,)
    return any(is_sparse(W) for slot in slots for W in (slot.R, slot.C))


class ChangingMixer(MatrixMixer):
    """The mixer of one step."""

    def __init__(self, pull: WeightMatrix, push: WeightMatrix) -> None:
        self._pull, self._push = pull, push


class LossyMixer(ChangingMixer):
    """The mixer of one step in which messages may be lost silently.

    It hands out what each link brings, and does not add it up: see ``algorithms.transit``.
    """

    def __init__(
        self, pull: WeightMatrix, push: WeightMatrix, inflow: Parts, senders: Tensor
    ) -> None:
        super().__init__(pull, push)
        self._own, self._shares, self.arrives = inflow
        self._senders = senders

    def parcels(self, rows: Tensor, /, *changes: Change) -> list[Tensor]:
        """Return what each node keeps, then what its first link brings, and so on."""
        rows = add_changes(rows, changes)
        links = zip(self._shares, self._senders, strict=True)
        return [self._own * rows, *(share * rows.index_select(-2, j) for share, j in links)]


class ChangingSimulator:
    """All nodes of a timetable here; leading axes are free, as in ``Simulator``."""

    def __init__(
        self,
        net: Timetable,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.n, self.rows = net.n, slice(0, net.n)
        self.nodes = torch.arange(net.n, device=device)
        self._net, self._device, self._dtype = net, torch.device(device), dtype
        senders = np.where(net.in_links < 0, np.arange(net.n), net.in_links)
        self._senders = torch.from_numpy(senders).to(device)
        self._fixed: dict[
            int | None, ChangingMixer
        ] = {}  # by slot, where nothing is left to chance
        self._ahead: tuple[int, Parts] = (-1, ())  # a stretch of steps, by its number
        most = AHEAD_NUMBERS // net.n**2 // AT_ONCE * AT_ONCE
        self._width = min(256, most) if net.is_random else net.period + AT_ONCE
        fits = 0 < self._width <= most
        self.stacks = fits and not net.is_fixed and not mixes_sparsely(net)

    def at(self, t: int) -> ChangingMixer:
        """Return the mixer of step t; where two steps mix alike, the same one."""
        if not self._net.is_random:
            place = self._net.place(t)
            if place not in self._fixed:
                self._fixed[place] = self._turn(self._net.at(t))
            return self._fixed[place]
        if self.stacks:
            stack, first = self._stretch(t)
            return self.mixer(*(part[t - first] for part in stack))
        slot = self._net.at(t)
        turn = self._turn(slot)
        if not self._net.chances.silent:
            return turn
        inflow = tuple(part[0] for part in self._inflow(range(t, t + 1)))
        return LossyMixer(turn._pull, turn._push, inflow, self._senders)

    def stack(self, steps: range) -> Parts:
        """Return what the mixers of some steps are made of, steps first; see ``mixer``."""
        stack, first = self._stretch(steps.start)
        return tuple(part[steps.start - first : steps.stop - first] for part in stack)

    def mixer(self, pull: Tensor, push: Tensor, *inflow: Tensor) -> ChangingMixer:
        """Return the mixer of one step from its part of ``stack``."""
        if not inflow:
            return ChangingMixer(WeightMatrix(pull), WeightMatrix(push))
        return LossyMixer(WeightMatrix(pull), WeightMatrix(push), inflow, self._senders)

    def _turn(self, slot: Slot) -> ChangingMixer:
        pull, push = (WeightMatrix.of(W, self._device, self._dtype) for W in (slot.R, slot.C))
        return ChangingMixer(pull, push)

    def _stretch(self, t: int) -> tuple[Parts, int]:
        """Return the parts of a stretch of steps with t in it, and its first step."""
        if not self._net.is_random:  # a period, and as many steps beyond as are taken together
            if not self._ahead[1]:
                self._ahead = 0, self._made(range(self._width))
            return self._ahead[1], t - t % self._net.period
        number = t // self._width
        if self._ahead[0] != number:
            first = number * self._width
            self._ahead = number, self._made(range(first, first + self._width))
        return self._ahead[1], number * self._width

    def _made(self, steps: range) -> Parts:
        R, C = self._net.dense(steps)
        both = self._there(R), self._there(C)
        return both + (self._inflow(steps, C) if self._net.chances.silent else ())

    def _inflow(self, steps: range, C: Any = None) -> Parts:
        own, shares, arrives = self._net.inflow(steps, C)
        return tuple(self._there(part[..., None]) for part in (own, shares, arrives))

    def _there(self, array: Any) -> Tensor:
        made = torch.from_numpy(np.ascontiguousarray(array))
        made = made if made.dtype == torch.bool else made.to(self._dtype)
        # From pinned memory, which a GPU reads in its turn: for any other, all would have to wait.
        on_gpu = self._device.type == "cuda"
        return made.pin_memory().to(self._device, non_blocking=True) if on_gpu else made
