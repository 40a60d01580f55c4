"""Which values of a pointwise function are floats."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.backends.cortex_m.program.values import Value

REAL = {
    "real_add": "add",
    "real_sub": "sub",
    "real_mul": "mul",
    "real_negate": "neg",
    "real_abs": "magnitude",
    "real_floor": "floor",
    "real_ceil": "ceil",
    "to_real": "float",
}
"""The operations that give floats."""


READS_REALS = (*(name for name in REAL if name != "to_real"), "real_max", "real_min", "real_compare", "from_real")


def reals(values: Sequence[Value]) -> set[Value]:
    """The values that are floats: what operations on floats give and take, and what is chosen beside such."""
    found = {v for v in values if v.op in REAL or v.op in ("real_max", "real_min")}
    found |= {operand for v in values if v.op in READS_REALS for operand in v.operands}
    chosen = [v for v in values if v.op == "select"]
    for _ in chosen:
        for v in chosen:
            if found & {v, *v.operands[1:]}:
                found |= {v, *v.operands[1:]}
    return found
