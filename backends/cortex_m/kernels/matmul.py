"""MATMUL of two int8 activations to int8."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.activation_sketch import (
    ActivationSketch,
    ActivationStationarySketch,
    InPlaceSketch,
)
from tosaic.backends.cortex_m.kernels.matmul_sketch import MatmulSketch
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    Geometry,
    dtype_of,
    is_chain,
    match_epilogue,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of, products_fit, rescale_form
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR, LANES
from tosaic.support.attributes import ints_of
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.support.values import is_argument

# Byte offsets of a gather are 16 bits wide.
_WIDEST = (1 << 16) // 8
_FEW = 4
"""Rows that are multiplied with columns where these lie."""
_SHALLOW = 64
"""Bytes of a column that may stay in registers."""


@FAMILIES.register
class Matmul(ProgramFamily):
    """MATMUL (batch, rows, depth) x (batch, depth, columns) of two int8 arguments to int8, with CLAMP and TABLE.

    The second may be TRANSPOSEd: then (batch, columns, depth) is the first argument, as are the keys of attention. Few
    rows are multiplied with it where it lies.
    """

    name = "matmul"

    def match(self, function: ir.Operation) -> Workload | None:
        found = match_product(function)
        if found is None:
            return None
        ops, transposed = found
        return product_workload(ops, transposed, shape_of(ops[0].operands[0])[0], shape_of(ops[0].operands[1])[2])

    def sketch(self, workload: Workload) -> Sketched:
        batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
        epilogue, constants = epilogue_of(workload), constants_of(workload)
        return MatmulSketch(batch, rows, depth, columns, epilogue, constants, _is_transposed(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        batch, rows, depth, columns = (number(workload, name) for name in ("batch", "rows", "depth", "columns"))
        epilogue, constants, one = epilogue_of(workload), constants_of(workload), (1, 1)
        transposed = b_first = _is_transposed(workload)
        if columns == 1:
            # A column is a row of the transposed product.
            rows, columns, transposed, b_first = 1, rows, True, not b_first
            constants |= {"a_zero": constants["b_zero"], "b_zero": constants["a_zero"]}
        if columns == 1 or depth == 1:
            return {VARIANT: self.sketch(workload)}
        uniform = all(len(np.unique(constants[name])) == 1 for name in ("multiplier", "shift"))
        if uniform:
            constants |= {name: constants[name][0] for name in ("multiplier", "shift")}
        geometry = Geometry(batch, 1, rows, depth, one, one, (0, 0, 0, 0), one, 1, rows)
        form = rescale_form(constants)
        centered = not constants["a_zero"]
        what = geometry, columns, epilogue, form, constants, uniform, centered, transposed, b_first
        fits = form == "rounded" and not epilogue.clamped and products_fit(constants, depth)
        rows_fit = fits and not (epilogue.table and columns % LANES)
        found: dict[str, Sketched] = {"rows": ActivationSketch(*what, fits=rows_fit)}
        if transposed and rows <= _FEW:
            found["in_place"] = InPlaceSketch(*what, fits=rows_fit)
        if transposed and columns % FOUR == 0 and depth <= _SHALLOW and rows > 1:
            found["column_stationary"] = ActivationStationarySketch(*what, fits=fits and not epilogue.table)
        return found


def product_workload(ops: list[ir.Operation], transposed: bool, batch: int, columns: int) -> Workload | None:
    """The workload of a MATMUL of int8 and what follows, of so many matrices and columns of its own; None of others."""
    a, b, *zeros = ops[0].operands
    a_zero, b_zero = (constant_value(zero) for zero in zeros)
    epilogue = match_epilogue(ops[1:], columns) if (dtype_of(a), dtype_of(b)) == (INT8, INT8) else None
    if a_zero is None or b_zero is None or epilogue is None or columns > _WIDEST:
        return None
    _, rows, depth = shape_of(a)
    attributes = {"batch": batch, "rows": rows, "depth": depth, "columns": columns, **epilogue.attributes}
    attributes |= {"transposed": True} if transposed else {}
    constants = {"a_zero_point": a_zero, "b_zero_point": b_zero, **epilogue.constants}
    return workload("matmul", attributes, constants)


def match_product(function: ir.Operation) -> tuple[list[ir.Operation], bool] | None:
    """A MATMUL of both arguments and what follows, and whether the second one, which is the first argument then, is
    TRANSPOSEd before; None of anything else."""
    ops, arguments = computing_ops(function), list(body_of(function).arguments)
    transposed = len(ops) > 1 and ops[0].name == "tosa.transpose" and ints_of(ops[0], "perms") == (0, 2, 1)
    columns_of, ops = (ops[0], ops[1:]) if transposed else (None, ops)
    if not ops or ops[0].name != "tosa.matmul" or not is_chain(ops, function):
        return None
    a, b = list(ops[0].operands)[:2]
    if columns_of is not None and (b != columns_of.results[0] or arguments != [columns_of.operands[0], a]):
        return None
    if columns_of is None and (arguments != [a, b] or not is_argument(b)):
        return None
    return ops, transposed


def _is_transposed(workload: Workload) -> bool:
    return bool(workload.attributes.get("transposed"))
