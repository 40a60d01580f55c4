"""Products by constants on either side, of any shapes: linear layers in int8, and the product that PyTorch computes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from tosaic.frontend import Capture, quantize, run_float
from tosaic.frontend.canonical import canonical


class ByConstant(nn.Module):
    def __init__(self, constant: Tensor, on_left: bool) -> None:
        super().__init__()
        self.constant, self.on_left = nn.Parameter(constant), on_left

    def forward(self, x):
        return self.constant @ x if self.on_left else x @ self.constant


class Heads(nn.Module):
    """A layer of its own for each of three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8, 5))

    def forward(self, x):
        return torch.bmm(x.transpose(0, 1), self.weight).transpose(0, 1)


def captured(model: nn.Module, *shape: int) -> Capture:
    batches = tuple((torch.randn(shape),) for _ in range(8))
    return Capture("model", canonical(torch.export.export(model.eval(), batches[0])), batches[0], batches)


def ops_of(program: ExportedProgram) -> Counter[str]:
    return Counter(str(node.target).removeprefix("aten.").partition(".")[0] for node in program.graph.nodes)


SHAPES = [
    ((16, 8), (5, 16), False, 1),
    ((16, 8), (2, 3, 5, 16), False, 1),
    ((1, 1, 16, 8), (5, 16), False, 1),
    ((16,), (2, 5, 16), False, 1),
    ((16, 8), (16,), False, 1),
    ((4, 16, 8), (4, 5, 16), False, 4),
    ((4, 16, 8), (5, 16), False, 4),
    ((4, 16, 8), (16,), False, 4),
    ((4, 16, 8), (2, 1, 5, 16), False, 4),
    ((3, 2, 16, 8), (2, 3, 2, 5, 16), False, 6),
    ((3, 2, 16, 8), (1, 2, 5, 16), False, 6),
    ((3, 1, 16, 8), (2, 5, 16), False, 6),
    ((9, 16), (2, 16, 5), True, 1),
    ((9, 16), (16,), True, 1),
    ((16,), (2, 16, 5), True, 1),
    ((4, 9, 16), (16, 5), True, 4),
    ((2, 9, 16), (3, 2, 16, 5), True, 2),
]


@pytest.mark.parametrize(("constant", "shape", "on_left", "layers"), SHAPES)
def test_a_product_by_a_constant_is_layers(constant, shape, on_left, layers):
    torch.manual_seed(0)
    capture = captured(ByConstant(torch.randn(constant), on_left), *shape)
    program = quantize(capture)
    ops = ops_of(program)
    assert ops["linear"] == layers and not ops.keys() & {"matmul", "mm", "bmm"}
    for batch in capture.calibration[:2]:
        (want,), (got,) = run_float(capture, batch), run_float(program, batch)
        assert got.shape == want.shape
        assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 30


def test_heads_have_layers_of_their_own():
    torch.manual_seed(0)
    assert ops_of(quantize(captured(Heads(), 6, 3, 8)))["linear"] == 3


@pytest.mark.parametrize("options", [{"activations": "int16"}, {"int16": ["matmul"]}], ids=str)
def test_constants_beside_int16_have_16_bits(options):
    torch.manual_seed(0)
    capture = captured(ByConstant(torch.randn(4, 16, 8), False), 4, 5, 16)
    program = quantize(capture, **options)
    assert ops_of(program)["matmul"] == 1
    (want,), (got,) = run_float(capture, capture.calibration[0]), run_float(program, capture.calibration[0])
    assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 60


def test_what_is_named_keeps_its_name():
    torch.manual_seed(0)
    capture = captured(ByConstant(torch.randn(4, 16, 8), False), 4, 5, 16)
    assert ops_of(quantize(capture, exclude=["matmul"]))["matmul"] == 1


def test_a_product_of_more_matrices_than_layers_stays_one():
    torch.manual_seed(0)
    assert ops_of(quantize(captured(ByConstant(torch.randn(65, 4, 4), False), 65, 2, 4)))["matmul"] == 1


def test_a_product_of_activations_stays_one():
    class Square(nn.Module):
        def forward(self, x):
            return x @ x.transpose(-1, -2)

    assert ops_of(quantize(captured(Square(), 2, 4, 8)))["matmul"] == 1
