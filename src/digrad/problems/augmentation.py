"""Changes of images in training, drawn as a function of (seed, node, step)."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from digrad.base.checks import whole


class Augmentation(Protocol):
    """A change of inputs by random words, of which each sample gets so many."""

    @property
    def words(self) -> int:
        """How many words a sample takes."""
        ...

    def __call__(self, inputs: Tensor, words: Tensor) -> Tensor:
        """Return changed inputs, (samples, ...); words are whole numbers below 2³²."""
        ...


@dataclass(frozen=True)
class ShiftAndFlip:
    """Each image is moved by up to ``pixels`` each way, black coming in, and mirrored or not.

    What CIFAR's recipes call padding by 4, a random crop, and a random horizontal flip.
    """

    pixels: int = 4

    def __post_init__(self) -> None:
        whole(self.pixels, "pixels", hint="try 4")

    @property
    def words(self) -> int:
        return 3

    def __call__(self, inputs: Tensor, words: Tensor) -> Tensor:
        places = 2 * self.pixels + 1
        down, right = ((words[:, k] * places) >> 32 for k in (0, 1))
        padded = functional.pad(inputs, (self.pixels,) * 4)
        height, width = inputs.shape[-2:]
        rows = down[:, None] + torch.arange(height, device=inputs.device)
        across = torch.arange(width, device=inputs.device)
        mirrored = (words[:, 2] >> 31).bool()[:, None]
        columns = right[:, None] + torch.where(mirrored, across.flip(0), across)
        moved = padded.gather(
            2, rows[:, None, :, None].expand(-1, *padded.shape[1:2], -1, padded.shape[-1])
        )
        return moved.gather(3, columns[:, None, None, :].expand(-1, *moved.shape[1:3], -1))
