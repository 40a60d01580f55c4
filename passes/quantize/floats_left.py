"""Tells what `fold-casts` leaves in f32 though nobody asked for it."""

from __future__ import annotations

from tosaic.passes.module_pass import ModulePass
from tosaic.passes.quantize.explicit_casts import ExplicitCasts
from tosaic.passes.quantize.quantization import is_kept_float, stays_float
from tosaic.passes.runner import When
from tosaic.support.errors import Advice
from tosaic.support.locations import describe
from tosaic.support.mlir import functions, ir, walk
from tosaic.support.tosa_ops import TOSA_OPS, Kind

_SILENT = Kind.CONSTANT | Kind.MOVING | Kind.CONTROL


class FloatsLeft:
    """A callback that collects in `advice` what stays float32 in a quantized module, one for each ATen op and line."""

    def __init__(self) -> None:
        self.advice: list[Advice] = []

    def __call__(self, when: When, one: ModulePass, module: ir.Module) -> None:
        if when != "before" or one != ExplicitCasts():
            return
        ops = walk(functions(module)["main"])
        left = [op for op in ops if computes_floats(op) and not is_kept_float(op)]
        coarse = {describe(op.location) for op in left if stays_float(op)}
        for where in dict.fromkeys(describe(op.location) for op in left):
            why = ": lines between the entries of int16 TABLEs are too coarse for it" if where in coarse else ""
            hint = "give it a narrower range" if why else "use ops that have a quantized form"
            self.advice.append(
                Advice(f"`{where.rpartition(' ')[2]}` stays float32{why}", where, f"{hint}, or --exclude it knowingly")
            )


def computes_floats(op: ir.Operation) -> bool:
    known = TOSA_OPS.get(op.name)
    if known is None or known.kinds & _SILENT:
        return False
    return any("f32" in str(value.type) for value in (*op.operands, *op.results))
