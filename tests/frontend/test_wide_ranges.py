"""Logarithms of what spans more than integers resolve stay float32, with what makes their arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tosaic.frontend import quantize
from tosaic.frontend.advice import range_advice
from tosaic.frontend.capture import capture


class Mel(nn.Module):
    """The log-mel spectrum of a signal, f32[1, 1, 1024] -> f32[1, 8, 7], and a convolution on it."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(65)[:, None] * torch.arange(128) * 2 * math.pi / 128
        window = torch.hann_window(128)
        self.parts = nn.Buffer(torch.stack([torch.cos(angles), torch.sin(angles)])[:, :, None] * window)
        centers = torch.linspace(2, 60, 8)
        self.bands = nn.Buffer(torch.clamp(1 - (torch.arange(65) - centers[:, None]).abs() / 5, min=0))
        self.head = nn.Conv1d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = [nn.functional.conv1d(x, kernel, stride=128) for kernel in self.parts]
        power = parts[0] * parts[0] + parts[1] * parts[1]
        return self.head(torch.log(torch.matmul(self.bands, power) + 1e-6))


def tones(count: int) -> list[tuple[Tensor]]:
    """Tones of 40 dB between the loudest and the softest."""
    draws = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        pitch, level = 2 ** (4 * torch.rand(1, generator=draws)) / 64, 10 ** (-2 * torch.rand(1, generator=draws))
        noise = torch.randn(1024, generator=draws) / 100
        found.append((((torch.sin(torch.arange(1024) * pitch) + noise) * level)[None, None],))
    return found


def sqnr(model: nn.Module, batches: list[tuple[Tensor]]) -> tuple[float, tuple[str, ...]]:
    program = quantize(capture(model.eval(), batches, batches[0]))
    quantized = program.module()
    wanted = torch.cat([model(*batch) for batch in batches])
    noise = wanted - torch.cat([quantized(*batch) for batch in batches])
    advice = tuple(str(each) for each in range_advice(program))
    return 10 * math.log10(wanted.var().item() / noise.square().mean().item()), advice


def test_a_log_mel_front_end_keeps_its_soft_bands():
    torch.manual_seed(0)
    decibels, advice = sqnr(Mel(), tones(24))
    assert decibels > 25  # 7 in integers
    assert "`aten.log.default` and the 5 ops that make its argument stay float32" in "".join(advice)


def test_a_logarithm_of_a_narrow_range_is_quantized():
    class Narrow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x)

    draws = torch.Generator().manual_seed(0)
    batches = [(torch.rand(1, 64, generator=draws) + 0.5,) for _ in range(16)]
    decibels, advice = sqnr(Narrow(), batches)
    assert decibels > 30 and not any("float32" in each for each in advice)
