"""Models and parameters that cannot be trained as rows, and what to do about each."""

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.parameter import is_lazy

from digrad.base.errors import ParameterError


def check_module(model: torch.nn.Module) -> None:
    """Refuse wrappers that exchange gradients or parameters by themselves."""
    kinds = {type(model).__name__} & {"DistributedDataParallel", "DataParallel"}
    if kinds:
        what = f"the model is wrapped in {kinds.pop()}, which averages the gradients of all ranks"
        hint = "remove the line that wraps it: the network does the exchange; where it joins the "
        hint += "GPUs of one node, pass model.module"
        raise ParameterError(what, hint=hint)


def check_parameter(name: str, parameter: Any) -> None:
    """Refuse what cannot lie in a row."""
    if not isinstance(parameter, Tensor):
        what, hint = f"{name} is a {type(parameter).__name__}", "parameters are tensors"
    elif hasattr(parameter, "device_mesh"):
        what = f"{name} is spread over several ranks (FSDP)"
        hint = "several GPUs per node: DistributedDataParallel within the node's own group"
    elif is_lazy(parameter):
        what, hint = f"{name} has no shape yet", "run the model once before making the optimizer"
    elif not parameter.is_leaf:
        what, hint = f"{name} is the result of a computation", "pass leaves, as model.parameters()"
    elif parameter.is_complex() or not parameter.is_floating_point():
        what = f"{name} has type {parameter.dtype}"
        hint = "use real parameters, for example torch.view_as_real of complex ones"
    elif parameter.layout != torch.strided:
        what, hint = f"{name} has layout {parameter.layout}", "use dense parameters"
    else:
        return
    raise ParameterError(what, hint=hint)


def check_kinds(names: Sequence[str], models: Sequence[Sequence[Tensor]]) -> None:
    """Refuse trained parameters of several types or on several devices."""
    first = models[0][0]
    for model in models:
        for name, p in zip(names, model, strict=True):
            if (p.dtype, p.device) != (first.dtype, first.device):
                what = f"{name} is {p.dtype} on {p.device}, but {names[0]} is {first.dtype} on "
                what += f"{first.device}"
                hint = "give all trained parameters one type and one device; autocast "
                hint += "computes in another type"
                raise ParameterError(what, hint=hint)


def listed_twice(name: str, where: str, other: str) -> ParameterError:
    """Return the error for a parameter that stands in two places."""
    too = f", as {other} too" if other != name else ""
    hint = "list every parameter once: model.parameters() does, also where weights are tied"
    return ParameterError(f"{name} is listed twice in {where}{too}", hint=hint)


def refuse_wrapped(models: Sequence[Sequence[Tensor]], group: Any) -> None:
    """Refuse parameters of models whose gradients are averaged over several nodes already.

    A wrapper leaves no mark on parameters, so the wrappers themselves are looked for. One within
    a node's own group of ranks is fine: that is how a node has several GPUs.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    if not _ranks_averaged(models, group):
        return
    gc.collect()  # a wrapper that nobody has any more does nothing
    if ranks := _ranks_averaged(models, group):
        what = f"the model is wrapped in DistributedDataParallel, which averages over {ranks} ranks"
        hint = "remove the DistributedDataParallel(...) line: the network does the exchange; with "
        hint += "Accelerate, prepare the loader and the optimizer, not the model"
        raise ParameterError(what, hint=hint)


def _ranks_averaged(models: Sequence[Sequence[Tensor]], group: Any) -> int:
    """Return over how many ranks a wrapper averages gradients of several nodes; 0 if none does."""
    nodes = {*distributed.get_process_group_ranks(group or distributed.group.WORLD)}
    own = {id(parameter) for model in models for parameter in model}
    for one in gc.get_objects():
        if type(one) is not torch.nn.parallel.DistributedDataParallel:
            continue
        ranks = {*distributed.get_process_group_ranks(one.process_group)}
        if len(ranks & nodes) > 1 and any(id(p) in own for p in one.parameters()):
            return len(ranks)
    return 0
