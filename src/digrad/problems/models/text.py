"""A model of text, character by character."""

import torch
from torch import Tensor, nn

from digrad.problems.models.layers import check_heads, check_share


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
