"""DEPTHWISE_CONV2D on int16 activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.depthwise_sketch import DepthwiseSketch
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, is_wide, match_epilogue_i16, widened
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, constants_after_first, is_chain, match_window, workload
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.nest.finish import Finish
from tosaic.backends.cortex_m.nest.joins import ProductsI16
from tosaic.backends.cortex_m.nest.windows import Windows, scheduled, sketches
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class DepthwiseI16(ProgramFamily):
    """DEPTHWISE_CONV2D, int16 times constant int8, one output per channel, sums that fit int32, RESCALE to int16,
    optional CLAMP; zero points 0.

    Its variants are those of `nest.windows` with MVE, else those of a program.
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
        limits = np.iinfo(INT16)
        bounds = {"lowest": epilogue.low > limits.min, "greatest": epilogue.high < limits.max}
        attributes = {**vars(geometry), "form": epilogue.form, "clamped": epilogue.clamped, **bounds}
        constants = {"weights": weights, "bias": bias, "input_zero_point": operands[2], **epilogue.constants}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        geometry, constants = Geometry.of(workload.attributes), dict(workload.constants)
        constants["weights"] = constants["weights"].T.reshape(geometry.channels, *geometry.kernel)
        named = constants_of(replace(workload, constants=constants))
        return DepthwiseSketch(geometry, 1, epilogue_of(workload, "int16"), named, "i16")

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_windows(workload), self.site, core.pipeline)

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what, constants = _windows(workload), workload.constants
        order, join = what.channel_order(), what.join
        assert isinstance(join, ProductsI16)
        multiplier, shift = widened(constants["multiplier"], constants["shift"])
        packed = join.pack(*(each[..., order] for each in (constants["weights"], constants["bias"], multiplier, shift)))
        return scheduled(what, schedule, core.pipeline).source(self.name, constants["range"], packed)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_windows(workload), schedule, core.pipeline).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self.site.promised(scheduled(_windows(workload), schedule, core.pipeline), core.pipeline)


def _windows(workload: Workload) -> Windows:
    attributes = workload.attributes
    lowest, greatest = (bool(attributes[name]) for name in ("lowest", "greatest"))
    final = Finish(INT16.itemsize, str(attributes["form"]), lowest or greatest, table=False, terms=False, pipeline=None)
    return Windows(Geometry.of(attributes), ProductsI16(INT16.itemsize, INT16.itemsize, final, (lowest, greatest)))
