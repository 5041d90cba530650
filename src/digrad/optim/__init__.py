"""Decentralized training with PyTorch: an optimizer and its checkpoints.

Data by node is in ``data.shards``, experiments on processes in ``runs``. Read ``decentralized``
first: it is the optimizer; ``rows`` takes its steps.
"""

from digrad.optim.checkpoint import latest, load_checkpoint, save_checkpoint
from digrad.optim.decentralized import Decentralized
from digrad.optim.gradients import GradientError
from digrad.optim.loggers import CSVLogger, Logger, TensorBoardLogger
from digrad.optim.participation import ProcessParticipation, processes
from digrad.optim.state import CheckpointError

__all__ = [
    "CSVLogger",
    "CheckpointError",
    "Decentralized",
    "GradientError",
    "Logger",
    "ProcessParticipation",
    "TensorBoardLogger",
    "latest",
    "load_checkpoint",
    "processes",
    "save_checkpoint",
]
