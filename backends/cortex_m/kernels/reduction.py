"""REDUCE_SUM, REDUCE_MAX and REDUCE_MIN of integers along the last axis on MVE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain, number
from tosaic.backends.cortex_m.nest.across import Rows, scheduled, sketches
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.attributes import bool_of, int_of
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_WIDTHS = {"i8": 8, "i16": 16, "i32": 32}
# The reduction of a vector, and the element types that hold its result.
_OPS = {
    "tosa.reduce_sum": ("vaddva", ("i32",)),
    "tosa.reduce_max": ("vmaxv", tuple(_WIDTHS)),
    "tosa.reduce_min": ("vminv", tuple(_WIDTHS)),
}


@FAMILIES.register
class Reduction(KernelFamily):
    """One reduction of int8, int16 or int32 to one element a row; sums are of int32, or of what a RESCALE by 1 widens.

    Its variants are those of `nest.across`.
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
        return sketches(_rows(workload), core.pipeline) if core.mve else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return scheduled(_rows(workload), schedule, core.pipeline).source(self.name)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_rows(workload), schedule, core.pipeline).nest.trace

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self.site.promised(scheduled(_rows(workload), schedule, core.pipeline), core.pipeline)


def _rows(workload: Workload) -> Rows:
    join, bits = _OPS[str(workload.attributes["op"])][0], _WIDTHS[str(workload.attributes["element"])]
    rows, length, zero = (number(workload, name) for name in ("rows", "length", "zero_point"))
    first = {"vaddva": -length * zero, "vmaxv": -(1 << bits - 1), "vminv": (1 << bits - 1) - 1}[join]
    return Rows(join, bits, 32 if join == "vaddva" else bits, rows, length, first)


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
