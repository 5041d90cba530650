"""All nodes in this process, for trying things out without a launcher."""

from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Change, Code, Verb
from digrad.engines.changing import simulator
from digrad.engines.processes.linked import CodedMixer, SentCounter
from digrad.networks.network import Network, Slot
from digrad.networks.registry import AnyNetwork


class LocalMixer:
    """The mixer of one step: that of a simulator, with results put where one is told.

    Args:
        net: the simulator's mixer.
        slot: the weights of this step, whose links are counted.
        sent: what counts them.
    """

    def __init__(self, net: Any, slot: Slot, sent: SentCounter) -> None:
        self._net, self._sent = net, sent
        self._links = tuple(int((W.tocoo().row != W.tocoo().col).sum()) for W in (slot.R, slot.C))

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """R(X + Σ αD)."""
        self._count(self._links[0], rows)
        return _write_to(self._net.pull(rows, *changes), out)

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """C(X + Σ αD)."""
        self._count(self._links[1], rows)
        return _write_to(self._net.push(rows, *changes), out)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        mean: Tensor = self._net.mean(rows)
        return mean

    def parcels(self, rows: Tensor, /, *changes: Change) -> list[Tensor]:
        """Return what each link brings, where messages are lost that nobody hears of."""
        self._count(self._links[1], rows)
        brought: list[Tensor] = self._net.parcels(rows, *changes)
        return brought

    @property
    def arrives(self) -> Tensor | None:
        """Which of that arrives; none where nothing is lost in silence."""
        return getattr(self._net, "arrives", None)

    def coded(self, code: Code) -> CodedMixer:
        """Return a mixer for the rows that a code stands for: their bytes are counted."""
        return CodedMixer(self, code)

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X; all rows are here, so nothing is encoded."""
        self._count(self._links[verb == "push"], rows, code.row_bytes(rows))
        mixed: Tensor = getattr(self._net, verb)(rows)
        return mixed

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Do nothing: all rows are here."""

    def _count(self, links: int, rows: Tensor, size: int | None = None) -> None:
        self._sent.messages += links
        self._sent.bytes += links * (size or rows.shape[-1] * rows.element_size())


class LocalEngine:
    """A simulator with what else the optimizer asks of an engine; nothing travels."""

    rank, world = 0, 1

    def __init__(self, net: AnyNetwork, *, device: torch.device, dtype: torch.dtype) -> None:
        self.network, self._simulator = net, simulator(net, device=device, dtype=dtype)
        self.rows, self.nodes = self._simulator.rows, self._simulator.nodes
        self.blocks: tuple[int, ...] = (net.n,)
        self.sent = SentCounter()
        self._last: tuple[int, LocalMixer] | None = None

    def at(self, t: int) -> LocalMixer:
        """Return the mixer of step t."""
        stays = isinstance(self.network, Network)
        if self._last is None or not (stays or self._last[0] == t):
            slot = self.network if isinstance(self.network, Network) else self.network.at(t)
            self._last = t, LocalMixer(self._simulator.at(t), slot, self.sent)
        return self._last[1]

    def forget(self) -> None:
        """Do nothing."""

    def gather(self, rows: Tensor, /) -> Tensor:
        """Return the rows of all nodes: these."""
        return rows

    def weighted(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return Σᵢ wᵢ xᵢ, in double precision."""
        return weights.to(rows.device, torch.float64) @ rows.to(torch.float64)

    def fail(self, reason: str) -> None:
        """Do nothing: there is nobody to tell."""

    def close(self) -> None:
        """Do nothing."""


def _write_to(rows: Tensor, out: Tensor | None) -> Tensor:
    return rows if out is None else out.copy_(rows)
