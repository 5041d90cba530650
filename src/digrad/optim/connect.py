"""Which nodes live here, and the engine that joins them with the others."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import distributed

from digrad.base.errors import ParameterError, message
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.routes import bounds_of
from digrad.networks.registry import AnyNetwork
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.layout import Layout
from digrad.optim.local import LocalEngine


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
) -> OptimizerEngine:
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
        return LocalEngine(net, device=like.device, dtype=like.dtype)
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


def refuse_wrapped(layout: Layout, group: Any) -> None:
    """Refuse parameters of models whose gradients are averaged over several nodes already.

    A wrapper leaves no mark on parameters, so the wrappers themselves are looked for. One within
    a node's own group of ranks is fine: that is how a node has several GPUs.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    if not _averaging(layout, group):
        return
    gc.collect()  # a wrapper that nobody has any more does nothing
    if ranks := _averaging(layout, group):
        what = f"the model is wrapped in DistributedDataParallel, which averages over {ranks} ranks"
        hint = "remove the DistributedDataParallel(...) line: the network does the exchange; with "
        hint += "Accelerate, prepare the loader and the optimizer, not the model"
        raise ParameterError(message(what, hint=hint))


def _averaging(layout: Layout, group: Any) -> int:
    """Return over how many ranks a wrapper averages gradients of several nodes; 0 if none does."""
    nodes = {*distributed.get_process_group_ranks(group or distributed.group.WORLD)}
    own = {id(parameter) for model in layout.models for parameter in model}
    for one in gc.get_objects():
        if type(one) is not torch.nn.parallel.DistributedDataParallel:
            continue
        ranks = {*distributed.get_process_group_ranks(one.process_group)}
        if len(ranks & nodes) > 1 and any(id(p) in own for p in one.parameters()):
            return len(ranks)
    return 0
