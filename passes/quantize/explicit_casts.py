"""Casts that no integer op absorbed become f32 arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tosaic.passes.module_pass import ModulePass, register
from tosaic.passes.quantize.fold_casts import fold_storage_cast
from tosaic.passes.quantize.quantization import float_constant, quantization_of, stays_float, storage
from tosaic.passes.rewrite import Replacement, pattern, rewrite
from tosaic.support.mlir import constant, ir, shape_of, walk
from tosaic.support.quantization import Quantization
from tosaic.support.tosa_builder import clamp, emit, mul


@register
@dataclass(frozen=True)
class ExplicitCasts(ModulePass):
    """Write the casts that stay between float and integer parts as f32 TOSA arithmetic, and drop `tosaic.float`."""

    name: ClassVar[str] = "explicit-casts"

    def run(self, module: ir.Module) -> None:
        rewrite(module, [fold_storage_cast, write_dequantize, write_quantize])
        for op in walk(module):
            if stays_float(op):
                del op.attributes["tosaic.float"]


@pattern("quant.dcast")
def write_dequantize(op: ir.Operation) -> Replacement:
    """(x - zero point) * scale in f32; constants are computed here."""
    values = float_constant(op.results[0])
    if values is not None:
        return constant(values.astype(np.float32))
    quantization = quantization_of(op.operands[0])
    shape = shape_of(op.results[0])
    wide = emit("cast", [storage(op.operands[0], quantization)], shape, "f32")
    centered = emit("sub", [wide, _vector(quantization, quantization.zero_points, len(shape))], shape, "f32")
    return mul(centered, _vector(quantization, quantization.scales, len(shape)), "f32")


@pattern("quant.qcast")
def write_quantize(op: ir.Operation) -> Replacement:
    """clamp(x / scale + zero point) in f32, then a cast, which rounds half to even."""
    quantization = quantization_of(op.results[0])
    shape = shape_of(op.results[0])
    inverse = [1 / scale for scale in quantization.scales]
    scaled = mul(op.operands[0], _vector(quantization, inverse, len(shape)), "f32")
    moved = emit("add", [scaled, _vector(quantization, quantization.zero_points, len(shape))], shape, "f32")
    inside = clamp(moved, quantization.low, quantization.high)
    stored = emit("cast", [inside], shape, quantization.storage)
    return ir.Operation.create("quant.scast", results=[op.results[0].type], operands=[stored]).result


def _vector(quantization: Quantization, values: tuple | list, rank: int) -> ir.Value:
    shape = [1] * rank
    if quantization.axis is not None:
        shape[quantization.axis] = -1
    return constant(np.reshape(np.array(values, np.float32), shape))
