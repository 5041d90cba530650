"""Which nodes live here, and the engine that joins them with the others."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import distributed

from digrad.base.errors import ParameterError, message
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.routes import bounds_of
from digrad.networks.registry import AnyNetwork
from digrad.optim.bucket_mixer import Link
from digrad.optim.layout import Layout
from digrad.optim.local import Local


def connect(
    net: AnyNetwork,
    layout: Layout,
    *,
    blocks: Sequence[int] | None,
    group: Any,
    message_dtype: torch.dtype | None,
    timeout: float,
    shared_memory: bool | Literal["auto"],
    about: Mapping[str, str],
) -> Link:
    """Join the nodes of this process with those of the other ranks.

    Without a process group all nodes must be here.
    """
    own, like = len(layout.models), layout.like
    if not (distributed.is_available() and distributed.is_initialized()):
        if own != net.n:
            raise ParameterError(
                message(
                    f"the network has {net.n} nodes, but this process holds {own} and is alone",
                    hint="call torch.distributed.init_process_group() and start with torchrun, or "
                    f"pass a list of {net.n} models' parameters to play all nodes here",
                )
            )
        return Local(net, device=like.device, dtype=like.dtype)
    world, rank = distributed.get_world_size(group), distributed.get_rank(group)
    _check_own(net.n, world, rank, layout, blocks)
    return Processes(
        net,
        group=group,
        blocks=blocks,
        device=like.device,
        dtype=like.dtype,
        message_dtype=message_dtype,
        timeout=timeout,
        shared_memory=shared_memory,
        about=about,
    )


def _check_own(n: int, world: int, rank: int, layout: Layout, blocks: Sequence[int] | None) -> None:
    own = len(layout.models)
    if n != world and not layout.is_block:
        raise ParameterError(
            message(
                f"the network has {n} nodes, but there are {world} ranks with one model each",
                hint=f"start {n} processes, take a network of {world} nodes, or pass each rank "
                "a list with the parameters of one model for each of its nodes",
            )
        )
    expected = int(np.diff(bounds_of(n, world, blocks))[rank])
    if own != expected:
        raise ParameterError(
            message(
                f"rank {rank} holds {expected} of {n} nodes, but was given {own} models",
                hint="pass one iterable of parameters for each own node; blocks=[...] says how "
                "many nodes each rank holds",
            )
        )
