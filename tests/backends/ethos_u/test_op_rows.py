"""Every op, element type and form: the table's verdict is Vela's, and what the NPU computes is TOSA, to the bit."""

import numpy as np
import pytest
from op_rows import ROWS

from tosaic.backends import reference
from tosaic.backends.ethos_u.acceptance import verdict
from tosaic.backends.ethos_u.emulation import emulate
from tosaic.backends.ethos_u.vela import VelaRefusal, compile_region
from tosaic.support.mlir import ir, walk

# Vela takes these and computes something other than TOSA: the table keeps them off the NPU.
DIVERGENT = {
    "u55": ("rescale INEXACT_ROUND", "cast i16 to i8", "cast i32 to i8", "cast i32 to i16", "resize nearest x2 by x4"),
    "u85": ("rescale INEXACT_ROUND", "conv2d computed weights 1x1 per channel"),
}
ACCELERATORS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")


def refusals(module: ir.Module, accelerator: str) -> list[str]:
    ops = (op for op in walk(module) if op.name.startswith("tosa."))
    return [reason for op in ops if (reason := verdict(op, accelerator)) is not None]


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str):
    graph, module = ROWS[name].graph()
    flatbuffer, inputs = reference.serialize(module), ROWS[name].inputs(graph)
    expected = None
    for accelerator in ACCELERATORS:
        refused = refusals(module, accelerator)
        try:
            region = compile_region(flatbuffer, accelerator)
        except VelaRefusal as refusal:
            assert refused, f"{accelerator}: the table accepts what Vela refuses: {refusal.why}"
            continue
        if refused:
            family = "u85" if "u85" in accelerator else "u55"
            assert name.startswith(DIVERGENT[family]), f"{accelerator}: Vela takes it, the table says {refused}"
            continue
        expected = expected or reference.evaluate(flatbuffer, inputs)
        np.testing.assert_array_equal(emulate(region, inputs).outputs[0], expected[0], accelerator)
