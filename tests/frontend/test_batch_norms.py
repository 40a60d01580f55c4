"""Batch norms, wherever they stand, and whatever their numbers come from: no result loses accuracy by them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tosaic.frontend import Capture, quantize, run_float
from tosaic.frontend.canonical import canonical


def norm(dims: type[nn.Module], channels: int = 4) -> nn.Module:
    """One that has seen data."""
    made = dims(channels)
    made.running_mean.uniform_(-1, 1)
    made.running_var.uniform_(0.5, 4)
    nn.init.uniform_(made.weight, 0.5, 2)
    nn.init.uniform_(made.bias, -1, 1)
    return made


class SharedConvolution(nn.Module):
    """One convolution before two norms, and before one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.other = nn.Conv2d(3, 4, 3), norm(nn.BatchNorm2d), norm(nn.BatchNorm2d)

    def forward(self, x):
        return self.one(self.conv(x)), self.one(self.conv(-x)), self.other(self.conv(x))


class WeightsInBuffers(nn.Module):
    """As of an ONNX file."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 3, 3, 3))
        self.norm = norm(nn.BatchNorm2d)

    def forward(self, x):
        return self.norm(F.conv2d(x, self.weight))


class Transposed(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.ConvTranspose2d(3, 4, 3), norm(nn.BatchNorm2d)
        self.grouped, self.last = nn.ConvTranspose2d(4, 4, 3, groups=groups), norm(nn.BatchNorm2d)

    def forward(self, x):
        return self.last(self.grouped(self.norm(self.conv(x))))


class ReadTwice(nn.Module):
    """A convolution whose result is read beside its norm, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), norm(nn.BatchNorm2d)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y), torch.relu(y)


class ComputedOfParameters(nn.Module):
    def __init__(self, behind: nn.Module) -> None:
        super().__init__()
        self.conv, self.behind, self.norm = nn.Conv2d(3, 4, 3), behind, norm(nn.BatchNorm2d)

    def forward(self, x):
        n = self.norm
        mean, variance = n.running_mean * 1.5, n.running_var.clone().abs()
        return F.batch_norm(self.behind(self.conv(x)), mean, variance, n.weight * 2, n.bias + 1)


class ComputedOfTheInput(nn.Module):
    def __init__(self, weight: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.has_weight = nn.Conv2d(3, 4, 3), norm(nn.BatchNorm2d), weight

    def forward(self, x):
        found, n = self.conv(x), self.norm
        style = x.mean((0, 2, 3)).sum() + torch.arange(1.0, 5.0)
        return F.batch_norm(found, n.running_mean, n.running_var, style if self.has_weight else None, style)


NETS = {
    "a convolution before two norms": SharedConvolution,
    "weights in buffers": WeightsInBuffers,
    "transposed convolutions": lambda: Transposed(1),
    "a transposed convolution in groups": lambda: Transposed(2),
    "a convolution that is read twice": ReadTwice,
    "numbers of parameters, behind a convolution": lambda: ComputedOfParameters(nn.Identity()),
    "numbers of parameters, behind a clamp": lambda: ComputedOfParameters(nn.ReLU()),
    "numbers of the input": lambda: ComputedOfTheInput(True),
    "a bias of the input": lambda: ComputedOfTheInput(False),
}


@pytest.mark.parametrize("name", NETS)
def test_every_result_is_near_pytorchs(name):
    torch.manual_seed(0)
    module = NETS[name]().eval()
    batches = tuple((torch.randn(1, 3, 8, 8),) for _ in range(4))
    model = Capture("model", canonical(torch.export.export(module, batches[0])), batches[0], batches)
    program = quantize(model)
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    for want, got in zip(run_float(model, batches[0]), run_float(program, batches[0]), strict=True):
        assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 30
