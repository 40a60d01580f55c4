"""CONV2D (and with it fully connected layers) and MATMUL of floats."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.float_product_sketch import ScalarFloatProduct
from tosaic.backends.cortex_m.kernels.mve_match import (
    F32,
    Geometry,
    dtype_of,
    is_chain,
    match_bounds,
    match_f32,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.vector_product_sketch import FloatProduct, float_conv2d
from tosaic.backends.cortex_m.program.family import FloatFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.support.functions import body_of, computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument


class _Products(FloatFamily):
    """What is a sum of products of floats, with an optional CLAMP: its variants are those of a program."""

    @abstractmethod
    def product(self, workload: Workload) -> FloatProduct:
        """Its schedules on cores with vectors of floats."""

    def sketch(self, workload: Workload) -> Sketched | None:
        what = self.product(workload)
        return ScalarFloatProduct(what.geometry, what.channels, what.clamped, what.kind != "matmul", workload.constants)

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        return {"outer": self.product(workload)}


@FAMILIES.register
class Conv2dF32(_Products):
    """CONV2D, f32 times constant f32 that are numbers, optional CLAMP."""

    name = "conv2d_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        found = match_f32(ops, function) if ops and ops[0].name == "tosa.conv2d" else None
        if found is None or not np.isfinite(found[1]).all():
            return None
        geometry, weights, bias, bounds = found
        clamped = bool(np.isfinite(bounds).any())
        attributes = {**vars(geometry.flattened), "out_channels": len(weights), "clamped": clamped}
        constants = {"w": weights, "bias": np.broadcast_to(bias, (len(weights),))}
        return workload(self.name, attributes, {**constants, "low": bounds[0], "upper": bounds[1]})

    def product(self, workload: Workload) -> FloatProduct:
        geometry, clamped = Geometry.of(workload.attributes), bool(workload.attributes["clamped"])
        return float_conv2d(geometry, number(workload, "out_channels"), clamped, workload.constants)


@FAMILIES.register
class MatmulF32(_Products):
    """MATMUL of two f32 arguments, optional CLAMP."""

    name = "matmul_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.matmul" or not is_chain(ops, function):
            return None
        a, b = list(ops[0].operands)[:2]
        bounds = match_bounds(ops[1:])
        if [a, b] != list(body_of(function).arguments) or not is_argument(b) or bounds is None:
            return None
        if (dtype_of(a), dtype_of(b)) != (F32, F32):
            return None
        (batch, rows, depth), columns, one = shape_of(a), shape_of(b)[2], (1, 1)
        geometry = Geometry(batch, 1, rows, depth, one, one, (0, 0, 0, 0), one, 1, rows)
        clamped = bool(np.isfinite(bounds).any())
        attributes = {**vars(geometry), "out_channels": columns, "clamped": clamped}
        return workload(self.name, attributes, {"low": bounds[0], "upper": bounds[1]})

    def product(self, workload: Workload) -> FloatProduct:
        geometry, clamped = Geometry.of(workload.attributes), bool(workload.attributes["clamped"])
        channels = number(workload, "out_channels")
        return FloatProduct(geometry, channels, clamped, "matmul", workload.constants)
