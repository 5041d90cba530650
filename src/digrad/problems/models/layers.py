"""Normalisation layers by name, and checks of the arguments of models."""

from collections.abc import Callable

from torch import nn

from digrad.base.errors import ParameterError, lookup, message


def check_share(name: str, value: float) -> None:
    """Refuse a share that is not between 0 and 1."""
    if not 0 <= value <= 1:
        what = f"{name} must be between 0 and 1, got {value}"
        raise ParameterError(message(what, hint=f"{name} = 0.5 drops every other number"))


def check_heads(width: int, heads: int) -> None:
    """Refuse an attention whose heads cannot share a vector out evenly."""
    if heads < 1 or width < 1 or width % heads:
        what = f"width must be a multiple of heads, got width = {width} and heads = {heads}"
        raise ParameterError(message(what, hint="try width = 32 and heads = 2"))


Norm = Callable[[int], nn.Module]  # from a number of channels to the layer


def norm_of(name: str, groups: int) -> Norm:
    """Return ``group``, with at most so many groups, or ``batch``, which keeps running means."""
    norms: dict[str, Norm] = {
        "group": lambda channels: nn.GroupNorm(min(groups, channels), channels),
        "batch": nn.BatchNorm2d,
    }
    return lookup(norms, name, "norm")
