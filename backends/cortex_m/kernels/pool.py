"""MAX_POOL2D and AVG_POOL2D."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, Workload
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
from tosaic.backends.cortex_m.kernels.pool_sketch import PoolSketch, constants_of, reciprocal
from tosaic.backends.cortex_m.kernels.vector_pool_sketch import vector_pools
from tosaic.backends.cortex_m.program.family import ProgramFamily
from tosaic.backends.cortex_m.program.kernel import Sketched
from tosaic.backends.cortex_m.program.sketches.row_numbers import FOUR
from tosaic.support.attributes import bool_of, enum_of, ints_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import element_type, ir, shape_of
from tosaic.support.values import is_argument

_WIDTHS = {"i8": 8, "i16": 16}


@FAMILIES.register
class Pool(ProgramFamily):
    """Pooling of int8 or int16 NHWC tensors; averages are of what windows have inside of the image.

    An average may also be a convolution by ones, of each channel or of columns, with a RESCALE behind it.
    """

    name = "pool"
    rank = -1

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or not is_argument(ops[0].operands[0]) or not is_chain(ops, function):
            return None
        return _match_pool(*ops) if len(ops) == 1 else _match_sum(*ops) if len(ops) == 2 else None

    def sketch(self, workload: Workload) -> Sketched | None:
        return PoolSketch(*_what(workload))

    def vector_sketches(self, workload: Workload) -> Mapping[str, Sketched]:
        return vector_pools(*_what(workload))


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
    if not (one_channel and geometry.columns >= FOUR if columns else weights.shape[3] == 1):
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


def _what(
    workload: Workload,
) -> tuple[Geometry, tuple[str, str], bool, bool, Mapping[str, np.ndarray]]:
    """What a sketch takes."""
    geometry, average = _geometry(workload), bool(workload.attributes["average"])
    dtypes = (str(workload.attributes["element"]), str(workload.attributes["result_element"]))
    by_place = average and any(geometry.pad)
    return geometry, dtypes, average, by_place, constants_of(geometry, workload.constants, by_place)


def _geometry(workload: Workload) -> Geometry:
    batch, height, width, channels = numbers(workload, "shape")
    kernel, stride, pad = (numbers(workload, name) for name in ("kernel", "stride", "pad"))
    rows, columns = numbers(workload, "result")[1:3]
    return Geometry(batch, height, width, channels, kernel, stride, pad, (1, 1), rows, columns)  # type: ignore[arg-type]
