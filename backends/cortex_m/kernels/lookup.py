"""GATHER of rows of a constant table of bytes, stored as a convolution of one pixel stores its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload, weights_at
from tosaic.backends.cortex_m.kernels.mve import NARROWED, VECTOR, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import INT8, dtype_of, number, workload
from tosaic.backends.target import Core
from tosaic.support.functions import body_of, computing_ops, returned
from tosaic.support.mlir import constant_value, ir, shape_of
from tosaic.tuner.space import Schedule, Variant

_BESIDE = (1, 2, 3, 4)
"""Channels of a convolution's register block."""
_BEHIND = (0, 1, 2, 3)
"""Vectors that it reads ahead."""


@FAMILIES.register
class Lookup(KernelFamily):
    """One GATHER of whole rows of a constant int8 table (1, rows, width) by an argument of indices (1, count).

    Knobs: `beside`, rows whose vectors lie one of each after the other; `order`, whether the rows of each sixteen lie
    in theirs or as a convolution's results are `narrowed`; `behind`, empty vectors behind the table.
    """

    name = "lookup"

    def match(self, function: ir.Operation) -> Workload | None:
        ops, arguments = computing_ops(function), list(body_of(function).arguments)
        if len(ops) != 1 or ops[0].name != "tosa.gather" or returned(function) != list(ops[0].results):
            return None
        table, indices = ops[0].operands
        values = constant_value(table)
        if values is None or dtype_of(table) != INT8 or len(values) != 1 or [indices] != arguments:
            return None
        _, rows, width = values.shape
        attributes = {"rows": rows, "width": width, "count": shape_of(indices)[1]}
        return workload(self.name, attributes, {"weights": values[0]})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        rows, width = number(workload, "rows"), number(workload, "width")
        whole = width % VECTOR == 0
        beside = [n for n in _BESIDE if n == 1 or (whole and rows % n == 0)]
        orders = ("own", "narrowed") if whole and rows % VECTOR == 0 else ("own",)
        return (Variant("rows", {"beside": tuple(beside), "behind": _BEHIND, "order": orders}),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        width, beside, narrowed = number(workload, "width"), int(schedule["beside"]), schedule["order"] == "narrowed"
        table = workload.constants["weights"]
        if narrowed:
            table = table.reshape(-1, VECTOR, width)[:, NARROWED]
        if beside > 1:
            table = table.reshape(-1, beside, width // VECTOR, VECTOR).swapaxes(1, 2)
        places = ", ".join(str(NARROWED.index(row)) for row in range(VECTOR))
        lines = [
            "#include <stdint.h>",
            *([f"static const uint8_t places[{VECTOR}] = {{{places}}};"] if narrowed else []),
            "void @SYMBOL@(const int32_t *restrict indices, int8_t *restrict out, const int8_t *restrict params,",
            "              void *scratch)",
            "{",
            "  (void)scratch;",
            weights_at(0),
            f"  for (int i = 0; i < {number(workload, 'count')}; i++, out += {width}) {{",
            f"    const int32_t row = {'(indices[i] & ~15) | places[indices[i] & 15]' if narrowed else 'indices[i]'};",
            *(f"    {line}" for line in _copied(width, beside)),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol(self.name, "\n".join(lines))
        params = table.tobytes() + bytes(VECTOR * int(schedule["behind"]))
        return KernelSource(symbol, "c", text, params, weights=0)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        moved = number(workload, "count") * number(workload, "width")
        return {"bytes": float(moved), "beside": float(int(schedule["beside"])), "scratch": 0.0}


def _copied(width: int, beside: int) -> list[str]:
    """C that copies `row`."""
    if beside == 1:
        return [f"__builtin_memcpy(out, packed + row * {width}, {width});"]
    return [
        f"const int8_t *from = packed + row / {beside} * {beside * width} + row % {beside} * {VECTOR};",
        f"for (int c = 0; c < {width}; c += {VECTOR})",
        f"  __builtin_memcpy(out + c, from + c * {beside}, {VECTOR});",
    ]
