"""DEPTHWISE_CONV2D of floats on MVE-F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve_match import F32, Geometry, match_f32, workload
from tosaic.backends.cortex_m.nest.floats import LANES
from tosaic.backends.cortex_m.nest.joins import ProductsF32
from tosaic.backends.cortex_m.nest.windows import Windows, scheduled, sketches
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class DepthwiseF32(KernelFamily):
    """DEPTHWISE_CONV2D, f32 times constant f32, one output a channel, optional CLAMP.

    Its variants are those of `nest.windows`.
    """

    name = "depthwise_conv2d_f32"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        found = match_f32(ops, function) if ops and ops[0].name == "tosa.depthwise_conv2d" else None
        if found is None:
            return None
        geometry, weights, bias, bounds = found
        if geometry.channels < LANES or weights.shape[3] != 1:
            return None
        attributes = {**vars(geometry), "clamped": bool(np.isfinite(bounds).any())}
        constants = {"weights": weights.reshape(-1, geometry.channels), "range": bounds}
        return workload(self.name, attributes, {**constants, "bias": np.broadcast_to(bias, (geometry.channels,))})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_windows(workload), self.site, core.pipeline) if "mve.fp" in core.isa else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what, constants = _windows(workload), workload.constants
        packed = ProductsF32.pack(*(constants[name][..., what.channel_order()] for name in ("weights", "bias")))
        return scheduled(what, schedule, core.pipeline).source(self.name, constants["range"], packed)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_windows(workload), schedule, core.pipeline).nest.trace

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return scheduled(_windows(workload), schedule, core.pipeline).counts()


def _windows(workload: Workload) -> Windows:
    return Windows(
        Geometry.of(workload.attributes), ProductsF32(F32.itemsize, F32.itemsize, bool(workload.attributes["clamped"]))
    )
