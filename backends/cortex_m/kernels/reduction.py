"""REDUCE_SUM, REDUCE_MAX and REDUCE_MIN of integers along the last axis on MVE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import Function, load_lanes, memref
from tosaic.backends.cortex_m.kernels.linalg import named
from tosaic.backends.target import Core
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_WIDTHS = {"i8": 8, "i16": 16, "i32": 32}
# The reduction of a vector, and the element types that hold its result.
_OPS = {
    "tosa.reduce_sum": ("add", ("i32",)),
    "tosa.reduce_max": ("maxsi", tuple(_WIDTHS)),
    "tosa.reduce_min": ("minsi", tuple(_WIDTHS)),
}


class Reduction:
    """One reduction of int8, int16 or int32 (sums of int32 alone) to one element a row.

    Knob `unroll` is the number of vectors that one turn of the loop over a row joins.
    """

    name = "reduction"

    def match(self, function: ir.Operation) -> Workload | None:
        *ops, _ = [op.operation for op in function.regions[0].blocks[0].operations]
        if len(ops) != 1 or ops[0].name not in _OPS:
            return None
        (op,) = ops
        element, shape = str(element_type(op.operands[0])), shape_of(op.operands[0])
        if element not in _OPS[op.name][1] or ir.IntegerAttr(op.attributes["axis"]).value != len(shape) - 1:
            return None
        attributes = {"op": op.name, "element": element, "rows": math.prod(shape[:-1]), "length": shape[-1]}
        return Workload(self.name, " ".join(f"{k}={v}" for k, v in attributes.items()), attributes, {})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return (Variant("rows", {"unroll": (4, 2, 1)}),) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        element = str(workload.attributes["element"])
        rows, length = (int(str(workload.attributes[name])) for name in ("rows", "length"))
        within, _ = _OPS[str(workload.attributes["op"])]
        lanes = 128 // _WIDTHS[element]
        vector, kind, out_kind = f"vector<{lanes}x{element}>", memref([rows, length], element), memref([rows], element)
        fn = Function("kernel", [kind], [out_kind])
        neutral = {"add": 0, "maxsi": -(1 << _WIDTHS[element] - 1), "minsi": (1 << _WIDTHS[element] - 1) - 1}[within]
        step = lanes * int(schedule["unroll"])
        whole = length // step * step if length > step else 0

        def join(total: str, first: str, offset: int, count: int) -> str:
            at = fn.binary("arith.addi", first, fn.constant(offset), "index") if offset else first
            value = load_lanes(fn, "%in0", kind, f"{row}, {at}", vector, count, neutral)
            return fn.op(f"vector.reduction <{within}>, {value}, {total} : {vector} into {element}")

        with fn.loop(rows) as row:
            result = fn.constant(neutral, element)
            if whole:
                with fn.reduction([(result, element)], whole, step) as walk:
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
