"""Models to train: the paper's network, and others that show that any module will do.

Plain modules that know nothing of digrad. Read ``images`` first.
"""

from collections.abc import Callable

from torch import nn

from digrad.problems.models.images import CNN, MLP, ResNet
from digrad.problems.models.residual import ResidualNetwork, resnet_18, resnet_20
from digrad.problems.models.text import Transformer

MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn": CNN,
    "mlp": MLP,
    "resnet": ResNet,
    "resnet-20": resnet_20,
    "resnet-18": resnet_18,
}

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "ResNet",
    "ResidualNetwork",
    "Transformer",
    "resnet_18",
    "resnet_20",
]
