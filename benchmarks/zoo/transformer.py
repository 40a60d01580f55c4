"""A transformer encoder of two layers on 32 tokens of 64 features (Vaswani et al. 2017, norm first)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tosaic.zoo.seeded import images


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(features, features)
        self.key = nn.Linear(features, features)
        self.value = nn.Linear(features, features)
        self.output = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, features = x.shape
        split = (batch, tokens, self.heads, features // self.heads)
        query, key, value = (layer(x).view(split).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, features))


class Layer(nn.Module):
    """Attention and a feed-forward network, each normalized before and added to its input."""

    def __init__(self, features: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.attention = Attention(features, heads)
        self.norm2 = nn.LayerNorm(features)
        self.feed_forward = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    """Two layers with a final norm."""

    def __init__(self, features: int = 64, heads: int = 4, hidden: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(features, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layers(x))


def build() -> nn.Module:
    return Transformer()


def samples() -> list[tuple[Tensor, ...]]:
    """Sequences that change smoothly over time and features."""
    return [(image.reshape(1, 32, 64),) for (image,) in images(11, 6, 1, 32, 64)]
