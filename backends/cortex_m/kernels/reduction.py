"""REDUCE_SUM, REDUCE_MAX and REDUCE_MIN of integers along the last axis."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain, number, workload
from tosaic.backends.cortex_m.kernels.reduction_sketch import ReductionSketch, RowsSketch, VectorsSketch
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.support.attributes import bool_of, int_of
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import element_type, ir, shape_of

_WIDTHS = {"i8": 8, "i16": 16, "i32": 32}
# What reduces elements, and the element types that hold its result.
_OPS = {
    "tosa.reduce_sum": ("add", ("i32",)),
    "tosa.reduce_max": ("max", tuple(_WIDTHS)),
    "tosa.reduce_min": ("min", tuple(_WIDTHS)),
}


@FAMILIES.register
class Reduction(ProgramFamily):
    """One reduction of int8, int16 or int32 to one element a row; sums are of int32, or of what a RESCALE by 1 widens.

    With MVE its variants are `rows`, which iterates over rows, and `vectors`, which iterates over the vectors of each.
    """

    name = "reduction"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[-1].name not in _OPS or len(ops) > 2 or not is_chain(ops, function):
            return None
        if list(body_of(function).arguments) != [ops[0].operands[0]]:
            return None
        op, source, zero_point = ops[-1], ops[-1].operands[0], 0
        if len(ops) == 2:
            widened = _widened(ops[0]) if op.name == "tosa.reduce_sum" else None
            if widened is None:
                return None
            source, zero_point = ops[0].operands[0], widened
        elif str(element_type(source)) not in _OPS[op.name][1]:
            return None
        shape = shape_of(source)
        if int_of(op, "axis") != len(shape) - 1:
            return None
        element, length = str(element_type(source)), shape[-1]
        first = {"add": -length * zero_point, "max": -1 << _WIDTHS[element] - 1, "min": (1 << _WIDTHS[element] - 1) - 1}
        attributes = {"op": op.name, "element": element, "rows": math.prod(shape[:-1]), "length": length}
        return workload(self.name, {**attributes, "first": first[_OPS[op.name][0]]}, {})

    def sketch(self, workload: Workload) -> Sketched | None:
        return ReductionSketch(*_what(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        what = _what(workload)
        return {"rows": RowsSketch(*what), "vectors": VectorsSketch(*what)}


def _what(workload: Workload) -> tuple[str, str, int, int, int]:
    """The operation of the reduction, the element type, rows, elements of each, and the number it begins with."""
    op, element = (str(workload.attributes[name]) for name in ("op", "element"))
    rows, length, first = (number(workload, name) for name in ("rows", "length", "first"))
    return _OPS[op][0], element, rows, length, first


def _widened(op: ir.Operation) -> int | None:
    """The zero point of a RESCALE of signed i8 or i16 to i32 by 1; None of any other op."""
    if op.name != "tosa.rescale" or str(element_type(op.results[0])) != "i32":
        return None
    if str(element_type(op.operands[0])) not in ("i8", "i16") or bool_of(op, "input_unsigned"):
        return None
    constants = constants_after_first(op)
    if constants is None or constants[0].size != 1:
        return None
    multiplier, shift, zero_point, _ = (int(constant.item()) for constant in constants)
    return zero_point if multiplier == 1 << shift else None
