"""Inputs of uint8: floats from 0 to 255 in the program, bytes in the integer module."""

import numpy as np
import pytest
import torch
from torch import nn

from tosaic.backends.reference import evaluate
from tosaic.compiler.accuracy import interface_quantizations
from tosaic.frontend import capture, import_program, quantize, run_float
from tosaic.passes import run_phase
from tosaic.support.attributes import bool_of
from tosaic.support.errors import ModelError
from tosaic.support.functions import body_of, note_bytes
from tosaic.support.mlir import functions, walk

IMAGE = torch.arange(2 * 3 * 4 * 4, dtype=torch.int32).mul(5).remainder(256).to(torch.uint8).reshape(2, 3, 4, 4)


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Conv2d(3, 5, 3)

    def forward(self, x):
        return self.function(self, x)


READ = {
    "cast": lambda m, x: m.layer(x.float()),
    "to": lambda m, x: m.layer(x.to(torch.float32) / 255),
    "divided": lambda m, x: m.layer(x / 255 - 0.5),
    "moved": lambda m, x: m.layer(x.flip(1)[:, :, 1:].transpose(2, 3) * (1 / 255)),
    "twice": lambda m, x: m.layer(x / 255) + m.layer(x.float()),
}
OTHERWISE = {
    "as numbers": lambda m, x: x.long() + 1,
    "as bytes": lambda m, x: (x + x).float(),
    "given back": lambda m, x: (m.layer(x.float()), x),
}


@pytest.mark.parametrize("name", READ)
def test_the_program_takes_floats(name):
    module = Function(READ[name]).eval()
    captured = capture(module, [(IMAGE,), (255 - IMAGE,)], (IMAGE,))
    assert captured.bytes == (0,) and captured.inputs[0].dtype == torch.float32
    with torch.no_grad():
        expected = module(IMAGE).numpy()
    assert np.array_equal(run_float(captured, captured.inputs)[0], expected)


@pytest.mark.parametrize("name", READ)
def test_the_module_takes_bytes(name):
    module = Function(READ[name]).eval()
    captured = capture(module, [(IMAGE,), (255 - IMAGE,)], (IMAGE,))
    lowered = import_program(quantize(captured))
    note_bytes(lowered, captured.bytes)
    for phase in ("legalize", "quantize"):
        run_phase(lowered, phase)
    main = functions(lowered)["main"]
    (kind,) = interface_quantizations(main, "arg_attrs", list(body_of(main).arguments))
    assert kind is not None and (kind.storage, kind.scale, kind.zero_point) == ("ui8", 1.0, 0)
    (taken,) = (op for op in walk(main) if op.name == "tosa.rescale" and bool_of(op, "input_unsigned"))
    assert taken.operands[0] == body_of(main).arguments[0]
    (got,) = evaluate(lowered, [IMAGE.numpy().view(np.int8)])
    (given,) = interface_quantizations(main, "res_attrs", [main.regions[0].blocks[0].operations[-1].operands[0]])
    with torch.no_grad():
        expected = module(IMAGE).numpy()
    assert given is not None and np.abs(given.dequantize(got) - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("name", OTHERWISE)
def test_bytes_that_are_read_otherwise_are_refused(name):
    with pytest.raises(ModelError, match=r"tensors of torch\.uint8 cannot be compiled"):
        import_program(quantize(capture(Function(OTHERWISE[name]).eval(), inputs=(IMAGE,))))
