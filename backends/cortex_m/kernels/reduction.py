"""REDUCE_SUM, REDUCE_MAX and REDUCE_MIN of integers along the last axis on MVE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import Function, load_lanes, memref
from tosaic.backends.cortex_m.kernels.linalg import named
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain
from tosaic.backends.target import Core
from tosaic.support.attributes import bool_of, int_of
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_WIDTHS = {"i8": 8, "i16": 16, "i32": 32}
# The reduction of a vector, and the element types that hold its result.
_OPS = {
    "tosa.reduce_sum": ("add", ("i32",)),
    "tosa.reduce_max": ("maxsi", tuple(_WIDTHS)),
    "tosa.reduce_min": ("minsi", tuple(_WIDTHS)),
}


@FAMILIES.register
class Reduction(KernelFamily):
    """One reduction of int8, int16 or int32 to one element a row; sums are of int32, or of what a RESCALE by 1 widens.

    Knob `unroll` is the number of vectors that one turn of the loop over a row joins.
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
        attributes = {
            "op": op.name,
            "element": str(element_type(source)),
            "rows": math.prod(shape[:-1]),
            "length": shape[-1],
            "zero_point": zero_point,
        }
        return Workload(self.name, " ".join(f"{k}={v}" for k, v in attributes.items()), attributes, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (Variant("rows", {"unroll": (4, 2, 1)}),) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        element = str(workload.attributes["element"])
        rows, length = (int(str(workload.attributes[name])) for name in ("rows", "length"))
        within, _ = _OPS[str(workload.attributes["op"])]
        lanes = 128 // _WIDTHS[element]
        result_element = "i32" if within == "add" else element
        vector, wide = f"vector<{lanes}x{element}>", f"vector<{lanes}x{result_element}>"
        kind, out_kind = memref([rows, length], element), memref([rows], result_element)
        fn = Function("kernel", [kind], [out_kind])
        neutral = {"add": 0, "maxsi": -(1 << _WIDTHS[element] - 1), "minsi": (1 << _WIDTHS[element] - 1) - 1}[within]
        step = lanes * int(schedule["unroll"])
        whole = length // step * step if length > step else 0

        def join(total: str, first: str, offset: int, count: int) -> str:
            at = fn.binary("arith.addi", first, fn.constant(offset), "index") if offset else first
            value = load_lanes(fn, "%in0", kind, f"{row}, {at}", vector, count, neutral)
            if wide != vector:
                value = fn.op(f"arith.extsi {value} : {vector} to {wide}")
            return fn.op(f"vector.reduction <{within}>, {value}, {total} : {wide} into {result_element}")

        with fn.loop(rows) as row:
            result = fn.constant(neutral - length * int(str(workload.attributes["zero_point"])), result_element)
            if whole:
                with fn.reduction([(result, result_element)], whole, step) as walk:
                    for offset in range(0, step, lanes):
                        walk.carried = [join(walk.carried[0], walk.index, offset, lanes)]
                (result,) = walk.results
            for first in range(whole, length, lanes):
                result = join(result, fn.constant(first), 0, min(lanes, length - first))
            fn.line(f"memref.store {result}, %out0[{row}] : {out_kind}")
        return named(KernelSource("kernel", "mlir", str(fn)), self.name)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        rows, length = (float(str(workload.attributes[name])) for name in ("rows", "length"))
        return {"rows": rows, "length": length, "unroll": float(schedule["unroll"])}


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
