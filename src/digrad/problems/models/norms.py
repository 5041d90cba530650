"""Layers that keep the channels of images in bounds, by name."""

from collections.abc import Callable

from torch import nn

from digrad.base.errors import lookup

Norm = Callable[[int], nn.Module]  # from a number of channels to the layer


def norm_of(name: str, groups: int) -> Norm:
    """Return ``group``, with at most so many groups, or ``batch``, which keeps running means."""
    norms: dict[str, Norm] = {
        "group": lambda channels: nn.GroupNorm(min(groups, channels), channels),
        "batch": nn.BatchNorm2d,
    }
    return lookup(norms, name, "norm")
