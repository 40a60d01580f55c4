"""Fold quantizing casts into integer TOSA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.quantize import (  # noqa: F401  (lowerings register)
    arithmetic,
    averages,
    compute,
    layer_norm,
    movement,
    recurrent,
    softmax,
)
from tosaic.passes.quantize.lowering import LOWERINGS
from tosaic.passes.quantize.multipliers import requantize
from tosaic.passes.quantize.quantization import (
    as_quantized,
    quantization_of,
    quantize,
    stays_float,
    storage,
)
from tosaic.passes.quantize.tables import table_of
from tosaic.passes.rewrite import Pattern, Replacement, pattern, rewrite
from tosaic.support.errors import PassError
from tosaic.support.locations import describe
from tosaic.support.mlir import ir
from tosaic.support.quantization import Quantization
from tosaic.support.values import producer


@register
@dataclass(frozen=True)
class FoldCasts(ModulePass):
    """Fold quantizing casts into integer TOSA; ops with `tosaic.float` stay as they are."""

    name: ClassVar[str] = "fold-casts"

    def run(self, module: ir.Module) -> None:
        casts = [fold_storage_cast, lower_quantize, *map(_unless_float, movement.PATTERNS)]
        rewrite(module, casts)  # comparisons and choices within a pointwise region go into its table; others are left
        rewrite(module, [*casts, *map(_unless_float, (*arithmetic.PATTERNS, *movement.OUTSIDE_TABLES))])


def _unless_float(one: Pattern) -> Pattern:
    return Pattern(one.names, lambda op: None if stays_float(op) else one.rule(op))


@pattern("quant.scast")
def fold_storage_cast(op: ir.Operation) -> Replacement:
    """`scast(scast(x))` -> `x`."""
    first = producer(op.operands[0], "quant.scast")
    return first.operands[0] if first is not None and first.operands[0].type == op.results[0].type else None


@pattern("quant.qcast")
def lower_quantize(op: ir.Operation) -> Replacement:
    """`qcast(op(dcast(x)...))` -> the integer op, by the table of lowerings."""
    out = quantization_of(op.results[0])
    if out.axis is not None:
        return None
    maker = producer(op.operands[0])
    if maker is None or stays_float(maker):
        return None
    with maker.location:
        stored = _integer(maker, op.operands[0], out)
    return None if stored is None else as_quantized(stored, out)


def _integer(maker: ir.Operation, source: ir.Value, out: Quantization) -> ir.Value | None:
    if maker.name == "tosa.const":
        return quantize(source, out)
    if maker.name == "quant.dcast":
        inner = quantization_of(maker.operands[0])
        if inner.axis is not None:
            return None
        stored = storage(maker.operands[0], inner)
        return stored if inner == out else requantize(stored, [inner.scale], out, input_zp=inner.zero_point)
    try:
        table = table_of(source, out)
        if table is not None:
            return table
        for lowering in LOWERINGS.get(maker.name, ()) if source == maker.results[0] else ():
            stored = lowering(maker, out)
            if stored is not None:
                return stored
    except PassError as error:
        raise PassError(error.what, where=error.where or f"{describe(maker.location)} {maker.name}", why=error.why,
                        hint=error.hint) from None  # fmt: skip
    return None
