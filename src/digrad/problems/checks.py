"""What constructors of problems ask of their arguments, in one voice."""

from typing import Any

import torch
from torch import Tensor

from digrad.base.checks import kind_of
from digrad.base.errors import ParameterError, message, short_repr
from digrad.base.machine import check_memory


def check_place(device: Any, dtype: Any) -> None:
    """Refuse a device that there is none of, and numbers that are no real ones."""
    kind_of(device, "device", str, torch.device, hint='for example "cpu"')
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).split("\n")[0]
        what = f"device {short_repr(str(device))} cannot be used: {said}"
        raise ParameterError(message(what, hint='device = "cpu" is always there')) from error
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        what = f"dtype must be a floating type of torch, got {short_repr(dtype)}"
        raise ParameterError(message(what, hint="torch.float32 or torch.float64"))


def check_tensor(value: Any, name: str) -> Tensor:
    """Return a tensor of real numbers."""
    if not isinstance(value, Tensor) or value.is_complex() or value.layout != torch.strided:
        what = f"{name} must be a tensor of real numbers, got {short_repr(value)}"
        raise ParameterError(message(what, hint="torch.as_tensor makes one of a list or an array"))
    return value


def check_numbers(count: float, each: float, what: str, hint: str) -> None:
    """Refuse data of so many numbers if memory has no room for them."""
    check_memory(1.0 * count * each, f"{what}, {count:,.0f} numbers,", hint=hint)
