"""A small language model that writes as this project's documents do: a token and its place in, scores of the next out.

It is a decoder as Llama has it: RMSNorm, rotary positions, queries that share keys, SwiGLU, one table of embeddings for
both ends. Keys and values of the tokens before are buffers, which the firmware keeps from call to call.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

FOLDER = Path(__file__).parent
WEIGHTS, TOKENIZER, HELD_BACK = FOLDER / "weights.npz", FOLDER / "tokenizer.json", FOLDER / "held_back.txt"
WEIGHTS_INT4 = FOLDER / "weights_int4.npz"
CHUNK = 16
"""Tokens of a prompt that `prefill` takes at once."""
CALIBRATION = 512
"""Tokens of the training text to calibrate with."""


class DecoderShape(NamedTuple):
    """The sizes of a decoder; `heads` of queries share `keys` heads of keys and values."""

    channels: int
    layers: int
    heads: int
    keys: int
    hidden: int
    tokens: int
    places: int

    @property
    def depth(self) -> int:
        """Channels of a head."""
        return self.channels // self.heads


STORY = DecoderShape(channels=64, layers=2, heads=4, keys=2, hidden=128, tokens=512, places=128)


class RootMeanSquareNorm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class CachedAttention(nn.Module):
    """Attention of tokens to all places up to their own, whose keys and values are buffers."""

    k: Tensor
    v: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.wq = nn.Linear(shape.channels, shape.heads * shape.depth, bias=False)
        self.wk, self.wv = (nn.Linear(shape.channels, shape.keys * shape.depth, bias=False) for _ in "kv")
        self.wo = nn.Linear(shape.channels, shape.channels, bias=False)
        for name in "kv":
            self.register_buffer(name, torch.zeros(1, shape.keys, shape.places, shape.depth), persistent=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, place: Tensor) -> Tensor:
        shape = self.shape
        heads = (1, x.shape[1], -1, shape.depth)
        q, k = (turned(layer(x).view(heads).transpose(1, 2), *rotation) for layer in (self.wq, self.wk))
        self.k.index_copy_(2, place, k)
        self.v.index_copy_(2, place, self.wv(x).view(heads).transpose(1, 2))
        q = q.reshape(1, shape.keys, -1, shape.depth)  # queries of the heads that share keys, one behind the other
        scores = (q @ self.k.transpose(-1, -2) / math.sqrt(shape.depth)).view(shape.heads, -1, shape.places) + mask
        values = scores.softmax(-1).view(1, shape.keys, -1, shape.places) @ self.v
        return self.wo(values.view(1, shape.heads, -1, shape.depth).transpose(1, 2).reshape(x.shape))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
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

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, place: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x), rotation, mask, place)
        return x + self.gated(self.n2(x))

    def gated(self, x: Tensor) -> Tensor:
        """SwiGLU."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class LanguageModel(nn.Module):
    """The scores of the token behind the last one, f32[1, 1, tokens], given some in a row, i64[1, N], and the place of
    the first, i64[1]."""

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
        if token.shape[1] > 1:
            place = place + torch.arange(token.shape[1])
        x, rotation = self.embedding(token), (self.cos[place], self.sin[place])
        mask = torch.where(torch.arange(self.shape.places) <= place[:, None], 0.0, -60.0)
        for block in self.blocks:
            x = block(x, rotation, mask, place)
        return self.head(self.norm(x[:, -1:]))


def in_order(tokens: list[int], places: int) -> list[tuple[Tensor, Tensor]]:
    """A text as the model takes it: each token with its place, which begins anew where a context is full."""
    return [(torch.tensor([[token]]), torch.tensor([number % places])) for number, token in enumerate(tokens)]


def in_turns(tokens: list[int], places: int) -> list[dict[str, tuple[Tensor, Tensor]]]:
    """A text as two methods take it: `CHUNK` tokens at once with the place of the first, then one more."""
    starts = [at for at in range(0, len(tokens) - CHUNK, CHUNK + 1) if at % places + CHUNK < places]
    return [
        {
            "prefill": (torch.tensor([tokens[at : at + CHUNK]]), torch.tensor([at % places])),
            "decode": (torch.tensor([[tokens[at + CHUNK]]]), torch.tensor([at % places + CHUNK])),
        }
        for at in starts
    ]


def held_back() -> list[int]:
    """The tokens of a text that the training never saw."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(TOKENIZER)).encode(HELD_BACK.read_text()).ids


def net() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """The trained model, an example of its inputs, and a text to calibrate with."""
    module, tokens = _trained()
    text = in_order(tokens, STORY.places)
    return module, text[0], text


def int4() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """The model after further training with weights of four bits, the table of embeddings included, for `--int4`."""
    module, tokens = _trained()
    with np.load(WEIGHTS_INT4) as weights:
        known = {name: torch.tensor(weights[name]).float() for name in weights.files}
        module.load_state_dict(known | {"head.weight": known["embedding.weight"]})
    text = in_order(tokens, STORY.places)
    return module, text[0], text


def prefill() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """The method that takes a part of the prompt."""
    return _method("prefill")


def decode() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """The method that takes one token."""
    return _method("decode")


def _method(name: str) -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    module, tokens = _trained()
    text = [call[name] for call in in_turns(tokens, STORY.places)]
    return module, text[0], text


def _trained() -> tuple[nn.Module, list[int]]:
    """The model, and the text that it is calibrated with."""
    module = LanguageModel(STORY)
    with np.load(WEIGHTS) as weights:
        known = {name: torch.tensor(weights[name]).float() for name in weights.files if name != "text"}
        module.load_state_dict(known | {"head.weight": known["embedding.weight"]})
        return module.eval(), weights["text"].tolist()
