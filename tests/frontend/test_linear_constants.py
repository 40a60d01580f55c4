"""What linear layers store beside their weights: multipliers that are bytes times a number, and no bias of zeros; and
what products of activations read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tosaic.frontend import capture, import_program, quantize
from tosaic.passes import run_phase
from tosaic.support.mlir import constant_value, walk


class Layers(nn.Module):
    """Two linear layers, of which the second reads what `between` gives."""

    def __init__(self, between: nn.Module, bias: bool = False) -> None:
        super().__init__()
        self.first, self.between, self.second = nn.Linear(40, 64, bias), between, nn.Linear(64, 24, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.first(x)))


def rescaled(net: Layers, spread: float = 1, **options) -> list[tuple[np.ndarray, int, np.ndarray]]:
    """Of each layer of the integer module the multipliers, the zero point of what it reads, and the bias.

    Args:
        spread: how many times the greatest weight of an output is as large as that of another.
    """
    torch.manual_seed(1)
    for layer in (net.first, net.second):
        layer.reset_parameters()
        layer.weight.data *= torch.linspace(1, spread, len(layer.weight))[:, None]
    samples = [(torch.randn(1, 40),) for _ in range(24)]
    program = quantize(capture(net.eval(), samples, samples[0]), **options)
    module = import_program(program)
    for phase in ("legalize", "quantize"):
        run_phase(module, phase)
    found = []
    for op in walk(module):
        if op.name == "tosa.conv2d":
            (scale,) = (use.owner for use in op.results[0].uses)
            operands = (op.operands[2], op.operands[3], scale.operands[1])
            bias, zero, multipliers = (np.array(constant_value(operand), int) for operand in operands)
            found.append((multipliers, zero.item(), bias))
    return found


def units(multipliers: np.ndarray) -> np.ndarray:
    return multipliers // np.gcd.reduce(multipliers)


@pytest.mark.parametrize("options", [{}, {"int4": ["linear"]}], ids=str)
def test_multipliers_are_bytes_times_a_number(options):
    for multipliers, *_ in rescaled(Layers(nn.Identity()), 4, **options):
        assert 16 <= units(multipliers).min() < 40
        assert units(multipliers).max() == 127


@pytest.mark.parametrize("options", [{"activations": "int16"}, {"npu": True}], ids=str)
def test_of_other_targets_and_results_they_are_as_the_weights_are(options):
    for multipliers, *_ in rescaled(Layers(nn.Identity()), 4, **options):
        assert units(multipliers).max() > 127


def test_layers_with_a_bias_keep_their_scales():
    for multipliers, *_ in rescaled(Layers(nn.Identity(), bias=True), 4):
        assert units(multipliers).max() > 127


def test_outputs_of_very_different_weights_keep_their_scales():
    (multipliers, *_), _ = rescaled(Layers(nn.Identity()), 30)
    assert units(multipliers).max() > 127


@pytest.mark.parametrize(
    ("between", "bias", "centered"),
    [
        (nn.Hardtanh(-1, 1.2), False, True),
        (nn.Hardtanh(-1, 2), False, False),
        (nn.Hardtanh(-1, 1.2), True, False),
        (nn.ReLU(), False, False),
    ],
    ids=str,
)
def test_layers_without_a_bias_read_what_has_a_zero_point_of_0_where_that_costs_little(between, bias, centered):
    _, (_, zero, added) = rescaled(Layers(between, bias))
    assert (zero == 0) is centered
    assert added.any() == bias


class Scores(nn.Module):
    """Products of what `between` gives, scaled by a number, with keys; it may have another reader, too."""

    def __init__(self, between: nn.Module, other: bool) -> None:
        super().__init__()
        self.query, self.between, self.key, self.other = nn.Linear(40, 16), between, nn.Linear(40, 16), other

    def forward(self, x: Tensor) -> Tensor:
        query = self.between(self.query(x))
        scores = (query * 0.25) @ self.key(x).transpose(-1, -2)
        return scores + query.sum() if self.other else scores


@pytest.mark.parametrize(
    ("between", "other", "centered"),
    [
        (nn.Hardtanh(-1, 1.2), False, True),
        (nn.Hardtanh(-1, 2), False, False),
        (nn.Hardtanh(-1, 1.2), True, False),
    ],
    ids=str,
)
def test_products_read_what_has_a_zero_point_of_0_where_that_costs_little(between, other, centered):
    """What is scaled by a number has the integers of its source, so that no RESCALE stands between."""
    torch.manual_seed(1)
    net = Scores(between, other).eval()
    for layer in (net.query, net.key):
        layer.weight.data *= 4
    samples = [(torch.randn(1, 12, 40),) for _ in range(24)]
    module = import_program(quantize(capture(net, samples, samples[0])))
    for phase in ("legalize", "quantize", "layout", "fuse"):
        run_phase(module, phase)
    (product,) = (op for op in walk(module) if op.name == "tosa.matmul")
    zero = constant_value(product.operands[2])
    assert zero is not None and (zero.item() == 0) is centered
    if not other:
        assert sum(op.name == "tosa.rescale" for op in walk(module)) == 3
