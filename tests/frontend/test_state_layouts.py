"""What a product reads column by column, or a convolution channel by channel, is kept so, and is the same model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import Capture, capture, run_float_on

PLACES, DEPTH = 32, 4


class Attending(nn.Module):
    """Values that are written at a place and multiplied as a subclass does it; `down` says along which axis."""

    values: Tensor
    down = -2

    def __init__(self) -> None:
        super().__init__()
        shape = [2, PLACES, DEPTH] if self.down == -2 else [2, DEPTH, PLACES]
        self.register_buffer("values", torch.arange(256.0).reshape(shape) / 256)

    def forward(self, scores: Tensor, row: Tensor, place: Tensor) -> Tensor | tuple[Tensor, ...]:
        row = row if self.down == -2 else row.transpose(-1, -2)
        self.values.index_copy_(self.down, place, row)
        return self.read(scores)

    def read(self, scores: Tensor) -> Tensor | tuple[Tensor, ...]:
        return scores @ self.values


class OfRows(Attending):
    """Keys that are written as columns of what they are multiplied as."""

    down = -1

    def read(self, scores: Tensor) -> Tensor:
        return scores[..., :DEPTH] @ self.values


class Turned(Attending):
    def read(self, scores: Tensor) -> Tensor:
        return scores[..., :DEPTH] @ self.values.transpose(-1, -2)


class Summed(Attending):
    def read(self, scores: Tensor) -> Tensor:
        return scores @ self.values + self.values.sum(1, keepdim=True)


class Given(Attending):
    def read(self, scores: Tensor) -> tuple[Tensor, ...]:
        return scores @ self.values, self.values


class First(Attending):
    def read(self, scores: Tensor) -> Tensor:
        return self.values @ scores[..., :DEPTH].transpose(-1, -2)


def calls(rows: int = 1) -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(2, 3, PLACES, generator=generator), torch.randn(2, rows, DEPTH, generator=generator),
         torch.arange(place, place + rows))
        for place in (3, 0, 17, 3)
    ]  # fmt: skip


def of(model: type[Attending], columns: bool = True) -> Capture:
    return capture(model(), calls(), calls()[0], columns=columns)


@pytest.mark.parametrize("model", [Attending, OfRows])
def test_what_is_multiplied_by_columns_lies_so(model):
    captured = of(model)
    (state,), first = captured.states, model().values
    assert torch.equal(state.initial, first.transpose(-1, -2)) and state.initial.is_contiguous()
    assert captured.inputs[-1].shape == captured.calibration[-1][-1].shape == state.initial.shape
    assert of(model, columns=False).states[0].initial.shape == first.shape


@pytest.mark.parametrize("model", [Turned, Summed, Given, First])
def test_what_is_read_otherwise_stays_as_it_is(model):
    assert of(model).states[0].initial.shape == model().values.shape


@pytest.mark.parametrize("model", [Attending, OfRows])
def test_it_computes_what_the_model_does(model):
    net, captured = model(), of(model)
    for sample, (found, kept) in zip(calls(), run_float_on(captured, captured.calibration), strict=True):
        np.testing.assert_allclose(found, net(*sample), rtol=1e-6)
        assert np.array_equal(kept, net.values.transpose(-1, -2))


def test_methods_share_what_lies_by_columns():
    net = Attending()
    samples = [{"several": one, "single": other} for one, other in zip(calls(rows=5), calls(), strict=True)]
    captured = capture({name: (net, samples[0][name]) for name in samples[0]}, samples, columns=True)
    assert captured.states[0].initial.shape == (2, DEPTH, PLACES)
    for sample, (first, second, kept) in zip(samples, run_float_on(captured, captured.calibration), strict=True):
        np.testing.assert_allclose(first, net(*sample["several"]), rtol=1e-6)
        np.testing.assert_allclose(second, net(*sample["single"]), rtol=1e-6)
        assert np.array_equal(kept, net.values.transpose(-1, -2))


class Streaming(nn.Module):
    """Frames that a convolution reads, of which the first are dropped behind it."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.filter = nn.Conv1d(3, 3, 3, dilation=2)
        self.register_buffer("past", torch.arange(12.0).reshape(1, 3, 4) / 12)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.cat([self.past, x], -1)
        self.past.copy_(seen[:, :, 1:])
        return self.filter(seen)


class DroppedBefore(Streaming):
    def forward(self, x: Tensor) -> Tensor:
        self.past.copy_(torch.cat([self.past[:, :, 1:], x], 2))
        return self.filter(torch.cat([self.past, x], 2))


class OfImages(Streaming):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv2d(3, 3, (2, 3))
        self.register_buffer("past", torch.arange(24.0).reshape(1, 3, 1, 8) / 24)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.cat([self.past, torch.cat([x, x + 1, x.expand(1, 3, 6)], 2)[:, :, None]], 2)
        self.past.copy_(seen[:, :, 1:])
        return self.filter(seen)


class AlsoSummed(Streaming):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.past.sum()


class AlsoGiven(Streaming):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        return self.past


class Added(Streaming):
    def forward(self, x: Tensor) -> Tensor:
        self.past.copy_(self.past + x)
        return self.filter(torch.cat([self.past, x], 2))


def frames() -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(1, 3, 1, generator=generator),) for _ in range(6)]


@pytest.mark.parametrize("model", [Streaming, DroppedBefore, OfImages])
def test_what_convolutions_read_has_its_channels_last(model):
    net, captured = model(), capture(model(), frames(), frames()[0])
    (state,), order = captured.states, (0, *range(2, net.past.ndim), 1)
    assert torch.equal(state.initial, net.past.permute(order)) and state.initial.is_contiguous()
    for sample, (found, kept) in zip(frames(), run_float_on(captured, captured.calibration), strict=True):
        np.testing.assert_allclose(found, net(*sample).detach(), rtol=1e-5, atol=1e-6)
        assert np.array_equal(kept, net.past.permute(order))


@pytest.mark.parametrize("model", [AlsoSummed, AlsoGiven, Added])
def test_what_others_read_too_has_its_channels_where_they_are(model):
    assert capture(model(), frames(), frames()[0]).states[0].initial.shape == model().past.shape
