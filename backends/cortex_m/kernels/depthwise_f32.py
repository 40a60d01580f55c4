"""DEPTHWISE_CONV2D of floats on MVE-F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, match_f32, workload
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.floats import LANES, PRELUDE_F32
from tosaic.backends.cortex_m.nest.nest import Step
from tosaic.backends.cortex_m.nest.taps import Taps, scheduled, sketch
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class DepthwiseF32(KernelFamily):
    """DEPTHWISE_CONV2D, f32 times constant f32, one output a channel, optional CLAMP.

    Its one variant is the sketch of `nest.taps`.
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
        bias = np.broadcast_to(bias, (geometry.channels,))
        return workload(self.name, attributes, {"weights": weights[..., 0], "bias": bias, "bounds": bounds})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        found = sketch(_taps(workload), self.site, core.pipeline) if "mve.fp" in core.isa else None
        return (found,) if found else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        kernel, params = scheduled(_taps(workload), schedule, core.pipeline), Params()
        constants = workload.constants
        packed = constants["bounds"], kernel.pack_weights(constants["weights"]), kernel.pack_bias(constants["bias"])
        _, weights, bias = (f"(const float *)(params + {params.add(array)})" for array in packed)
        symbol, text = with_symbol(self.name, PRELUDE_F32 + "\n".join(kernel.text(weights, bias)))
        return KernelSource(symbol, "c", text, bytes(params), kernel.scratch_bytes)

    def trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_taps(workload), schedule, core.pipeline).nest.trace

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return scheduled(_taps(workload), schedule, core.pipeline).counts()


def _taps(workload: Workload) -> Taps:
    return Taps(Geometry.of(workload.attributes), bool(workload.attributes["clamped"]))
