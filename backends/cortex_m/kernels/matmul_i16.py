"""MATMUL of two int16 activations to int16: sums of low bytes and of high ones, which fit int32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.matmul import match_product
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, match_epilogue_i16
from tosaic.backends.cortex_m.kernels.mve_match import dtype_of, number, workload
from tosaic.backends.cortex_m.kernels.product_sketch import HalfMatmulSketch
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
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
        found = self.match_products(function)
        return found if found is not None and number(found, "depth") <= _DEEPEST else None

    def match_products(self, function: ir.Operation) -> Workload | None:
        """The workload of such products of any depth."""
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
        attributes |= {"multiplier": int(epilogue.multiplier[0]), "shift": int(epilogue.shift[0])}
        return workload(self.name, attributes | ({"transposed": True} if transposed else {}), {})

    def sketch(self, workload: Workload) -> Sketched | None:
        batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
        multiplier, shift = (number(workload, name) for name in ("multiplier", "shift"))
        transposed = bool(workload.attributes.get("transposed"))
        return HalfMatmulSketch(batch, rows, depth, columns, multiplier, shift, transposed)

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        sketch = self.sketch(workload)
        return {} if sketch is None else {VARIANT: sketch}
