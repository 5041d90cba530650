"""Decentralized training with PyTorch: an optimizer, its checkpoints, and data by node."""

from digrad.optim.checkpoint import latest, load_checkpoint, save_checkpoint
from digrad.optim.decentralized import Decentralized
from digrad.optim.gradients import GradientError
from digrad.optim.shards import NodeSampler, shard
from digrad.optim.state import CheckpointError

__all__ = [
    "CheckpointError",
    "Decentralized",
    "GradientError",
    "NodeSampler",
    "latest",
    "load_checkpoint",
    "save_checkpoint",
    "shard",
]
