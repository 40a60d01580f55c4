"""Models with several methods."""

from __future__ import annotations

import torch
from torch import Tensor, nn

TOKENS, PLACES, CHUNK, CHANNELS = 32, 12, 4, 16


class Window(nn.Module):
    """The last rows that came, any number at a time, and what a layer makes of their mean."""

    past: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
        self.register_buffer("past", torch.zeros(1, 6, 16))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.past = torch.cat([self.past[:, x.shape[1] :], torch.tanh(self.read(x))], 1)
        self.count += x.shape[1]
        return {"mean": self.head(self.past.mean(1)), "count": self.count + 0}


class Reset(nn.Module):
    """What a window holds is halved."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(1, 6, 16))

    def forward(self, x: Tensor) -> Tensor:
        self.past.mul_(0.5)
        return self.past[:, -1] * x


class Encoder(nn.Module):
    """Writes what the decoder reads."""

    memory: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.register_buffer("memory", torch.zeros(1, 8, 6, 6))

    def forward(self, image: Tensor) -> None:
        self.memory.copy_(torch.relu(self.conv(image)))


class Reader(nn.Module):
    """Reads what the encoder wrote."""

    memory: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 4, 3, padding=1)
        self.register_buffer("memory", torch.zeros(1, 8, 6, 6))

    def forward(self, gain: Tensor) -> Tensor:
        return self.conv(self.memory * gain)


class Decoder(nn.Module):
    """Scores of the next token from the tokens before, whose rows it keeps; takes one token, or several in a row."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(TOKENS, CHANNELS), nn.Linear(CHANNELS, TOKENS)
        self.register_buffer("past", torch.zeros(1, PLACES, CHANNELS))

    def forward(self, token: Tensor, place: Tensor) -> Tensor:
        if token.shape[1] > 1:
            place = place + torch.arange(token.shape[1])
        x = self.embedding(token)
        self.past.index_copy_(1, place, x)
        return self.head(torch.tanh(x[:, -1:] + self.past.sum(1, keepdim=True)))


def _rows(count: int, size: int, seed: int) -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, size, 4, generator=generator),) for _ in range(count)]


def _window() -> Window:
    torch.manual_seed(0)
    return Window().eval()


def several() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    return _window(), _rows(1, 3, 1)[0], _rows(6, 3, 1)


def one() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    return _window(), _rows(1, 1, 2)[0], _rows(6, 1, 2)


def halved() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    return Reset(), (torch.ones(1, 16),), [(torch.full((1, 16), 1.0 + number),) for number in range(6)]


def encode() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    torch.manual_seed(0)
    images = torch.randn(4, 1, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    return Encoder().eval(), (images[0],), [(image,) for image in images]


def read() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    torch.manual_seed(1)
    return Reader().eval(), (torch.ones(1),), [(torch.full((1,), 0.5 + number),) for number in range(4)]


def _text(count: int, first: int) -> list[tuple[Tensor, Tensor]]:
    tokens = torch.randint(0, TOKENS, (2 * (CHUNK + 1),), generator=torch.Generator().manual_seed(1))
    starts = range(first, len(tokens), CHUNK + 1)
    return [(tokens[at : at + count].reshape(1, count), torch.tensor([at])) for at in starts]


def prefill() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    return Decoder().eval(), _text(CHUNK, 0)[0], _text(CHUNK, 0)


def decode() -> tuple[nn.Module, tuple[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    return Decoder().eval(), _text(1, CHUNK)[0], _text(1, CHUNK)


def too_few() -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    return _window(), _rows(1, 1, 2)[0], _rows(2, 1, 2)
