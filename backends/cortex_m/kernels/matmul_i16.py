"""MATMUL of two int16 activations to int16, with sums of 64 bits, or of low bytes and of high ones, which fit int32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.matmul import match_product
from tosaic.backends.cortex_m.kernels.matmul_sketch import HalfMatmulSketch, LongMatmulSketch, LongRowsSketch
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, match_epilogue_i16
from tosaic.backends.cortex_m.kernels.mve_match import dtype_of, number, workload
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.target import Core
from tosaic.support.mlir import ir, shape_of

_DEEPEST = np.iinfo(np.int32).max // (255 << 15)
"""Products of a half and a byte without a sign that int32 holds the sum of."""


@FAMILIES.register
class MatmulI16(ProgramFamily):
    """MATMUL (batch, rows, depth) x (batch, depth, columns) of two int16 arguments to int16 by one scale.

    The second may be TRANSPOSEd: then (batch, columns, depth) is the first argument.
    """

    name = "matmul_i16"

    def match(self, function: ir.Operation) -> Workload | None:
        found = match_product(function)
        if found is None:
            return None
        (product, *behind), transposed = found
        a, b = list(product.operands)[:2]
        (batch, rows, depth), columns = shape_of(a), shape_of(b)[2]
        epilogue = match_epilogue_i16(behind, columns)
        if dtype_of(a) != INT16 or epilogue is None or epilogue.clamped:
            return None
        if len({*epilogue.multiplier}) > 1 or len({*epilogue.shift}) > 1:
            return None
        attributes = {"batch": batch, "rows": rows, "depth": depth, "columns": columns}
        attributes |= {"transposed": True} if transposed else {}
        scale = {"multiplier": epilogue.multiplier[:1], "shift": epilogue.shift[:1]}
        return workload(self.name, attributes, {name: np.array(v, np.int32) for name, v in scale.items()})

    def sketch(self, workload: Workload) -> Sketched:
        return LongMatmulSketch(*_numbers(workload), _constants(workload))

    def _sketches(self, workload: Workload, core: Core) -> Mapping[str, Sketched]:
        """By the name of the variant: sums of 64 bits, and of halves."""
        what, constants = _numbers(workload), _constants(workload)
        if core.mve:
            return {"long": LongRowsSketch(*what, constants)}
        found: dict[str, Sketched] = {} if core.baseline else {"long": self.sketch(workload)}
        if number(workload, "depth") <= _DEEPEST and "dsp" not in core.isa:
            found["halves"] = HalfMatmulSketch(*what, int(constants["multiplier"]), int(constants["shift"]))
        return found


def _numbers(workload: Workload) -> tuple[int, int, int, int, bool]:
    """Matrices, rows, depth and columns, and whether the second operand lies by columns."""
    batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
    return batch, rows, depth, columns, bool(workload.attributes.get("transposed"))


def _constants(workload: Workload) -> Mapping[str, np.ndarray]:
    """Of one element each."""
    return {name: values.reshape(()) for name, values in workload.constants.items()}
