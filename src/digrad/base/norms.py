"""Which buffers of a module are a mean and a variance of the same numbers."""

from torch import Tensor, nn


def variances_of(module: nn.Module) -> dict[str, str]:
    """Return the name of each running variance with that of its mean.

    >>> variances_of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    {'1.running_var': '1.running_mean'}
    """
    found = {}
    for name, layer in module.named_modules():
        both = (getattr(layer, key, None) for key in ("running_mean", "running_var"))
        if all(isinstance(one, Tensor) for one in both):
            place = f"{name}." if name else ""
            found[f"{place}running_var"] = f"{place}running_mean"
    return found
