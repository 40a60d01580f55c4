"""What a step of a model costs that keeps states between calls: `python benchmarks/streaming.py [--target NAME]`.

A keyword spotter whose GRU takes a frame at a time, a temporal convolutional network whose layers keep the frames that
they reach back to, and an encoder-decoder: the encoder writes keys and values of a whole recording, and the decoder
reads them, and what it has written of its own tokens. Their weights are random.
`tosaic compile benchmarks/streaming.py:spotter` builds one, `...:encode,decode` both methods of the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    import tosaic

FRAMES, FEATURES, CHANNELS, TOKENS, PLACES, STEPS = 64, 40, 64, 256, 64, 32
Sample = tuple[Tensor, ...]
Model = tuple[nn.Module, Sample, list[Sample]]


class StreamingSpotter(nn.Module):
    """A GRU of 64 that takes a frame f32[1, 1, 40] and gives scores f32[1, 12]."""

    memory: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.words = nn.GRU(FEATURES, CHANNELS, batch_first=True), nn.Linear(CHANNELS, 12)
        self.register_buffer("memory", torch.zeros(1, 1, CHANNELS))

    def forward(self, frame: Tensor) -> Tensor:
        seen, memory = self.recurrent(frame, self.memory)
        self.memory.copy_(memory)
        return self.words(seen[:, -1])


class CachedConvolution(nn.Module):
    """A convolution in time over the last frames, of which it keeps those before this one."""

    past: Tensor

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.filter = nn.Conv1d(CHANNELS, CHANNELS, 3, dilation=dilation)
        self.register_buffer("past", torch.zeros(1, CHANNELS, 2 * dilation))

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.cat([self.past, x], 2)
        self.past.copy_(seen[:, :, 1:])
        return torch.relu(self.filter(seen)) + x


class StreamingTcn(nn.Module):
    """Dilated convolutions with shortcuts (Bai et al. 2018); a frame f32[1, 40, 1] -> f32[1, 12]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.words = nn.Conv1d(FEATURES, CHANNELS, 1), nn.Linear(CHANNELS, 12)
        self.layers = nn.Sequential(*(CachedConvolution(2**n) for n in range(4)))

    def forward(self, frame: Tensor) -> Tensor:
        return self.words(self.layers(torch.relu(self.stem(frame)))[:, :, -1])


class EncoderDecoder(nn.Module):
    """Cross-attention of a decoder to a recording f32[1, 64, 40], which the encoder has heard."""

    heard: Tensor
    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.listen, self.embedding = nn.Linear(FEATURES, CHANNELS), nn.Embedding(TOKENS, CHANNELS)
        self.of_frames, self.of_tokens = (nn.Linear(CHANNELS, 2 * CHANNELS) for _ in range(2))
        self.ask_frames, self.ask_tokens, self.head = (nn.Linear(CHANNELS, n) for n in (CHANNELS, CHANNELS, TOKENS))
        self.register_buffer("heard", torch.zeros(1, FRAMES, 2 * CHANNELS))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, PLACES, CHANNELS))

    def encode(self, frames: Tensor) -> None:
        """Write what the decoder reads."""
        self.heard.copy_(self.of_frames(torch.relu(self.listen(frames))))

    def decode(self, token: Tensor, place: Tensor) -> Tensor:
        """Scores of the next token, of i64[1, 1] at a place i64[1]."""
        x = self.embedding(token)
        key, value = self.of_tokens(x).chunk(2, -1)
        self.keys.index_copy_(1, place, key)
        self.values.index_copy_(1, place, value)
        mask = torch.where(torch.arange(PLACES) <= place, 0.0, -60.0)
        x = x + attended(self.ask_tokens(x), self.keys, self.values, mask)
        key, value = self.heard.chunk(2, -1)
        x = x + attended(self.ask_frames(x), key, value, torch.zeros(FRAMES))
        return self.head(x)


class Method(nn.Module):
    """One method of a network."""

    def __init__(self, net: EncoderDecoder, name: str) -> None:
        super().__init__()
        self.net, self.name = net, name

    def forward(self, *given: Tensor) -> Tensor | None:
        return getattr(self.net, self.name)(*given)


def attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of one row."""
    return (query @ keys.transpose(-1, -2) / CHANNELS**0.5 + mask).softmax(-1) @ values


def spotter() -> Model:
    torch.manual_seed(0)
    return _of_frames(StreamingSpotter(), (1, 1, FEATURES))


def tcn() -> Model:
    torch.manual_seed(0)
    return _of_frames(StreamingTcn(), (1, FEATURES, 1))


def encode() -> Model:
    return _method("encode")


def decode() -> Model:
    return _method("decode")


def _of_frames(net: nn.Module, shape: tuple[int, ...]) -> Model:
    frames = torch.randn(128, *shape, generator=torch.Generator().manual_seed(1))
    return net.eval(), (frames[0],), [(frame,) for frame in frames]


def _method(name: str) -> Model:
    torch.manual_seed(0)
    calls = [call[name] for call in _turns()]
    return Method(EncoderDecoder(), name).eval(), calls[0], calls


def _turns() -> list[dict[str, Sample]]:
    """Recordings, each with the token that is decoded behind it."""
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "encode": (torch.randn(1, FRAMES, FEATURES, generator=generator),),
            "decode": (torch.randint(0, TOKENS, (1, 1), generator=generator), torch.tensor([step])),
        }
        for step in range(STEPS)
    ]


@click.command()
@click.option("--target", default="cortex-m55", show_default=True)
def report(target: str) -> None:
    """Print what a call of each costs on a target, as Markdown."""
    import tosaic

    methods = {name: _method(name)[:2] for name in ("encode", "decode")}
    models = {"spotter": spotter(), "tcn": tcn(), "encode,decode": (methods, _turns())}
    click.echo("| Model | Call | Core's cycles | With memory | Arena B | of which states | Flash B | Exact |")
    click.echo(f"|{'---|' * 8}")
    for name, (*model, text) in models.items():
        with tempfile.TemporaryDirectory() as folder:
            build = tosaic.compile(*model, target=target, calibration=text, output=Path(folder, "build"))
            for row in _costs(name, build):
                click.echo("| " + " | ".join(row) + " |")


def _costs(name: str, build: tosaic.Build) -> Iterator[tuple[str, ...]]:
    from tosaic.reports.methods import state_bytes

    firmware, ran = build.manifest.firmware, build.run(*build.samples[0].inputs)
    sizes = [f"{number:,}" for number in (firmware.arena_bytes, state_bytes(build), firmware.flash_bytes)]
    called = {each.name: slice(each.first, each.end) for each in firmware.methods} or {"step": slice(None)}
    for call, part in called.items():
        calls = ran.board.calls[part]
        costs = sum(each.cycles or 0 for each in calls), sum(each.cycles_with_memory or 0 for each in calls)
        yield name, call, *(f"{cost:,}" for cost in costs), *sizes, "yes" if ran.exact else "NO"


if __name__ == "__main__":
    report()
