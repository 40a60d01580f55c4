"""What a token of a small language model costs: `python benchmarks/lm.py [--target NAME]...`.

A decoder as Llama has it (RMSNorm, rotary positions, queries that share keys, SwiGLU, a tied table of embeddings) takes
one token at a time and keeps the keys and values of those before it in buffers. Its weights are random, its shape is
that of Karpathy's stories260K: 64 channels, 5 layers, 8 heads of 4 keys, 512 tokens, 512 places. `tosaic compile
benchmarks/lm.py:stories260k` builds it, `benchmarks/lm.py:tiny` a small one.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import NamedTuple

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_SAMPLES = 128


class DecoderShape(NamedTuple):
    """The sizes of a decoder; `heads` of queries share `keys` heads of keys and values."""

    channels: int = 64
    layers: int = 5
    heads: int = 8
    keys: int = 4
    hidden: int = 172
    tokens: int = 512
    places: int = 512

    @property
    def depth(self) -> int:
        """Channels of a head."""
        return self.channels // self.heads


STORIES_260K = DecoderShape()
TINY = DecoderShape(channels=32, layers=1, heads=4, keys=2, hidden=48, tokens=64, places=32)


class RootMeanSquareNorm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class CachedAttention(nn.Module):
    """Attention of one token to all places up to its own, whose keys and values are buffers."""

    k: Tensor
    v: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.wq = nn.Linear(shape.channels, shape.heads * shape.depth, bias=False)
        self.wk, self.wv = (nn.Linear(shape.channels, shape.keys * shape.depth, bias=False) for _ in "kv")
        self.wo = nn.Linear(shape.channels, shape.channels, bias=False)
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, shape.keys, shape.places, shape.depth))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, place: Tensor) -> Tensor:
        shape = self.shape
        heads = (1, 1, -1, shape.depth)
        q, k = (_turned(layer(x).view(heads).transpose(1, 2), *turn) for layer in (self.wq, self.wk))
        self.k.index_copy_(2, place, k)
        self.v.index_copy_(2, place, self.wv(x).view(heads).transpose(1, 2))
        q = q.reshape(1, shape.keys, shape.heads // shape.keys, shape.depth)
        scores = q @ self.k.transpose(-1, -2) / math.sqrt(shape.depth) + mask
        return self.wo((scores.softmax(-1) @ self.v).reshape(x.shape))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021), halves of the channels as pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class DecoderBlock(nn.Module):
    """Attention, and SwiGLU (Shazeer 2020)."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.n1, self.n2 = (RootMeanSquareNorm(shape.channels) for _ in range(2))
        self.attention = CachedAttention(shape)
        self.w1, self.w3 = (nn.Linear(shape.channels, shape.hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(shape.hidden, shape.channels, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, place: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x), turn, mask, place)
        y = self.n2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class LanguageModel(nn.Module):
    """The scores of the next token, given one and its place."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape, self.embedding = shape, nn.Embedding(shape.tokens, shape.channels)
        self.blocks = nn.ModuleList(DecoderBlock(shape) for _ in range(shape.layers))
        self.norm, self.head = RootMeanSquareNorm(shape.channels), nn.Linear(shape.channels, shape.tokens, bias=False)
        self.head.weight = self.embedding.weight
        speeds = 1e4 ** -(torch.arange(0, shape.depth, 2) / shape.depth)
        angles = torch.outer(torch.arange(shape.places).float(), speeds)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, token: Tensor, place: Tensor) -> Tensor:
        x, turn = self.embedding(token), (self.cos[place], self.sin[place])
        mask = torch.where(torch.arange(self.shape.places) <= place[:, None], 0.0, -60.0)
        for block in self.blocks:
            x = block(x, turn, mask, place)
        return self.head(self.norm(x))


def decoder(shape: DecoderShape) -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """A decoder with random weights, an example of its inputs, and a text of random tokens."""
    torch.manual_seed(0)
    net, generator = LanguageModel(shape).eval(), torch.Generator().manual_seed(0)
    nn.init.normal_(net.embedding.weight, std=0.5)
    count = min(_SAMPLES, shape.places)
    tokens = torch.randint(0, shape.tokens, (count, 1, 1), generator=generator)
    return net, (tokens[0], torch.zeros(1, dtype=torch.int64)), [
        (token, torch.tensor([place])) for place, token in enumerate(tokens)
    ]  # fmt: skip


def stories260k() -> tuple:
    return decoder(STORIES_260K)


def tiny() -> tuple:
    return decoder(TINY)


@click.command()
@click.option("--target", "targets", multiple=True, default=["cortex-m55"], show_default=True)
@click.option("--small", is_flag=True, help="The small decoder.")
def report(targets: tuple[str, ...], small: bool) -> None:
    """Print what a token costs on each target, as Markdown."""
    import tosaic

    net, example, text = decoder(TINY if small else STORIES_260K)
    click.echo("| target | core's cycles | with memory | NPU's cycles | arena B | flash B | states B | exact |")
    click.echo("|---|---|---|---|---|---|---|---|")
    for target in targets:
        with tempfile.TemporaryDirectory() as name:
            build = tosaic.compile(net, example, target=target, calibration=text, output=Path(name) / "build")
            ran, firmware = build.run(), build.manifest.firmware
            states = sum(value.numel() for name, value in net.named_buffers() if name.endswith((".k", ".v")))
            click.echo(
                f"| {target} | {ran.board.cycles:,} | {ran.board.cycles_with_memory:,} | {ran.npu_cycles or 0:,} "
                f"| {firmware.arena_bytes:,} | {firmware.flash_bytes:,} | {states:,} | {'yes' if ran.exact else 'NO'} |"
            )


if __name__ == "__main__":
    report()
