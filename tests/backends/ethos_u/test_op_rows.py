"""Every op, element type and form: the table's verdict is Vela's, and what the NPU computes is TOSA, to the bit."""

from functools import cache

import numpy as np
import pytest
from op_rows import ROWS

from tosaic.backends import reference
from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.compiler.verdicts import verdict
from tosaic.support.mlir import ir, walk

# Vela takes these and computes something other than TOSA: the table keeps them off the NPU.
DIVERGENT = {
    "u55": ("rescale INEXACT_ROUND", "cast i16 to i8", "cast i32 to i8", "cast i32 to i16", "resize nearest x2 by x4"),
    "u85": ("rescale INEXACT_ROUND", "conv2d computed weights 1x1 per channel", "gather batch", "scatter batch"),
}


def refusals(module: ir.Module, accelerator: str) -> list[str]:
    ops = (op for op in walk(module) if op.name.startswith("tosa."))
    return [reason for op in ops if (reason := verdict(op, accelerator)) is not None]


@cache
def _case(name: str) -> tuple[bytes, list[np.ndarray], dict[str, list[str]]]:
    """The row's flatbuffer, its inputs, and the table's refusals per accelerator."""
    graph, module = ROWS[name].graph()
    refused = {accelerator: refusals(module, accelerator) for accelerator in ACCELERATORS}
    return reference.serialize(module), ROWS[name].inputs(graph), refused


@cache
def _expected(name: str) -> list[np.ndarray]:
    flatbuffer, inputs, _ = _case(name)
    return reference.evaluate(flatbuffer, inputs)


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, accelerator: str):
    flatbuffer, inputs, refused = _case(name)
    try:
        region = compile_region(flatbuffer, accelerator)
    except VelaRefusal as refusal:
        assert refused[accelerator], f"the table accepts what Vela refuses: {refusal.why}"
        return
    if refused[accelerator]:
        family = "u85" if "u85" in accelerator else "u55"
        assert name.startswith(DIVERGENT[family]), f"Vela takes it, the table says {refused[accelerator]}"
        return
    np.testing.assert_array_equal(emulate(region, inputs).outputs[0], _expected(name)[0])
