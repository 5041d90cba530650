"""How a process takes part in a run: what ``engine=`` of ``Decentralized`` stands for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import distributed

import digrad
from digrad.base.errors import DigradError, ParameterError
from digrad.base.former_names import FormerNameWarning
from digrad.base.notices import notice
from digrad.base.own_code import is_own
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.faults import PeerError
from digrad.engines.processes.handshake import fingerprint
from digrad.engines.processes.routes import bounds_of
from digrad.networks import TIMETABLES, TOPOLOGIES, AnyNetwork, Network, as_any, build_any
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.buffers import Buffers
from digrad.optim.groups import check_numbers
from digrad.optim.layout import Layout
from digrad.optim.local import LocalEngine
from digrad.optim.rows import Rows

Restart: TypeAlias = Literal["as it is", "from one model", "from the models"]
Restarts: TypeAlias = Callable[[OptimizerEngine, Restart], None]  # of a method, on a new engine
T = TypeVar("T")
BUCKET_BYTES = {"cpu": 2 << 20}  # of the models that are stepped at a time


class Participation(ABC):
    """What an optimizer asks of the way in which its nodes are joined with the others.

    The defaults are those of a run whose nodes stay the same from the first step to the last.

    Args:
        message_dtype: in which rows travel, for example ``torch.bfloat16``; own rows stay exact.
        bucket_bytes: how much of the models is stepped at a time; by default 2 MB on a CPU, whose
            cache then holds what a step needs besides the state, and 25 MB elsewhere.
        overlap: whether rows that can leave before the next gradient do, which takes memory for
            them on the receiving side. The results are the same bits.
    """

    group: Any = None  # of torch.distributed
    common_start = True  # whether node 0's model may replace those of the others
    left = False  # whether the node here has left the run
    not_storable = ""  # why the state of all nodes cannot be stored, if it cannot
    epochs: Sequence[Any] = ()  # of peers: who took part from which step on

    def __init__(
        self, message_dtype: torch.dtype | None, bucket_bytes: int | None, overlap: bool
    ) -> None:
        check_numbers(bucket_bytes=bucket_bytes or 0)
        self.message_dtype, self.bucket_bytes, self.overlap = message_dtype, bucket_bytes, overlap

    def step_options(self, layout: Layout) -> dict[str, Any]:
        """Return how ``Rows`` takes its steps; the same everywhere."""
        default = BUCKET_BYTES.get(layout.like.device.type, 25 << 20)
        bucket_bytes = default if self.bucket_bytes is None else self.bucket_bytes
        return {"bucket_bytes": bucket_bytes, "overlap": self.overlap}

    @abstractmethod
    def network(self, given: Any, layout: Layout) -> AnyNetwork:
        """Return the network of all nodes, from what the user has given, or none."""

    @abstractmethod
    def connect(self, net: AnyNetwork, layout: Layout, about: Mapping[str, str]) -> OptimizerEngine:
        """Join the nodes here with the others; ``about`` must be the same everywhere."""

    def enter(self, rows: Rows, buffers: Buffers, restart: Restarts) -> int:
        """Get the models ready for the first step; return how many steps are behind them."""
        return 0

    def members(self, net: AnyNetwork) -> tuple[str, ...]:
        """Return the names of the nodes that take part now."""
        return tuple(net.name(i) for i in range(net.n))

    def step(self, take: Callable[[], float]) -> float | None:
        """Take a step; return the seconds spent in exchanges, none if the node has left."""
        return take()

    def sum(self, compute: Callable[[], T], behind: Callable[[], T] | None = None) -> T:
        """Return what all nodes compute together.

        Args:
            compute: does it, on every node.
            behind: replaces it on a node where the others have gone on; by default the mean of
                their models.
        """
        return compute()

    def close(self, engine: OptimizerEngine) -> None:
        """End the exchange with the others."""
        with suppress(PeerError):  # what is still under way is of no use
            engine.forget()
        engine.close()
        # A collective's threads may still hold its tensors, and the process aborts if Python ends
        # before they let go, for which they need it for a moment.
        sleep(0.02)

    def leave(self) -> None:
        """Leave the run before its end, while the others go on."""
        raise ParameterError("only peers can leave", hint="close() ends all")

    def rejoin(self) -> int:
        """Join a run again that has gone on without this node; return its steps."""
        raise ParameterError("only peers can join again", hint="start all again")


class ProcessParticipation(Participation):
    """All nodes in this process, or one rank of torch.distributed with a node or a block of nodes.

    >>> import digrad as dg
    >>> dg.processes(timeout=20.0).timeout
    20.0

    Args:
        timeout: seconds after which a rank that does not answer is given up.
        shared_memory: whether ranks on one machine exchange rows through memory.
        blocks: how many nodes each rank holds; as even as possible by default.
        group: the process group, the default one by default.
        message_dtype: in which rows travel, for example ``torch.bfloat16``; own rows stay exact.
        bucket_bytes: how much of the models is stepped at a time; by default 2 MB on a CPU, whose
            cache then holds what a step needs besides the state, and 25 MB elsewhere.
        overlap: whether rows that can leave before the next gradient do, which takes memory for
            them on the receiving side. The results are the same bits.
    """

    def __init__(
        self,
        *,
        timeout: float = 60.0,
        shared_memory: bool | Literal["auto"] = "auto",
        blocks: Sequence[int] | None = None,
        group: Any = None,
        message_dtype: torch.dtype | None = None,
        bucket_bytes: int | None = None,
        overlap: bool = True,
    ) -> None:
        super().__init__(message_dtype, bucket_bytes, overlap)
        self.timeout, self.shared_memory = timeout, shared_memory
        self.blocks, self.group = blocks, group

    def network(self, given: Any, layout: Layout) -> AnyNetwork:
        """Make the network; a topology's name gets as many nodes as there are models."""
        if given is None:
            hint = 'pass one, as "exponential", or engine=dg.peers("run.toml")'
            raise ParameterError("no network is given", hint=hint)
        if not isinstance(given, str | Path):
            return as_any(given)
        named = str(given) in {**TOPOLOGIES, **TIMETABLES} or is_own(str(given))
        return build_any(str(given), self._nodes(layout) if named else None)

    def _nodes(self, layout: Layout) -> int:
        """Return how many nodes there are on all ranks."""
        if self.blocks is not None:
            return int(sum(self.blocks))
        return len(layout.models) * (distributed.get_world_size(self.group) if spread() else 1)

    def connect(self, net: AnyNetwork, layout: Layout, about: Mapping[str, str]) -> OptimizerEngine:
        """Join the nodes of this process with those of the other ranks.

        Without a process group all nodes must be here.
        """
        own, like = len(layout.models), layout.like
        if spread():
            self._check_own(net.n, layout)
            return Processes(
                net,
                group=self.group,
                blocks=self.blocks,
                device=like.device,
                dtype=like.dtype,
                message_dtype=self.message_dtype,
                timeout=self.timeout,
                shared_memory=self.shared_memory,
                about=about,
            )
        if own != net.n:
            what = f"the network has {net.n} nodes, but this process holds {own} and is alone"
            hint = "call torch.distributed.init_process_group() and start with torchrun, or "
            hint += f"pass a list of {net.n} models' parameters to play all nodes here"
            raise ParameterError(what, hint=hint)
        return LocalEngine(net, device=like.device, dtype=like.dtype)

    def _check_own(self, n: int, layout: Layout) -> None:
        world, rank = distributed.get_world_size(self.group), distributed.get_rank(self.group)
        own = len(layout.models)
        if n != world and not layout.is_block:
            what = f"the network has {n} nodes, but there are {world} ranks with one model each"
            hint = f"start {n} processes, take a network of {world} nodes, or pass each rank "
            hint += "a list with the parameters of one model for each of its nodes"
            raise ParameterError(what, hint=hint)
        expected = int(np.diff(bounds_of(n, world, self.blocks))[rank])
        if own != expected:
            what = f"rank {rank} holds {expected} of {n} nodes, but was given {own} models"
            hint = "pass one iterable of parameters for each own node; "
            hint += "dg.processes(blocks=[...]) says how many nodes each rank holds"
            raise ParameterError(what, hint=hint)


processes = ProcessParticipation  # as dg.processes(timeout=20.0)


def spread() -> bool:
    """Whether the run is spread over the ranks of torch.distributed."""
    return distributed.is_available() and distributed.is_initialized()


def network_summary(net: AnyNetwork) -> str:
    """Describe a network in a line that differs for different ones."""
    if isinstance(net, Network):
        return f"R {fingerprint(net.R)}, C {fingerprint(net.C)}"
    return f"timetable {net.digest()[:16]}"


# Arguments of ``Decentralized`` in version 0.2, and where they belong since.
PROCESS_OPTIONS = ("timeout", "shared_memory", "blocks", "group")
STEP_OPTIONS = ("message_dtype", "bucket_bytes", "overlap")
PEER_OPTIONS = ("peers", "node", "key", "on_epoch", "resumed")
MOVED = {
    **dict.fromkeys((*PROCESS_OPTIONS, *STEP_OPTIONS), "engine=dg.processes({}=...)"),
    **dict.fromkeys(PEER_OPTIONS, "engine=dg.peers({}=...)"),
    "peers": 'engine=dg.peers("run.toml")',
    **dict.fromkeys(("log_dir", "log_every"), "opt.watch(log_dir, log_every)"),
}


def participation(
    engine: Participation | None, options: dict[str, Any]
) -> tuple[Participation, dict[str, Any]]:
    """Return how a process takes part, and the options of ``watch``.

    Arguments of version 0.2 are taken out of the options, with a warning.
    """
    old = {name: options.pop(name) for name in MOVED if name in options}
    for name in old:
        what = f"Decentralized({name}=...) is deprecated: write {MOVED[name].format(name)}"
        notice(what, FormerNameWarning)
    watch: dict[str, Any] = {}
    watch |= {name: old.pop(name) for name in ("log_dir", "log_every") if name in old}
    if engine is not None and not isinstance(engine, Participation):
        hint = 'pass dg.processes(timeout=60.0) or dg.peers("run.toml")'
        raise ParameterError(f"engine= is a {type(engine).__name__}", hint=hint)
    if engine is not None and old:
        what = f"both engine= and {next(iter(old))}= are given"
        raise ParameterError(what, hint="give the option to the engine")
    file = old.pop("peers", None)
    if file is not None:
        taken = {name: old[name] for name in (*PEER_OPTIONS, *STEP_OPTIONS) if name in old}
        engine = digrad.peers(file, **taken)
    elif engine is None:
        taken = {name: value for name, value in old.items() if name not in PEER_OPTIONS}
        engine = ProcessParticipation(**taken)
    return engine, watch


@contextmanager
def failure_told(engine: OptimizerEngine) -> Iterator[None]:
    """Let the other ranks know why this one ends, and hang up, so that they need not wait."""
    try:
        yield
    except DigradError as error:
        engine.fail(str(error).partition("\n")[0])
        engine.close()
        raise
