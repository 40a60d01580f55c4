"""RESIZE: to the nearest pixels, or by blends of rows, then of the columns of what results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, with_symbol
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
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.kernels.resize_sketch import NearestSketch, ResizeSketch
from tosaic.backends.cortex_m.kernels.sketch_constants import epilogue_of, scale_constants, scales
from tosaic.backends.cortex_m.nest.blend_finish import Average
from tosaic.backends.cortex_m.nest.blends import Blends, scheduled, sketches
from tosaic.backends.cortex_m.program.family import VARIANT, ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.resizing import NarrowScale, Nearest, ResizedAxis, Resizing
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.attributes import enum_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

_LANES = 8
_MOST_WEIGHT, _MOST_COLUMN = 255, (1 << 15) - 1
"""Sums of int8 with weights of so much in all fit into int16; a weight of a column does."""
_MOST_OFFSET = (1 << 16) - 1
_ELEMENTS = {"int8": "i8", "int16": "i16", "float32": "f32"}
_COPIED = {1: "i8", 2: "i16", 4: "i32"}
"""Elements that are copied, by their bytes."""


@FAMILIES.register
class Resize(ProgramFamily):
    """Images (N, H, W, C) whose pixels are copied, or between which others are blended: of int8 and int16 with a
    RESCALE of sums that fit int32, and of floats.

    With MVE its variants are those of `nest.blends` where these know it and lanes of the program's loops are wider.
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

    def sketch(self, workload: Workload) -> Sketched | None:
        if "copied" in workload.attributes:
            return NearestSketch(Nearest(*_axes(workload), str(workload.attributes["copied"])))
        return _bilinear(workload)

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        sketch = self.sketch(workload)
        if sketch is None or (_is_blended(workload) and not _bilinear(workload).in_halves):
            return {}
        return {VARIANT: sketch}

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_blends(workload), core.pipeline) if _is_blended(workload) else ()

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        shape, result, scale, offset = (numbers(workload, name) for name in ("shape", "output", "scale", "offset"))
        kernel, params = scheduled(_blends(workload), schedule, core.pipeline), Params()
        batch, height, width, channels = shape
        average, row = kernel.what.average, width * channels
        factors = f"{average.multiplier}, {average.zero_point}"
        finished = [f"finished(scratch, params, out, 0, 0, {factors});", f"out += {result[2] * channels};"]
        if kernel.gathers:
            params.add(kernel.pack_neighbors(_neighbors(_resizing(workload))))
        else:
            neighbors = ", ".join(f"scratch + x{n} * {2 * channels}" for n in (0, 1))
            finished = [
                f"for (int x = 0; x < {result[2]}; x++, out += {channels}) {{",
                *(f"  {line}" for line in _at("x", scale[2:], offset[1], width)),
                f"  finished({neighbors}, out, {scale[2]} - dx, dx, {factors});",
                "}",
            ]
        above, below = (f"in + (n * {height} + y{i}) * {row}" for i in (0, 1))
        lines = [
            *kernel.functions(),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
            "              int8_t *restrict scratch)",
            "{",
            f"  for (int n = 0; n < {batch}; n++)",
            f"  for (int y = 0; y < {result[1]}; y++) {{",
            *(f"    {line}" for line in _at("y", scale[:2], offset[0], height)),
            f"    blended({above}, {below}, scratch, {scale[0]} - dy, dy, {factors});",
            *(f"    {line}" for line in finished),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol("resize", PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), 2 * row)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_blends(workload), schedule, core.pipeline).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self.site.promised(scheduled(_blends(workload), schedule, core.pipeline), core.pipeline)


def _is_blended(workload: Workload) -> bool:
    """Whether `nest.blends` knows a workload."""
    (tall, _, wide, _), (_, _, width, channels) = numbers(workload, "scale"), numbers(workload, "shape")
    plain = workload.attributes.get("element") == INT8.name
    if not plain or workload.attributes["clamped"] or workload.attributes["table"]:
        return False
    return tall <= _MOST_WEIGHT and wide <= _MOST_COLUMN and _LANES <= width * channels <= _MOST_OFFSET


def _blends(workload: Workload) -> Blends:
    (_, rows, columns, channels), (batch, height, width, _) = (numbers(workload, name) for name in ("output", "shape"))
    tall, wide = numbers(workload, "scale")[::2]
    constants = workload.constants
    zero, offset = constants["range"][:1], np.zeros(1, np.int32)
    average = Average.of(constants["multiplier"], constants["shift"], offset, zero)
    return Blends(batch, rows, columns, height, width, channels, average, wide=tall * wide > _MOST_WEIGHT)


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


def _at(axis: str, scale: Sequence[int], offset: int, extent: int) -> list[str]:
    """C of the two rows (or columns) around a result's, and the weight of the second (TOSA 1.0, RESIZE)."""
    numerator, denominator = scale
    at, floor = f"{axis} * {denominator} + {offset + numerator}", f"f{axis}"
    return [
        f"const int {floor} = ({at}) / {numerator} - 1, d{axis} = ({at}) % {numerator};",
        f"const int {axis}0 = {floor} < 0 ? 0 : {floor} < {extent} ? {floor} : {extent - 1};",
        f"const int {axis}1 = {floor} + 1 < {extent} ? {floor} + 1 : {extent - 1};",
    ]


def _neighbors(what: Resizing) -> np.ndarray:
    """(4, elements of a row): where the left and the right neighbor lie, and their weights."""
    *neighbors, weight = what.columns.neighbors
    places = [(each[:, None] * what.channels + np.arange(what.channels)).ravel() for each in neighbors]
    return np.stack([*places, *(np.repeat(each, what.channels) for each in (what.columns.numerator - weight, weight))])
