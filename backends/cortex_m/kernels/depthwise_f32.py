"""DEPTHWISE_CONV2D of floats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.float_depthwise_sketch import ScalarFloatDepthwise
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, match_f32, workload
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import FloatDepthwise
from tosaic.backends.cortex_m.program.family import FloatFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir

_LANES = 4


@FAMILIES.register
class DepthwiseF32(FloatFamily):
    """DEPTHWISE_CONV2D, f32 times constant f32 that are numbers, one output a channel, optional CLAMP.

    Its variants are those of a program.
    """

    name = "depthwise_conv2d_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        found = match_f32(ops, function) if ops and ops[0].name == "tosa.depthwise_conv2d" else None
        if found is None or not np.isfinite(found[1]).all():
            return None
        geometry, weights, bias, bounds = found
        if weights.shape[3] != 1:
            return None
        attributes = {**vars(geometry), "clamped": bool(np.isfinite(bounds).any())}
        constants = {"w": weights[..., 0], "bias": np.broadcast_to(bias, (geometry.channels,))}
        return workload(self.name, attributes, {**constants, "low": bounds[0], "upper": bounds[1]})

    def sketch(self, workload: Workload) -> Sketched | None:
        constants = {**workload.constants, "w": workload.constants["w"].transpose(2, 0, 1)}
        return ScalarFloatDepthwise(Geometry.of(workload.attributes), bool(workload.attributes["clamped"]), constants)

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        geometry, clamped = Geometry.of(workload.attributes), bool(workload.attributes["clamped"])
        if geometry.channels < _LANES:
            return {}
        return {"lined": FloatDepthwise(geometry, clamped, workload.constants)}
