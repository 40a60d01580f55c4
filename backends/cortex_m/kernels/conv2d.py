"""CONV2D (and with it fully connected layers) of int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.conv2d_sketch import Conv2dSketch
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    is_chain,
    match_epilogue,
    match_window,
    number,
    workload,
)
from tosaic.backends.cortex_m.kernels.nibble_halves_sketch import nibble_halves_sketch
from tosaic.backends.cortex_m.kernels.nibble_sketch import NIBBLES, nibble_sketch
from tosaic.backends.cortex_m.kernels.row_sketch import row_sketch
from tosaic.backends.cortex_m.kernels.sketch_constants import constants_of, epilogue_of, factor_types, nibble_group
from tosaic.backends.cortex_m.kernels.vector_sketch import IN_PLACE, vector_sketches
from tosaic.backends.cortex_m.program.algorithms import Epilogue
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.guesses import cheapest_first
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.sketches.row_numbers import WORDS, FactorTypes
from tosaic.backends.cortex_m.program.tree import NUMPY
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Variant


@FAMILIES.register
class Conv2d(ProgramFamily):
    """CONV2D, int8 times constant int8, RESCALE to int8, optional CLAMP and TABLE; or RESCALE to int16 or int32.

    Its variants are the sketches of a program. Without MVE: `kernels.conv2d_sketch`, and
    `kernels.nibble_halves_sketch` where weights have four bits. With it: `kernels.row_sketch` of one pixel,
    `kernels.vector_sketch` of several, and `kernels.nibble_sketch` where weights have four bits.
    """

    name = "conv2d"
    element: ClassVar[str] = "i8"
    """The type of the input."""

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
        found = workload(self.name, attributes, constants)
        # Weights of four bits have schedules of their own, and biases of halves code of their own, so records too.
        known = constants_of(found)
        pixels = geometry.flattened.kernel == (1, 1) and geometry.flattened.dense
        group = nibble_group(known) if pixels else 0
        attributes |= {"group": group} if group else {}
        types = zip(FactorTypes._fields, factor_types(known), WORDS, strict=True)
        attributes |= {name: kind for name, kind, usual in types if kind != usual}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched | None:
        return Conv2dSketch(*self._layer(workload), self.element)

    def _sketches(self, workload: Workload, core: Core) -> Mapping[str, Sketched]:
        found = super()._sketches(workload, core)
        if core.mve or "dsp" not in core.isa:
            return found
        nibbles = nibble_halves_sketch(*self._layer(workload), _group(workload))
        return found if nibbles is None else {NIBBLES: nibbles, **found}

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        layer, types = self._layer(workload), WORDS if self.site.alike else _types(workload)
        what = *layer, self.element, types
        others = {"row": row} if (row := row_sketch(*what)) is not None else vector_sketches(*what)
        nibbles = nibble_sketch(*layer, _group(workload), types)
        return others if nibbles is None else {NIBBLES: nibbles, **others}

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        programs = self._sketched(workload, core)
        if NIBBLES in programs:  # whatever is faster, these take half of the memory
            return cheapest_first({NIBBLES: programs[NIBBLES]}, core, self.site)
        if self.site.most_scratch is not None:
            return cheapest_first(programs, core, self.site)
        # What is chosen where no bound is known yet bounds the working memory of all kernels.
        modest = {name: what for name, what in programs.items() if name.endswith(IN_PLACE)}
        site = replace(self.site, compared=False) if modest else self.site
        spaces = (cheapest_first(way, core, site) for way in (modest, programs) if way)
        return next((found for found in spaces if found), [])

    def _layer(self, workload: Workload) -> tuple[Geometry, int, Epilogue, Mapping[str, np.ndarray]]:
        """What all sketches of a layer take: its windows, its channels, how a sum becomes a result, its constants."""
        geometry, epilogue = Geometry.of(workload.attributes).flattened, epilogue_of(workload, NUMPY[self.element])
        return geometry, number(workload, "out_channels"), epilogue, constants_of(workload)


def _group(workload: Workload) -> int:
    """Weights of four bits that share a factor; 0 of others."""
    return number(workload, "group") if "group" in workload.attributes else 0


def _types(workload: Workload) -> FactorTypes:
    """How what channels have of their own lies in memory."""
    known = workload.attributes
    return FactorTypes(str(known.get("bias", WORDS.bias)), bool(known.get("units", WORDS.units)))
