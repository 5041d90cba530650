"""Models and parameters that cannot be trained as rows, and what to do about each."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from digrad.base.errors import ParameterError, message


def check_module(model: torch.nn.Module) -> None:
    """Refuse wrappers that exchange gradients or parameters by themselves."""
    kinds = {type(model).__name__} & {"DistributedDataParallel", "DataParallel"}
    if kinds:
        what = f"the model is wrapped in {kinds.pop()}, which averages the gradients of all ranks"
        hint = "remove the line that wraps it: the network does the exchange; where it joins the "
        hint += "GPUs of one node, pass model.module"
        raise ParameterError(message(what, hint=hint))


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
    raise ParameterError(message(what, hint=hint))


def check_kinds(names: Sequence[str], models: Sequence[Sequence[Tensor]]) -> None:
    """Refuse trained parameters of several types or on several devices."""
    first = models[0][0]
    for model in models:
        for name, p in zip(names, model, strict=True):
            if (p.dtype, p.device) != (first.dtype, first.device):
                raise ParameterError(
                    message(
                        f"{name} is {p.dtype} on {p.device}, but {names[0]} is {first.dtype} on "
                        f"{first.device}",
                        hint="give all trained parameters one type and one device; autocast "
                        "computes in another type",
                    )
                )


def twice(name: str, where: str, other: str) -> ParameterError:
    """Return the error for a parameter that stands in two places."""
    too = f", as {other} too" if other != name else ""
    hint = "list every parameter once: model.parameters() does, also where weights are tied"
    return ParameterError(message(f"{name} is listed twice in {where}{too}", hint=hint))
