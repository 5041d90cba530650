"""The nodes live on several processes, which talk over torch.distributed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

import torch
import torch.distributed as dist
from scipy.sparse import csr_array
from torch import Tensor
from torch.distributed import Store

import digrad
from digrad.algorithms.contract import Verb
from digrad.base.errors import ParameterError
from digrad.engines.processes.collectives import Collectives
from digrad.engines.processes.exchange import RankMatrix, in_one_chunk
from digrad.engines.processes.faults import Faults, Naming, Notices, StoreError, next_corner
from digrad.engines.processes.handshake import (
    compare,
    connect_near,
    exchange_hellos,
    fingerprint,
    uses_shared_memory,
)
from digrad.engines.processes.linked import LinkedRows
from digrad.engines.processes.routes import bounds_of, route
from digrad.engines.processes.step_mixers import StepMixer, StepRoutes
from digrad.engines.transports.buffers import keep_freed_memory
from digrad.engines.transports.shared_memory import SharedMemory
from digrad.engines.transports.torch_wire import TorchWire
from digrad.engines.transports.transport import Split
from digrad.networks.network import Network, Slot
from digrad.networks.registry import AnyNetwork

EXACT = torch.float64
TAGS = 1 << 20  # of one engine
KINDS = {"pull": 0, "push": 1}  # of exchanges; 2: among all ranks
KIND_TAGS = TAGS // 4  # exchanges of one engine before its tags begin anew


class Processes(LinkedRows):
    """The nodes of one rank, and the way to all others; a mixer like ``Simulator``.

    Rows are (..., own nodes, dim), in the dtype given; leading axes are free. Every rank
    makes the same calls in the same order. A rank that ends, hangs or was started
    differently makes every other raise an error that names it, within ``timeout`` and a
    few seconds.

    Args:
        net: the network, which may change; all ranks must give the same.
        group: a process group of torch.distributed; the default one if none.
        blocks: how many nodes each rank holds; as even as possible if none.
        message_dtype: what rows are rounded to when they travel; a node's own row never
            is, and neither are rows of one number (push-sum weights).
        timeout: seconds to wait for any other rank.
        shared_memory: whether ranks of one machine exchange rows through memory; by default
            where the system can.
        about: what else has to be the same on all ranks, as text.
        store: where ranks find each other; the default process group's if none.
    """

    rows: slice
    nodes: Tensor

    def __init__(
        self,
        net: AnyNetwork,
        *,
        group: Any = None,
        blocks: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        message_dtype: torch.dtype | None = None,
        timeout: float = 60.0,
        shared_memory: bool | Literal["auto"] = "auto",
        about: Mapping[str, str] | None = None,
        store: Store | None = None,
    ) -> None:
        super().__init__(dtype, message_dtype)
        group = _check_group(group)
        self.network = net
        self.rank, self.world, self.n = dist.get_rank(group), dist.get_world_size(group), net.n
        self._device, self._exchanges = torch.device(device), 0
        self._store, self._tag = _own_store(group, store, timeout)
        keep_freed_memory()
        hello = {
            "digrad": digrad.__version__,
            "torch": torch.__version__,
            "n": str(net.n),
            **_about(net),
            "blocks": "even" if blocks is None else " ".join(map(str, blocks)),
            "dtype": str(dtype),
            "message_dtype": str(self._message_dtype),
            **(about or {}),
        }
        compare(exchange_hellos(self._store, self.rank, self.world, hello, timeout))
        bounds = bounds_of(net.n, self.world, blocks)
        self.blocks = tuple((bounds[1:] - bounds[:-1]).tolist())
        self.rows = slice(int(bounds[self.rank]), int(bounds[self.rank + 1]))
        self.nodes = torch.arange(self.rows.start, self.rows.stop, device=self._device)
        self._bounds = bounds
        self._mixing = self._mixings(net) if isinstance(net, Network) else {}
        self._step_routes = None if isinstance(net, Network) else StepRoutes(net, self)
        self._connect(group, timeout, shared_memory)

    def _mixings(self, slot: Slot) -> dict[Verb, RankMatrix]:
        return {"pull": self.mixing(slot.R), "push": self.mixing(slot.C)}

    def mixing(self, W: csr_array) -> RankMatrix:
        """Work out this rank's part of the product with a matrix."""
        own = route(W, self._bounds, self.rank)
        return RankMatrix.make(own, self._device, self.dtype, self._message_dtype)

    def _connect(self, group: Any, timeout: float, shared_memory: bool | Literal["auto"]) -> None:
        used = self._step_routes.all() if self._step_routes else list(self._mixing.values())
        peers = {peer for mixing in used for peer in mixing.route.peers}
        wire = TorchWire(group, self._device, timeout)
        self._collectives = Collectives(wire, self.rank, self.world, self._number)
        willing = uses_shared_memory(shared_memory) and not wire.on_device
        near = connect_near(self._store, self.rank, peers, timeout, willing=willing)
        self._near = SharedMemory(near, timeout) if near else None
        self._transport = wire
        if self._near is not None:
            self._transport = (
                self._near if len(near) == len(peers) else Split(self._near, near, wire)
            )
        notices = Notices(self._store, self.rank, self.world, min(5.0, max(1.0, timeout / 4)))
        self._faults = Faults(notices, timeout, lambda: self._hang_up(wire))
        # Rows that leave whole, as they are and through memory alone need not be copied there.
        plain = self._message_dtype == self.dtype and self._device.type == "cpu"
        self._direct = plain and self._transport is self._near

    def _hang_up(self, wire: TorchWire) -> None:
        self._transport.close()
        wire.hang_up()

    def at(self, t: int) -> "Processes | StepMixer":
        """Return the mixer of step t: this one, where the network stays as it is."""
        return self if self._step_routes is None else self._step_routes.at(t)

    def _room(self, mixing: RankMatrix, like: Tensor) -> Tensor | None:
        """Return shared memory, from which rows leave without being copied, where that is."""
        near = self._near if self._direct and mixing.whole and in_one_chunk(like) else None
        return None if near is None else near.room(tuple(like.shape), like.dtype)

    def _check(self, rows: Tensor) -> None:
        own = self.rows.stop - self.rows.start
        if rows.dim() < 2 or rows.shape[-2] != own or rows.dtype != self.dtype:
            what = f"rank {self.rank} holds {own} nodes in {self.dtype}, but was given rows "
            what += f"of shape {tuple(rows.shape)} in {rows.dtype}"
            hint = "rows are (..., own nodes, dim), in the engine's dtype"
            raise ParameterError(what, hint=hint)

    def _number(self, verb: str) -> tuple[int, Naming]:
        """Return the tag of the next exchange, and the block that names who fails in it."""
        self._exchanges += 1
        doing = f"in exchange {self._exchanges} ({verb})"
        # Where a rank took one step fewer, no sum must take a row of a step for its own.
        kind = KINDS.get(verb, 2)
        tag = self._tag + kind * KIND_TAGS + self._exchanges % KIND_TAGS
        return tag, Naming(self._faults, doing)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all; not counted, since no link is used."""
        total = self._weighted(rows, rows.new_ones(self.n), rows.dtype, "mean")
        return (total / self.n).unsqueeze(-2).expand_as(rows)

    def weighted(self, rows: Tensor, weights: Tensor, /) -> Tensor:
        """Return Σᵢ wᵢ xᵢ over all n nodes, on every rank, in float64; not counted."""
        return self._weighted(rows, weights, EXACT, "weighted")

    def _weighted(self, rows: Tensor, weights: Tensor, dtype: torch.dtype, verb: str) -> Tensor:
        self._check(rows)
        own = weights.to(self._device, dtype)[self.rows]

        def part(columns: slice) -> Tensor:
            return torch.einsum("n,...nd->...d", own, rows[..., columns].to(dtype))

        like = rows.new_empty(rows.shape[:-2], dtype=dtype)
        return self._collectives.total(part, rows.shape[-1], like, verb)

    def gather(self, rows: Tensor, /) -> Tensor:
        """Return the rows of all nodes, on every rank; not counted."""
        self._check(rows)
        return self._collectives.gather(rows, self.blocks, "gather")

    def fail(self, reason: str) -> None:
        """Tell the other ranks why this one stops, so that their errors can say so."""
        self._faults.tell(reason)

    def close(self) -> None:
        """Give back what the engine holds; the process group stays."""
        self._begun.clear()
        self._transport.close()

    def __enter__(self) -> "Processes":
        """Use the engine in a ``with`` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; other ranks hear of an exception."""
        if error is not None:
            with suppress(StoreError):  # then nobody is left to hear it
                self.fail(f"{type(error).__name__}: {error}")
        self.close()


def _about(net: AnyNetwork) -> dict[str, str]:
    """Say in few letters which network it is."""
    if isinstance(net, Network):
        return {"R": fingerprint(net.R), "C": fingerprint(net.C)}
    return {"timetable": net.digest()[:16]}


def _check_group(group: Any) -> Any:
    if not dist.is_available() or not dist.is_initialized():
        what = "there is no process group"
        hint = "call torch.distributed.init_process_group() first, under torchrun"
        raise ParameterError(what, hint=hint)
    return dist.group.WORLD if group is None else group


def _own_store(group: Any, store: Store | None, timeout: float) -> tuple[Store, int]:
    """Return a corner of the store, and tags, for one more engine of a process group."""
    members = "-".join(map(str, dist.get_process_group_ranks(group)))
    base = store if store is not None else dist.distributed_c10d._get_default_store()
    corner, number = next_corner(base, f"digrad/{members}", dist.get_rank(group), timeout)
    return corner, (number % 64 + 1) * TAGS
