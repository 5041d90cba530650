"""Models to train: the paper's network, and others that show that any module will do.

Plain modules that know nothing of digrad. Read ``images`` first.
"""

from collections.abc import Callable

from torch import nn

from digrad.models.images import CNN, MLP, ResNet
from digrad.models.text import Transformer

MODELS: dict[str, Callable[..., nn.Module]] = {"cnn": CNN, "mlp": MLP, "resnet": ResNet}

__all__ = ["CNN", "MLP", "MODELS", "ResNet", "Transformer"]
