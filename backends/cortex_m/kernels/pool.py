"""MAX_POOL2D and AVG_POOL2D."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve_i16 import widened
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    dtype_of,
    is_chain,
    match_window,
    numbers,
    workload,
)
from tosaic.backends.cortex_m.kernels.pool_sketch import PoolSketch, constants_of, reciprocal, sizes_inside
from tosaic.backends.cortex_m.nest.finish import GROUP
from tosaic.backends.cortex_m.nest.joins import Average, PoolReduction
from tosaic.backends.cortex_m.nest.windows import Windows, scheduled, sketches
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.schedule import Step
from tosaic.backends.target import Core
from tosaic.support.attributes import bool_of, enum_of, ints_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

_WIDTHS = {"i8": 8, "i16": 16}
# Sums of so many int8 fit into int16.
_HALF_WINDOW = 255


@FAMILIES.register
class Pool(ProgramFamily):
    """Pooling of int8 or int16 NHWC tensors; averages are of what windows have inside of the image.

    An average may also be a convolution by ones, of each channel or of columns, with a RESCALE behind it. Its variants
    are those of `nest.windows`.
    """

    name = "pool"
    rank = -1

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or not is_argument(ops[0].operands[0]) or not is_chain(ops, function):
            return None
        return _match_pool(*ops) if len(ops) == 1 else _match_sum(*ops) if len(ops) == 2 else None

    def sketch(self, workload: Workload) -> Sketched | None:
        geometry, average = _geometry(workload), bool(workload.attributes["average"])
        dtypes = (str(workload.attributes["element"]), str(workload.attributes["result_element"]))
        by_place = average and any(geometry.pad)
        constants = constants_of(geometry, workload.constants, by_place)
        return PoolSketch(geometry, dtypes, average, by_place, constants)

    def vector_variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        return sketches(_windows(workload), self.site, core.pipeline)

    def vector_kernel(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        return scheduled(_windows(workload), schedule, core.pipeline).source(self.name)

    def vector_trace(self, workload: Workload, schedule: Schedule, core: Core) -> Sequence[Step]:
        return scheduled(_windows(workload), schedule, core.pipeline).nest.trace

    def vector_features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        return self.site.promised(scheduled(_windows(workload), schedule, core.pipeline), core.pipeline)


def _match_pool(op: ir.Operation) -> Workload | None:
    if op.name not in ("tosa.max_pool2d", "tosa.avg_pool2d"):
        return None
    element = str(element_type(op.operands[0]))
    kernel, stride, pad = (ints_of(op, name) for name in ("kernel", "stride", "pad"))
    zeros = constants_after_first(op)
    if element not in _WIDTHS or zeros is None:
        return None
    constants = {}
    if zeros:
        count = kernel[0] * kernel[1]
        constants = _constants(*reciprocal(count), count * int(zeros[0].item()), zeros[1])
    shapes = (shape_of(op.operands[0]), shape_of(op.results[0]))
    return _workload((element, element), shapes, (kernel, stride, pad), constants)


def _match_sum(op: ir.Operation, rescale: ir.Operation) -> Workload | None:
    """A convolution by ones and one scale behind it: each channel's, or that of an image of one channel, whose columns
    are channels to us."""
    if op.name not in ("tosa.conv2d", "tosa.depthwise_conv2d") or rescale.name != "tosa.rescale":
        return None
    geometry, operands = match_window(op, dtype_of(op.operands[0])), constants_after_first(op)
    scale = constants_after_first(rescale)
    element, result = str(element_type(op.operands[0])), str(element_type(rescale.results[0]))
    if geometry is None or operands is None or scale is None or not {element, result} <= set(_WIDTHS):
        return None
    weights, bias, zero, _ = operands
    if (weights != 1).any() or bias.any() or any(geometry.pad) or geometry.dilation != (1, 1):
        return None
    columns = op.name == "tosa.conv2d"
    one_channel = geometry.channels == len(weights) == 1 and (geometry.kernel[1], geometry.stride[1]) == (1, 1)
    if not (one_channel and geometry.columns >= GROUP if columns else weights.shape[3] == 1):
        return None
    multiplier, shift, input_zero, output_zero = scale
    flags = [bool_of(rescale, name) for name in ("input_unsigned", "output_unsigned", "per_channel")]
    if any(flags) or input_zero.any() or enum_of(rescale, "rounding_mode") != "SINGLE_ROUND":
        return None
    taps = geometry.kernel[0] * geometry.kernel[1]
    if taps << _WIDTHS[element] > 1 << 31:
        return None
    if not bool_of(rescale, "scale32"):
        multiplier, shift = widened(multiplier, shift)
    before, after = list(shape_of(op.operands[0])), list(shape_of(op.results[0]))
    shapes = [(n, h, 1, w) if columns else (n, h, w, c) for n, h, w, c in (before, after)]
    constants = _constants(multiplier, shift, taps * int(zero.item()), output_zero)
    return _workload((element, result), shapes, (geometry.kernel, geometry.stride, geometry.pad), constants)


def _constants(multiplier: np.ndarray, shift: np.ndarray, offset: int, zero_point: np.ndarray) -> dict[str, np.ndarray]:
    """Of an average: the sum less `offset` is scaled, and gets `zero_point`."""
    return {"multiplier": multiplier, "shift": shift, "offset": np.array(offset), "zero_point": zero_point}


def _workload(
    elements: tuple[str, str],
    shapes: Sequence[tuple[int, ...]],
    window: Sequence[tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
) -> Workload:
    attributes: dict[str, object] = {"average": bool(constants)}
    attributes |= zip(("element", "result_element"), elements, strict=True)
    attributes |= zip(("shape", "result"), shapes, strict=True)
    attributes |= zip(("kernel", "stride", "pad"), window, strict=True)
    return workload(Pool.name, attributes, constants)


def _geometry(workload: Workload) -> Geometry:
    batch, height, width, channels = numbers(workload, "shape")
    kernel, stride, pad = (numbers(workload, name) for name in ("kernel", "stride", "pad"))
    rows, columns = numbers(workload, "result")[1:3]
    return Geometry(batch, height, width, channels, kernel, stride, pad, (1, 1), rows, columns)  # type: ignore[arg-type]


def _windows(workload: Workload) -> Windows:
    attributes, geometry, pad = workload.attributes, _geometry(workload), numbers(workload, "pad")
    kernel = numbers(workload, "kernel")
    element, result = (_WIDTHS[str(attributes[name])] // 8 for name in ("element", "result_element"))
    average = Average.of(**workload.constants) if attributes["average"] else None
    if average is None:
        return Windows(geometry, PoolReduction(element, result))
    taps = math.prod(kernel)
    narrow = element == 1 and taps <= _HALF_WINDOW
    centered = not narrow or max(128 * taps + average.offset, 127 * taps - average.offset) < 1 << 15
    by_count = _by_count(geometry, average, taps) if any(pad) else ()
    return Windows(geometry, PoolReduction(element, result, average, narrow, centered, by_count))


def _by_count(geometry: Geometry, average: Average, taps: int) -> tuple[tuple[int, Average], ...]:
    """The average of each number of elements that windows have inside of the image."""
    counts = sorted({rows * columns for rows, columns in itertools.product(*sizes_inside(geometry))})
    zero, zero_point = average.offset // taps, np.array(average.zero_point)
    return tuple((count, Average.of(*reciprocal(count), np.array(count * zero), zero_point)) for count in counts)
