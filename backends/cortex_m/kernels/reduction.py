"""REDUCE_SUM, REDUCE_MAX and REDUCE_MIN of integers along the last axis on MVE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import declaration, with_symbol
from tosaic.backends.cortex_m.kernels.mve_i16 import PRELUDE_I16
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, is_chain
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
_MEMORY = {"i8": "b", "i16": "h", "i32": "w"}
_PROTOTYPES = (
    "int32_t vaddvaq_s{width}(int32_t, {vector})",
    "{scalar} vmaxvq_s{width}({scalar}, {vector})",
    "{scalar} vmaxvq_p_s{width}({scalar}, {vector}, mve_pred16_t)",
    "{scalar} vminvq_s{width}({scalar}, {vector})",
    "{scalar} vminvq_p_s{width}({scalar}, {vector}, mve_pred16_t)",
)
_PRELUDE = (
    declaration("int32x4_t vldrwq_z_s32(const int32_t *, mve_pred16_t)")
    + "\n"
    + "".join(
        declaration(prototype.format(scalar=f"int{width}_t", vector=f"int{width}x{128 // width}_t", width=width)) + "\n"
        for width in _WIDTHS.values()
        for prototype in _PROTOTYPES
    )
)


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
        element, within = str(workload.attributes["element"]), _OPS[str(workload.attributes["op"])][0]
        rows, length, zero = (int(str(workload.attributes[name])) for name in ("rows", "length", "zero_point"))
        width, sums = _WIDTHS[element], within == "vaddva"
        lanes, low, high = 128 // width, -(1 << width - 1), (1 << width - 1) - 1
        initial = {"vaddva": -length * zero, "vmaxv": low, "vminv": high}
        step = lanes * int(schedule["unroll"])
        whole = length // step * step if length > step else 0
        total = f"int{32 if sums else width}_t"

        def join(address: str, count: int) -> str:
            inside = f", vctp{width}q({count})" if count < lanes else ""
            mask = inside and ("p_" if not sums else "")
            loaded = f"vldr{_MEMORY[element]}q_{'z_' if inside else ''}s{width}({address}{inside})"
            return f"total = {within}q_{mask}s{width}(total, {loaded}{inside if mask else ''});"

        lines = [
            f"void @SYMBOL@(const int{width}_t *restrict in, {total} *restrict out, const void *params, void *scratch)",
            "{",
            f"  for (int row = 0; row < {rows}; row++, in += {length}) {{",
            f"    {total} total = {initial[within]};",
            *([f"    for (int i = 0; i < {whole}; i += {step}) {{"] if whole else []),
            *(f"      {join(f'in + i + {offset}', lanes)}" for offset in range(0, step if whole else 0, lanes)),
            *(["    }"] if whole else []),
            *(f"    {join(f'in + {first}', min(lanes, length - first))}" for first in range(whole, length, lanes)),
            "    out[row] = total;",
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol(self.name, PRELUDE_I16 + _PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text)

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
