"""Models to train: the paper's network, and others that show that any module will do.

Plain modules that know nothing of digrad. Read ``CNN`` first.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from digrad.base.errors import ParameterError, lookup

Shape = tuple[int, int, int]


Norm = Callable[[int], nn.Module]  # from a number of channels to the layer


def check_share(name: str, value: float) -> None:
    """Refuse a share that is not between 0 and 1."""
    if not 0 <= value <= 1:
        what = f"{name} must be between 0 and 1, got {value}"
        raise ParameterError(what, hint=f"{name} = 0.5 drops every other number")


def check_heads(width: int, heads: int) -> None:
    """Refuse an attention whose heads cannot share a vector out evenly."""
    if heads < 1 or width < 1 or width % heads:
        what = f"width must be a multiple of heads, got width = {width} and heads = {heads}"
        raise ParameterError(what, hint="try width = 32 and heads = 2")


def norm_of(name: str, groups: int) -> Norm:
    """Return ``group``, with at most so many groups, or ``batch``, which keeps running means."""
    norms: dict[str, Norm] = {
        "group": lambda channels: nn.GroupNorm(min(groups, channels), channels),
        "batch": nn.BatchNorm2d,
    }
    return lookup(norms, name, "norm")


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
            *(
                _ConvBlock(before, after, 1 if k == 0 else 2, [make(before), make(after)])
                for k, (before, after) in enumerate(pairs)
            )
        )
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean((-2, -1)))
        return logits


class _ConvBlock(nn.Module):
    """Two convolutions, each after its norm, and a way round them."""

    def __init__(self, before: int, after: int, stride: int, norms: list[nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(norms)
        plain = stride == 1 and before == after
        self.way_round = (
            nn.Identity() if plain else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what the convolutions make of it."""
        inner = self.first(self.norms[0](x).relu())
        out: Tensor = self.way_round(x) + self.second(self.norms[1](inner).relu())
        return out


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
        shape: Shape = (3, 32, 32),
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
                _ResidualBlock(b, after, s, [make(after), make(after)])
                for b, s in zip(sizes, strides, strict=True)
            ]
        self.stem = nn.Conv2d(shape[0], widths[0], 3, padding=1, bias=False)
        self.norm = make(widths[0])
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.blocks(self.norm(self.stem(x)).relu()).mean((-2, -1)))
        return logits


class _ResidualBlock(_ConvBlock):
    """The same with each norm after its convolution."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus what the convolutions make of it."""
        inner = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        out: Tensor = (self.way_round(x) + inner).relu()
        return out


def resnet_20(
    shape: Shape = (3, 32, 32), classes: int = 10, *, norm: str = "group"
) -> ResidualNetwork:
    """Return ResNet-20 for small images: 272 282 parameters for CIFAR-10."""
    return ResidualNetwork(shape, classes, norm=norm)


def resnet_18(
    shape: Shape = (3, 32, 32), classes: int = 10, *, norm: str = "group"
) -> ResidualNetwork:
    """Return ResNet-18 for small images: 11.2 million parameters."""
    return ResidualNetwork(shape, classes, widths=(64, 128, 256, 512), blocks=2, norm=norm)


class Transformer(nn.Module):
    """Predicts each next character from those before it.

    Args:
        alphabet: how many different characters.
        length: how many characters it sees at once.
        width: of a character's vector.
        heads: of the attention.
        layers: how many blocks.
        dropout: share of numbers dropped after each attention and each pair of linear layers.
    """

    def __init__(
        self,
        alphabet: int,
        length: int = 32,
        *,
        width: int = 32,
        heads: int = 2,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        check_share("dropout", dropout)
        check_heads(width, heads)
        super().__init__()
        self.characters = nn.Embedding(alphabet, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(
            *(_AttentionBlock(width, heads, dropout) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Return logits, (samples, alphabet, length), from codes, (samples, length)."""
        x = self.blocks(self.characters(codes) + self.places[: codes.shape[-1]])
        logits: Tensor = self.head(self.norm(x))
        return logits.transpose(-2, -1)


class _AttentionBlock(nn.Module):
    """Attention to what came before, then two linear layers, each with a way round."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mix = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.linear = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU())
        self.back = nn.Linear(4 * width, width)
        self.drops = nn.ModuleList([nn.Dropout(dropout), nn.Dropout(dropout)])

    def forward(self, x: Tensor) -> Tensor:
        """Return x with what was attended to and thought about."""
        x = x + self.drops[0](self.join(self._attended(self.norms[0](x))))
        inner: Tensor = self.drops[1](self.back(self.linear(self.norms[1](x))))
        return x + inner

    def _attended(self, x: Tensor) -> Tensor:
        # Written out: every row of parameters then has the same plain matrix products.
        parts = self.mix(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0)
        query, key, value = (part.transpose(-3, -2) for part in parts)
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        joined: Tensor = (weights @ value).transpose(-3, -2).flatten(-2)
        return joined


MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn": CNN,
    "mlp": MLP,
    "resnet": ResNet,
    "resnet-20": resnet_20,
    "resnet-18": resnet_18,
}
