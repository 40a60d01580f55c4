"""CONV2D (and with it fully connected layers) on int16 activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.conv2d import Conv2d
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, is_wide, match_epilogue_i16, parts_of
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    is_chain,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.sketch_constants import joined_constants
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir


@FAMILIES.register
class Conv2dI16(Conv2d):
    """CONV2D, int16 times constant int8, RESCALE of the i48 sums to int16, optional CLAMP, or to int32; zero points 0.

    Its variants are those of `Conv2d`. Sums that may not fit int32 are added up in parts, with MVE.
    """

    name = "conv2d_i16"
    element = "i16"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0], INT16), constants_after_first(ops[0])
        if geometry is None or operands is None or operands[2].any():
            return None
        weights, bias = operands[:2]
        epilogue = match_epilogue_i16(ops[1:], len(weights), wide=True)
        if epilogue is None:
            return None
        bias = np.broadcast_to(bias, (len(weights),))
        wide = is_wide(weights, bias)
        parts = parts_of(weights, bias) if wide else 0
        if parts is None or (epilogue.element != INT16 and (wide or is_wide(weights, bias, epilogue.left))):
            return None
        form = {"parts": parts} if wide else {"form": epilogue.form}
        attributes = {**vars(geometry), "out_channels": len(weights), **form, "clamped": epilogue.clamped}
        if epilogue.element != INT16:
            attributes["result"] = epilogue.element.name
        constants = {"weights": weights, "bias": bias, "input_zero_point": operands[2], **epilogue.constants}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        return None if "parts" in workload.attributes else super().sketch(workload)

    def _layer(self, workload: Workload) -> tuple[Geometry, int, Epilogue, Mapping[str, np.ndarray]]:
        geometry, channels, epilogue, constants = super()._layer(workload)
        if "parts" not in workload.attributes:
            return geometry, channels, epilogue, constants
        parts = number(workload, "parts")
        return geometry, channels, replace(epilogue, parts=parts), {**constants, **joined_constants(workload, parts)}
