"""Classifiers of images of shape (channels, height, width)."""

from itertools import pairwise
from math import prod

from torch import Tensor, nn

from digrad.problems.models.layers import Norm, check_share, norm_of

Shape = tuple[int, int, int]


class CNN(nn.Sequential):
    """The paper's network: two 5 x 5 convolutions, two linear layers, dropout.

    21 840 parameters for MNIST. Its public code ends in a softmax over the batch; here, as is
    meant, logits go to the cross-entropy.

    Args:
        shape: of an image.
        classes: how many.
        dropout: share of channels after the second convolution, and of hidden units.
    """

    def __init__(
        self, shape: Shape = (1, 28, 28), classes: int = 10, *, dropout: float = 0.5
    ) -> None:
        check_share("dropout", dropout)
        channels, height, width = shape
        flat = 20 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        super().__init__(
            nn.Conv2d(channels, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.Dropout2d(dropout),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(flat, 50),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(50, classes),
        )


class MLP(nn.Sequential):
    """Linear layers with ReLU between them.

    Args:
        shape: of an image.
        classes: how many.
        hidden: units of each hidden layer.
    """

    def __init__(
        self, shape: Shape = (1, 28, 28), classes: int = 10, *, hidden: tuple[int, ...] = (64,)
    ) -> None:
        sizes = (prod(shape), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], classes))


class ResNet(nn.Module):
    """A small residual network.

    Args:
        shape: of an image.
        classes: how many.
        width: channels of the first stage; each further stage doubles them.
        stages: each but the first halves the image.
        norm: ``group``, or ``batch``, which keeps running means.
    """

    def __init__(
        self,
        shape: Shape = (3, 32, 32),
        classes: int = 10,
        *,
        width: int = 16,
        stages: int = 3,
        norm: str = "group",
    ) -> None:
        super().__init__()
        make = norm_of(norm, groups=4)
        sizes = [width * 2**k for k in range(stages)]
        self.stem = nn.Conv2d(shape[0], width, 3, padding=1)
        pairs = zip([width, *sizes], sizes, strict=False)
        self.blocks = nn.Sequential(
            *(_ConvBlock(*sizes, 1 if k == 0 else 2, make) for k, sizes in enumerate(pairs))
        )
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((-2, -1)))
        return logits


class _ConvBlock(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([norm(before), norm(after)])
        plain = stride == 1 and before == after
        self.way_round = (
            nn.Identity() if plain else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what the convolutions make of it."""
        inner = self.first(self.norms[0](x).relu())
        out: Tensor = self.way_round(x) + self.second(self.norms[1](inner).relu())
        return out
