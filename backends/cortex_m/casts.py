"""Casts of floats to narrow integers without a call: the low bits of a sum whose last bit counts 1."""

from __future__ import annotations

from typing import NamedTuple

from tosaic.support.attributes import float_of
from tosaic.support.mlir import dialect, ir, walk
from tosaic.support.values import producer

_WHOLE = 1.5 * 2**23
"""A float beside which those of less than 2^22 add up to whole numbers, rounded to even; its low bits are 0."""
_NARROW = (8, 16)


class _Bounded(NamedTuple):
    """A value between two bounds."""

    value: ir.Value
    low: float
    high: float


def cast_by_sums(kernel: ir.Operation) -> None:
    """Casts to int8 and int16, which round and then bound, bound first and then add a large float.

    Bounds are whole numbers, so both give the same; of bounds right before, the closer ones are left. What is no number
    becomes any.
    """
    for op in walk(kernel):
        if op.name != "arith.fptosi" or op.results[0].type.width not in _NARROW:
            continue
        found = _bounded(op.operands[0])
        rounded = None if found is None else producer(found.value, "math.roundeven")
        if found is None or rounded is None:
            continue
        before = _bounded(rounded.operands[0])
        closer = before is not None and found.low <= before.low and before.high <= found.high
        what = before if before is not None and closer else found._replace(value=rounded.operands[0])
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_summed(what, op.results[0].type))


def _summed(what: _Bounded, result: ir.Type) -> ir.Value:
    """The nearest whole number to a value between bounds."""
    arith, f32 = dialect("arith"), ir.F32Type.get()
    value, orders = what.value, (arith.CmpFPredicate.OLT, arith.CmpFPredicate.OGT)
    for order, bound in zip(orders, (what.high, what.low), strict=True):
        limit = arith.ConstantOp(f32, bound).result
        inside = arith.CmpFOp(order, value, limit).result
        value = arith.SelectOp(inside, value, limit).result
    total = arith.AddFOp(value, arith.ConstantOp(f32, _WHOLE).result).result
    bits = arith.BitcastOp(ir.IntegerType.get_signless(32), total).result
    found: ir.Value = arith.TruncIOp(result, bits).result
    return found


def _bounded(value: ir.Value) -> _Bounded | None:
    """A value and the constants that it is kept between, None where there are none."""
    least = producer(value, "arith.maximumf")
    most = None if least is None else producer(least.operands[0], "arith.minimumf")
    if least is None or most is None:
        return None
    low, high = (producer(op.operands[1], "arith.constant") for op in (least, most))
    if low is None or high is None:
        return None
    return _Bounded(most.operands[0], float_of(low, "value"), float_of(high, "value"))
