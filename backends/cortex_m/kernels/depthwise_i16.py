"""DEPTHWISE_CONV2D on int16 activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.depthwise_sketch import DepthwiseSketch
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, is_wide, match_epilogue_i16
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, constants_after_first, is_chain, match_window, workload
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import vector_depthwise
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir


@FAMILIES.register
class DepthwiseI16(ProgramFamily):
    """DEPTHWISE_CONV2D, int16 times constant int8, one output per channel, sums that fit int32, RESCALE to int16,
    optional CLAMP; zero points 0.

    Its variants are those of programs.
    """

    name = "depthwise_conv2d_i16"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.depthwise_conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0], INT16), constants_after_first(ops[0])
        if geometry is None or operands is None or operands[2].any() or operands[0].shape[3] != 1:
            return None
        weights = operands[0].reshape(-1, geometry.channels)
        bias = np.broadcast_to(operands[1], (geometry.channels,))
        epilogue = match_epilogue_i16(ops[1:], geometry.channels)
        if epilogue is None or is_wide(weights.T, bias):
            return None
        attributes = {**vars(geometry), "clamped": epilogue.clamped}
        constants = {"weights": weights, "bias": bias, "input_zero_point": operands[2], **epilogue.constants}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        geometry, constants = Geometry.of(workload.attributes), dict(workload.constants)
        constants["weights"] = constants["weights"].T.reshape(geometry.channels, *geometry.kernel)
        named = constants_of(replace(workload, constants=constants))
        return DepthwiseSketch(geometry, 1, epilogue_of(workload, "int16"), named, "i16")

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        geometry, plain = Geometry.of(workload.attributes), self.sketch(workload)
        if plain is None or geometry.channels == 1:
            return {} if plain is None else {VARIANT: plain}
        weights = workload.constants["weights"].reshape(*geometry.kernel, geometry.channels)
        constants = {**plain.constants, "w": weights}
        return {"lined": vector_depthwise(geometry, epilogue_of(workload, "int16"), constants)}
