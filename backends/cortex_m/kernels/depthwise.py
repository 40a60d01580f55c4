"""DEPTHWISE_CONV2D of int8."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Site, Workload
from tosaic.backends.cortex_m.kernels.depthwise_sketch import DepthwiseSketch
from tosaic.backends.cortex_m.kernels.mve_match import (
    INT8,
    INT32,
    Geometry,
    constants_after_first,
    is_chain,
    match_epilogue,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of
from tosaic.backends.cortex_m.kernels.space_to_depth_sketch import space_to_depth_sketch
from tosaic.backends.cortex_m.kernels.spatial_tile_sketch import spatial_tile_sketch
from tosaic.backends.cortex_m.kernels.vector_depthwise_sketch import byte_depthwise
from tosaic.backends.cortex_m.kernels.vector_sketch import vector_sketches
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.guesses import assignments, cheapest_first
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.tree import RefusedError
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Variant

_ROOMY = "space_to_depth"
"""The variant that trades working memory for cycles."""
_GUESSED = ("spatial_tiles", _ROOMY, "lined")
"""Variants whose guesses are compared."""
_WORTH = 1.5
"""Times the least guess, up to which another sketch is looked at."""


@FAMILIES.register
class Depthwise(ProgramFamily):
    """DEPTHWISE_CONV2D, int8 times constant int8, any multiplier, RESCALE to int32, or to int8 with optional CLAMP and
    TABLE.

    With MVE spatial tiles of the image lie in vectors, or channels lie in the lanes of these, whichever promises fewer
    cycles; what neither takes is computed as without.
    """

    name = "depthwise_conv2d"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.depthwise_conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0]), constants_after_first(ops[0])
        if geometry is None or operands is None:
            return None
        weights, bias, input_zero_point, _ = operands
        multiples = weights.shape[3]
        channels = geometry.channels * multiples
        epilogue = match_epilogue(ops[1:], channels, wide=True)
        if epilogue is None or epilogue.element not in (INT8, INT32):
            return None
        attributes = {**vars(geometry), "multiples": multiples, **epilogue.attributes}
        constants = {
            "weights": weights.reshape(*geometry.kernel, channels).transpose(2, 0, 1),
            "bias": np.broadcast_to(bias, (channels,)),
            "input_zero_point": input_zero_point,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> DepthwiseSketch:
        geometry, epilogue = Geometry.of(workload.attributes), epilogue_of(workload)
        return DepthwiseSketch(geometry, number(workload, "multiples"), epilogue, constants_of(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        geometry, epilogue = Geometry.of(workload.attributes), epilogue_of(workload)
        multiples, constants = number(workload, "multiples"), constants_of(workload)
        spatial_tiles = spatial_tile_sketch(geometry, multiples, epilogue, constants)
        found: dict[str, Sketched] = {} if spatial_tiles is None else {"spatial_tiles": spatial_tiles}
        if geometry.channels == 1:
            # The one channel of a CONV2D.
            return found | vector_sketches(geometry.flattened, multiples, epilogue, constants, "i8")
        if multiples == 1:
            if (space_to_depth := space_to_depth_sketch(geometry, epilogue, constants)) is not None:
                found[_ROOMY] = space_to_depth
            found["lined"] = byte_depthwise(geometry, epilogue, constants)
        return {**found, VARIANT: self.sketch(workload)}

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        found = self._sketched(workload, core)
        if not core.mve or VARIANT not in found:
            return cheapest_first(found, core, self.site)
        # What is chosen where no bound is known yet bounds the working memory of all kernels.
        out = {VARIANT, _ROOMY} if self.site.most_scratch is None else {VARIANT}
        vectors = {name: what for name, what in found.items() if name not in out}
        least = {name: _least(what, core) for name, what in vectors.items() if name in _GUESSED}
        worth = {name: vectors[name] for name, cost in least.items() if cost <= _WORTH * min(least.values())}
        variants = cheapest_first(worth, core, self.site) or cheapest_first(vectors, core, self.site)
        # Without vectors is no way out of little memory.
        if variants or cheapest_first(vectors, core, Site(compared=False)):
            return variants
        return cheapest_first(found, core, self.site)


@lru_cache(maxsize=1024)
def _least(what: Sketched, core: Core) -> float:
    """The least guess of what a schedule costs, where few loads run ahead or none do."""
    costs, knobs = [], what.knobs(core)
    few = {"ahead": knobs["ahead"][:2]} if "ahead" in knobs else {}
    for each in assignments({**knobs, **few}):
        with suppress(RefusedError):
            costs.append(what.cost(each))
    return min(costs, default=math.inf)
