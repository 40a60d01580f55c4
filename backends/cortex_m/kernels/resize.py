"""RESIZE: to the nearest pixels, or by blends of rows, then of the columns of what results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
from tosaic.backends.cortex_m.kernels.mve_i16 import match_epilogue_i16
from tosaic.backends.cortex_m.kernels.mve_match import (
    F32,
    INT8,
    constants_after_first,
    dtype_of,
    is_chain,
    match_epilogue,
    numbers,
    workload,
)
from tosaic.backends.cortex_m.kernels.resize_sketch import GatheredPixels, NearestSketch, ResizeSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import epilogue_of, scale_constants, scales
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.resizing import (
    MOST_WEIGHT,
    GatheredResizing,
    NarrowScale,
    Nearest,
    ResizedAxis,
    Resizing,
)
from tosaic.backends.cortex_m.program.sketches.gathers import HALVES
from tosaic.support.attributes import enum_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument

_MOST_HALF = (1 << 15) - 1
_ELEMENTS = {"int8": "i8", "int16": "i16", "float32": "f32"}
_COPIED = {1: "i8", 2: "i16", 4: "i32"}
"""Elements that are copied, by their bytes."""


@FAMILIES.register
class Resize(ProgramFamily):
    """Images (N, H, W, C) whose pixels are copied, or between which others are blended: of int8 and int16 with a
    RESCALE of sums that fit int32, and of floats.

    With MVE pixels of int8 of few channels are gathered.
    """

    name = "resize"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.resize" or not is_chain(ops, function):
            return None
        op, operands = ops[0], constants_after_first(ops[0])
        if not is_argument(op.operands[0]) or operands is None:
            return None
        scale, offset, _ = (tuple(int(number) for number in numbers) for numbers in operands)
        shape, result, element = shape_of(op.operands[0]), shape_of(op.results[0]), dtype_of(op.operands[0])
        attributes: dict[str, object] = {"shape": shape, "output": result, "scale": scale, "offset": offset}
        if enum_of(op, "mode") != "BILINEAR":
            known = not ops[1:] and element.itemsize in _COPIED
            return workload(self.name, {**attributes, "copied": _COPIED[element.itemsize]}, {}) if known else None
        if element.name not in _ELEMENTS:
            return None
        attributes["element"] = element.name
        if element == F32:
            return None if ops[1:] else workload(self.name, attributes, {})
        epilogue = (match_epilogue if element == INT8 else match_epilogue_i16)(ops[1:], 1)
        largest = -np.iinfo(element).min * scale[0] * scale[2]
        if epilogue is None or not _is_uniform(ops[1]) or largest > np.iinfo(np.int32).max:
            return None
        constants, limits = epilogue.constants, np.iinfo(element)
        clamped, table = (limits.min, limits.max) != tuple(constants["range"][1:]), "table" in constants
        attributes |= {"clamped": clamped, "table": table, "narrow": _narrow(constants, element, scale[0] * scale[2])}
        return workload(self.name, attributes, constants)

    def sketch(self, workload: Workload) -> Sketched:
        if "copied" in workload.attributes:
            return NearestSketch(Nearest(*_axes(workload), str(workload.attributes["copied"])))
        return _bilinear(workload)

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        found = self.sketch(workload)
        if not isinstance(found, ResizeSketch) or found.in_halves or not _is_gathered(workload):
            return {VARIANT: found}
        what = GatheredResizing(**vars(found.what))
        return {"gathers": GatheredPixels(what, {**what.tables, **scale_constants(workload.constants)})}


def _is_gathered(workload: Workload) -> bool:
    """Whether vectors of halves gather the pixels of a workload."""
    (tall, _, wide, _), (_, _, width, channels) = numbers(workload, "scale"), numbers(workload, "shape")
    if (
        workload.attributes.get("element") != INT8.name
        or workload.attributes["clamped"]
        or workload.attributes["table"]
    ):
        return False
    elements = numbers(workload, "output")[2] * channels
    return tall <= MOST_WEIGHT and wide <= _MOST_HALF and width * channels <= _MOST_HALF and elements >= HALVES


def _is_uniform(rescale: ir.Operation) -> bool:
    """Whether all channels have one scale."""
    operands = constants_after_first(rescale)
    return operands is not None and operands[0].size == 1


def _narrow(constants: Mapping[str, np.ndarray], element: np.dtype, weight: int) -> NarrowScale | None:
    """A RESCALE of sums of so much weight in 32 bits, where there is no TABLE."""
    if "table" in constants:
        return None
    multiplier, shift = (int(constants[name].item()) for name in ("multiplier", "shift"))
    (zero, low, high), limits = map(int, constants["range"]), np.iinfo(element)
    sums = range(limits.min * weight, limits.max * weight + 1)
    return NarrowScale.found(multiplier, shift, zero, sums, range(low, high + 1))


def _axes(workload: Workload) -> tuple[int, ResizedAxis, ResizedAxis, int]:
    """Images, rows, columns, channels."""
    (batch, *extents, channels), (_, *counts, _) = (numbers(workload, name) for name in ("shape", "output"))
    scale, offset = numbers(workload, "scale"), numbers(workload, "offset")
    rows, columns = map(ResizedAxis, counts, extents, scale[::2], scale[1::2], offset)
    return batch, rows, columns, channels


def _resizing(workload: Workload) -> Resizing:
    kind, narrow = str(workload.attributes["element"]), workload.attributes.get("narrow")
    epilogue = None if kind == F32.name else epilogue_of(workload, kind)
    assert narrow is None or isinstance(narrow, NarrowScale)
    return Resizing(*_axes(workload), _ELEMENTS[kind], epilogue, narrow)


def _bilinear(workload: Workload) -> ResizeSketch:
    what = _resizing(workload)
    constants = {} if what.epilogue is None else scale_constants(workload.constants)
    forms = scales(constants) if constants and what.narrow is None else ("narrow",)
    return ResizeSketch(what, forms, {**what.tables, **constants})
