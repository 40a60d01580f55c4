"""Batch norms, wherever they stand, and whatever their numbers come from: no result loses accuracy by them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tosaic.frontend import Capture, quantize, run_float
from tosaic.frontend.canonical import canonical


def norm() -> nn.BatchNorm2d:
    """One that has seen data."""
    made = nn.BatchNorm2d(4)
    mean, variance, weight, bias = numbers(made)
    with torch.no_grad():
        for values, low, high in ((mean, -1, 1), (variance, 0.5, 4), (weight, 0.5, 2), (bias, -1, 1)):
            values.uniform_(low, high)
    return made


def numbers(of: nn.BatchNorm2d) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Its mean, variance, weight and bias."""
    assert of.running_mean is not None and of.running_var is not None
    return of.running_mean, of.running_var, of.weight, of.bias


class SharedConvolution(nn.Module):
    """One convolution before two norms, and before one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.other = nn.Conv2d(3, 4, 3), norm(), norm()

    def forward(self, x):
        return self.one(self.conv(x)), self.one(self.conv(-x)), self.other(self.conv(x))


class WeightsInBuffers(nn.Module):
    """As of an ONNX file."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 3, 3, 3))
        self.norm = norm()

    def forward(self, x):
        return self.norm(F.conv2d(x, self.weight))


class Transposed(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.ConvTranspose2d(3, 4, 3), norm()
        self.grouped, self.last = nn.ConvTranspose2d(4, 4, 3, groups=groups), norm()

    def forward(self, x):
        return self.last(self.grouped(self.norm(self.conv(x))))


class ReadOnce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), norm()

    def forward(self, x):
        return self.norm(self.conv(x))


class ReadTwice(nn.Module):
    """A convolution whose result is read beside its norm, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), norm()

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y), torch.relu(y)


class ComputedOfParameters(nn.Module):
    def __init__(self, behind: nn.Module) -> None:
        super().__init__()
        self.conv, self.behind, self.norm = nn.Conv2d(3, 4, 3), behind, norm()

    def forward(self, x):
        mean, variance, weight, bias = numbers(self.norm)
        return F.batch_norm(self.behind(self.conv(x)), mean * 1.5, variance.clone().abs(), weight * 2, bias + 1)


class ComputedOfTheInput(nn.Module):
    def __init__(self, weight: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.has_weight = nn.Conv2d(3, 4, 3), norm(), weight

    def forward(self, x):
        found, (mean, variance, _, _) = self.conv(x), numbers(self.norm)
        style = x.mean((0, 2, 3)).sum() + torch.arange(1.0, 5.0)
        return F.batch_norm(found, mean, variance, style if self.has_weight else None, style)


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


def test_a_convolution_with_a_norm_in_it_is_still_the_users_convolution():
    torch.manual_seed(0)
    batch = (torch.randn(1, 3, 8, 8),)
    program = canonical(torch.export.export(ReadOnce().eval(), batch))
    quantized = quantize(Capture("model", program, batch, (batch,)))
    (conv,) = [node for node in quantized.graph.nodes if "conv2d" in str(node.target)]
    assert "conv" in [path for path, _ in conv.meta["nn_module_stack"].values()]
