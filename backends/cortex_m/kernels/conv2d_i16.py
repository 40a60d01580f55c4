"""CONV2D (and with it fully connected layers) on int16 activations.

Weights stay int8 in the params and are widened as they are loaded. Sums that fit int32 accumulate there; where weights
and biases do not promise that, with MVE in register pairs of 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve_i16 import INT16, is_wide, match_epilogue_i16, widened
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    is_chain,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.product_sketch import Conv2dSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.nest.contraction import Contraction
from tosaic.backends.cortex_m.nest.finish import Finish
from tosaic.backends.cortex_m.nest.rows import DOTS
from tosaic.backends.cortex_m.nest.sketches import estimate, scheduled, sketches
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Schedule, Variant


@FAMILIES.register
class Conv2dI16(ProgramFamily):
    """CONV2D, int16 times constant int8, RESCALE of the i48 sums to int16, optional CLAMP, or to int32; zero points 0.

    Its variants are the sketches of `nest.sketches` with MVE, else those of a program where sums fit int32.
    """

    name = "conv2d_i16"

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
        form = "wide" if is_wide(weights, bias) else epilogue.form
        if epilogue.element != INT16 and (form == "wide" or is_wide(weights, bias, epilogue.left)):
            return None
        attributes = {**vars(geometry), "out_channels": len(weights), "form": form, "clamped": epilogue.clamped}
        if epilogue.element != INT16:
            attributes["result"] = epilogue.element.name
        constants = {"weights": weights, "bias": bias, "input_zero_point": operands[2], **epilogue.constants}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        if workload.attributes["form"] == "wide":
            return None
        geometry, epilogue = Geometry.of(workload.attributes).flattened, epilogue_of(workload, "int16")
        return Conv2dSketch(geometry, number(workload, "out_channels"), epilogue, constants_of(workload), "i16")

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_contraction(workload, core), self.site)

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what, constants = _contraction(workload, core), workload.constants
        kernel = scheduled(what, schedule, core)
        scale = constants["multiplier"], constants["shift"]
        factors = kernel.pack_factors(constants["bias"], *(scale if what.finish.form == "wide" else widened(*scale)))
        weights = kernel.pack_weights(constants["weights"].reshape(what.channels, -1))
        return kernel.source("conv2d_i16", np.append(constants["range"], 0).astype(np.int32), weights, factors)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_contraction(workload, core), schedule, core).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        kernel = scheduled(_contraction(workload, core), schedule, core)
        counts = kernel.counts()
        return self.site.priced(counts, estimate(counts), kernel.walks(), core.pipeline)


def _contraction(workload: Workload, core: Core) -> Contraction:
    geometry, form = Geometry.of(workload.attributes), str(workload.attributes["form"])
    in_bytes = replace(geometry, channels=geometry.channels * INT16.itemsize)
    element = np.dtype(str(workload.attributes.get("result", "int16"))).itemsize
    clamped = bool(workload.attributes["clamped"])
    finish = Finish(element, form, clamped, core.pipeline)
    dot = DOTS["i16 wide" if form == "wide" else "i16"]
    return Contraction(in_bytes.flattened, number(workload, "out_channels"), dot, finish)
