"""Gradients of many small networks at once: layers, and kernels for a GPU.

Other rooms import from here alone: the layers that replace those of PyTorch where every node has
parameters of its own, and the choice between one call for all nodes and one call for each. Modules
named ``*_kernels`` hold Triton code. Read ``layers`` first.
"""

from digrad.kernels.autotune import Pair, choose_fastest, on_streams
from digrad.kernels.layers import Conv2d, Dropout, Embedding, GroupNorm, MaxPool2d

__all__ = [
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "MaxPool2d",
    "Pair",
    "choose_fastest",
    "on_streams",
]
