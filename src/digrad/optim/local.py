"""All nodes in this process, for trying things out without a launcher."""

import torch
from torch import Tensor

from digrad.algorithms.contract import Change, Code, Verb
from digrad.engines.processes.engine import Sent
from digrad.engines.simulator import Simulator
from digrad.networks.network import Network


class LocalEngine:
    """A simulator with what else the optimizer asks of an engine; nothing travels."""

    rank, world = 0, 1

    def __init__(self, net: Network, *, device: torch.device, dtype: torch.dtype) -> None:
        self._simulator = Simulator(net, device=device, dtype=dtype)
        self.rows, self.nodes = self._simulator.rows, self._simulator.nodes
        self.blocks: tuple[int, ...] = (net.n,)
        self.sent = Sent()
        self._links = len(net.pull_graph.edges), len(net.push_graph.edges)

    def at(self, t: int) -> "LocalEngine":
        """Return the mixer of step t: this one, since the network stays as it is."""
        return self

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """R(X + Σ αD)."""
        self._count(self._links[0], rows)
        return _placed(self._simulator.pull(rows, *changes), out)

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """C(X + Σ αD)."""
        self._count(self._links[1], rows)
        return _placed(self._simulator.push(rows, *changes), out)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return self._simulator.mean(rows)

    def coded(self, code: Code) -> "Counted":
        """Return a mixer for the rows that a code stands for: their bytes are counted."""
        return Counted(self, code)

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X; all rows are here, so nothing is encoded."""
        self._count(self._links[verb == "push"], rows, code.row_bytes(rows))
        mixed: Tensor = getattr(self._simulator, verb)(rows)
        return mixed

    def _count(self, links: int, rows: Tensor, size: int | None = None) -> None:
        self.sent.messages += links
        self.sent.bytes += links * (size or rows.shape[-1] * rows.element_size())

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Do nothing: all rows are here."""

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


class Counted:
    """The verbs for rows in a code."""

    def __init__(self, engine: LocalEngine, code: Code) -> None:
        self._engine, self._code = engine, code

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R X."""
        return self._engine.mix_coded("pull", rows, self._code)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C X."""
        return self._engine.mix_coded("push", rows, self._code)

    def mean(self, rows: Tensor, /) -> Tensor:
        """(1/n) 11ᵀ X."""
        return self._engine.mean(rows)


def _placed(rows: Tensor, out: Tensor | None) -> Tensor:
    return rows if out is None else out.copy_(rows)
