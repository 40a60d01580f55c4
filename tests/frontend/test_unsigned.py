"""Graphs that another quantizer left in uint8 mean the same in int8."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tosaic.backends.reference import evaluate
from tosaic.frontend import capture, import_program
from tosaic.passes import run_phases
from tosaic.support.errors import ModelError
from tosaic.support.mlir import functions, ir

quantized = torch.ops.quantized_decomposed
ACTIVATION, RESULT = (0.03, 117), (0.08, 131)


def rounded(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """Quantized to uint8 and dequantized."""
    numbers = (scale, zero_point, 0, 255, torch.uint8)
    return quantized.dequantize_per_tensor(quantized.quantize_per_tensor(x, *numbers), *numbers)


class Foreign(nn.Module):
    """A convolution whose activations and weights are uint8."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (4, 3, 3, 3), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        weight = quantized.dequantize_per_tensor(self.weight, 0.004, 120, 0, 255, torch.uint8)
        return rounded(torch.relu(torch.conv2d(rounded(x, *ACTIVATION), weight)), *RESULT)


def test_an_input_that_is_dequantized_comes_as_int8():
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            real = quantized.dequantize_per_tensor(x, *ACTIVATION, 0, 255, torch.uint8)
            return quantized.quantize_per_tensor(real + real, 2 * ACTIVATION[0], 9, 0, 255, torch.uint8)

    x = torch.arange(256, dtype=torch.uint8).reshape(4, 64)
    captured = capture(Doubled(), inputs=x)
    (stored,) = captured.inputs
    assert torch.equal(stored, (x.int() - 128).to(torch.int8))
    module = import_program(captured.program)
    run_phases(module)
    (got,) = evaluate(module, [stored.numpy()])
    assert np.array_equal(got, Doubled()(x).numpy().astype(np.int16) - 128)


def test_uint8_is_compiled_as_int8():
    torch.manual_seed(0)
    model, x = Foreign(), torch.randn(1, 3, 8, 8)
    expected = np.rint(model(x).numpy() / RESULT[0]) + RESULT[1] - 128
    module = import_program(torch.export.export(model, (x,)))
    run_phases(module)
    stored = np.clip(np.rint(x.numpy() * np.float32(1 / ACTIVATION[0])) + ACTIVATION[1] - 128, -128, 127)
    (got,) = evaluate(module, [stored.astype(np.int8)])
    assert np.array_equal(got, expected)
    arguments = ir.ArrayAttr(functions(module)["main"].attributes["arg_attrs"])
    assert ir.IntegerAttr(arguments[0]["tosaic.zero_point"]).value == ACTIVATION[1] - 128


_QUANTIZED = {
    "cast": lambda q: q.float() * 0.5,
    "count": lambda q: q.int() + 3,
    "compare": lambda q: q > 140,
    "argmax": lambda q: q.argmax(1).int(),
    "pool": lambda q: torch.amax(q, 1),
    "pad": lambda q: torch.nn.functional.pad(q, (1, 2), value=7),
}


@pytest.mark.parametrize("function", _QUANTIZED.values(), ids=_QUANTIZED)
def test_stored_bytes_are_computed_with(function):
    class Bytes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(quantized.quantize_per_tensor(x, *ACTIVATION, 0, 255, torch.uint8))

    x = torch.linspace(-4, 5, 24).reshape(2, 12)
    expected = Bytes()(x)
    module = import_program(torch.export.export(Bytes(), (x,)))
    run_phases(module)
    stored = np.clip(np.rint(x.numpy() * np.float32(1 / ACTIVATION[0])) + ACTIVATION[1] - 128, -128, 127)
    (got,) = evaluate(module, [stored.astype(np.int8)])
    less = 128 if expected.dtype == torch.uint8 else 0
    assert np.array_equal(got.astype(np.float64), expected.numpy().astype(np.float64) - less)


@pytest.mark.parametrize("function", [lambda q: q + q, lambda q: q.clamp(3, 9), lambda q: torch.cat([q, q * 2])])
def test_arithmetic_that_wraps_around_is_refused(function):
    class Bytes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(quantized.quantize_per_tensor(x, *ACTIVATION, 0, 255, torch.uint8)).float()

    with pytest.raises(ModelError, match=r"tensors of torch.uint8 cannot be compiled"):
        import_program(torch.export.export(Bytes(), (torch.randn(2, 3),)))
