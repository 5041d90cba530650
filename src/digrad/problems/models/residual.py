"""Residual networks as the literature counts them: ResNet-20 and ResNet-18 for small images."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from digrad.problems.models.layers import Norm, norm_of


class ResidualNetwork(nn.Module):
    """A convolution, stages of blocks of two convolutions each, and a linear layer.

    He, Zhang, Ren, Sun, CVPR 2016, section 4.2; where a stage changes the size, the way round its
    first block is a 1 x 1 convolution.

    Args:
        shape: of an image.
        classes: how many.
        widths: channels of each stage; each but the first halves the image.
        blocks: of each stage.
        norm: ``group``, or ``batch``, which keeps running means.
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        *,
        widths: Sequence[int] = (16, 32, 64),
        blocks: int = 3,
        norm: str = "group",
    ) -> None:
        super().__init__()
        make = norm_of(norm, groups=8)
        stages: list[nn.Module] = []
        for k, (before, after) in enumerate(pairwise((widths[0], *widths))):
            strides = [1 if k == 0 else 2] + [1] * (blocks - 1)
            sizes = [before] + [after] * (blocks - 1)
            stages += [
                _ResidualBlock(b, after, s, make) for b, s in zip(sizes, strides, strict=True)
            ]
        self.stem = nn.Conv2d(shape[0], widths[0], 3, padding=1, bias=False)
        self.norm = make(widths[0])
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.blocks(self.norm(self.stem(x)).relu()).mean((-2, -1)))
        return logits


class _ResidualBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([norm(after), norm(after)])
        plain = stride == 1 and before == after
        self.way_round = (
            nn.Identity() if plain else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what the convolutions make of it."""
        inner = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        out: Tensor = (self.way_round(x) + inner).relu()
        return out


def resnet_20(
    shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10, *, norm: str = "group"
) -> ResidualNetwork:
    """Return ResNet-20 for small images: 272 282 parameters for CIFAR-10."""
    return ResidualNetwork(shape, classes, norm=norm)


def resnet_18(
    shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10, *, norm: str = "group"
) -> ResidualNetwork:
    """Return ResNet-18 for small images: 11.2 million parameters."""
    return ResidualNetwork(shape, classes, widths=(64, 128, 256, 512), blocks=2, norm=norm)
