"""CONV2D (and with it fully connected layers) of int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    fold_zero_point,
    is_chain,
    match_epilogue,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.product_sketch import Conv2dSketch
from tosaic.backends.cortex_m.kernels.row_sketch import row_sketch
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.kernels.vector_sketch import vector_sketches
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

_IN_STRIPS = {"strips", "gathered"}
"""The variants that take working memory for a strip of the image."""


@FAMILIES.register
class Conv2d(ProgramFamily):
    """CONV2D, int8 times constant int8, RESCALE to int8, optional CLAMP and TABLE; or RESCALE to int16 or int32.

    Its variants are the sketches of a program: `kernels.product_sketch` without MVE, with it `kernels.row_sketch` of
    one pixel, and `kernels.vector_sketch` of several. Where there is no working memory for a strip of the image, those
    of windows of several pixels are of `nest.sketches`.
    """

    name = "conv2d"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.conv2d" or not is_chain(ops, function):
            return None
        geometry = match_window(ops[0])
        if geometry is None:
            return None
        operands = constants_after_first(ops[0])
        if operands is None:
            return None
        weights, bias, input_zero_point, _ = operands
        epilogue = match_epilogue(ops[1:], len(weights), wide=True)
        if epilogue is None:
            return None
        attributes = {**vars(geometry), "out_channels": len(weights), **epilogue.attributes}
        constants = {
            "weights": weights,
            "bias": np.broadcast_to(bias, (len(weights),)),
            "input_zero_point": input_zero_point,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        geometry, epilogue = Geometry.of(workload.attributes).flattened, epilogue_of(workload)
        return Conv2dSketch(geometry, number(workload, "out_channels"), epilogue, constants_of(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        geometry, epilogue = Geometry.of(workload.attributes).flattened, epilogue_of(workload)
        row = row_sketch(geometry, number(workload, "out_channels"), epilogue, constants_of(workload))
        if row is not None:
            return {"row": row}
        return vector_sketches(geometry, number(workload, "out_channels"), epilogue, constants_of(workload))

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        others = self.vector_variants(workload, core) if core.mve else ()
        programs = [variant for variant in super().variants(workload, core) if variant not in others]
        # The working memory of what is chosen anywhere bounds that of all kernels: the generator takes the least. Else
        # it comes last, so that kernels may share weights with one that has no room for a strip.
        return [*others, *programs] if self.site.most_scratch is None else [*programs, *others]

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not _IN_STRIPS & self.vector_sketches(workload).keys():
            return ()
        return sketches(_contraction(workload, core), self.site)

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        what, constants = _contraction(workload, core), workload.constants
        kernel = scheduled(what, schedule, core)
        weights = constants["weights"].reshape(what.channels, -1)
        bias = fold_zero_point(constants["bias"], constants["weights"], int(constants["input_zero_point"].item()))
        header = np.append(constants["range"], constants["input_zero_point"]).astype(np.int32)
        packed = kernel.pack_weights(weights), kernel.pack_factors(bias, constants["multiplier"], constants["shift"])
        return kernel.source("conv2d", header, *packed, constants.get("table"))

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_contraction(workload, core), schedule, core).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        kernel = scheduled(_contraction(workload, core), schedule, core)
        counts = kernel.counts()
        return self.site.priced(counts, estimate(counts), kernel.walks(), core.pipeline)


def _contraction(workload: Workload, core: Core) -> Contraction:
    geometry = Geometry.of(workload.attributes)
    clamped, table = bool(workload.attributes["clamped"]), bool(workload.attributes["table"])
    element = np.dtype(str(workload.attributes.get("result", "int8"))).itemsize
    finish = Finish(element, str(workload.attributes["form"]), clamped, table, terms=False, pipeline=core.pipeline)
    return Contraction(geometry.flattened, number(workload, "out_channels"), DOTS["i8"], finish)
