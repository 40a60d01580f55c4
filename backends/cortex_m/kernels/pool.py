"""MAX_POOL2D and AVG_POOL2D on MVE, vectorized over the channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import (
    ACCUMULATOR,
    LANES,
    Function,
    Requantization,
    load_lanes,
    memref,
    store_lanes,
)
from tosaic.backends.cortex_m.kernels.linalg import named
from tosaic.backends.cortex_m.kernels.mve_i16 import widened
from tosaic.backends.cortex_m.kernels.mve_match import constants_after_first, dtype_of, is_chain, match_window, workload
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
class Pool(KernelFamily):
    """Pooling of int8 or int16 NHWC tensors; average pooling where no window reaches into the padding.

    An average may also be a convolution by ones, of each channel or of columns, with a RESCALE behind it. Variant
    `halves` sums int8 in sixteen bits, for windows that cannot overflow them. Knob `vectors` is the number of channel
    vectors that one walk over the window covers.
    """

    name = "pool"
    rank = -1

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or not is_argument(ops[0].operands[0]) or not is_chain(ops, function):
            return None
        return _match_pool(*ops) if len(ops) == 1 else _match_sum(*ops) if len(ops) == 2 else None

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        attributes = workload.attributes
        narrow = attributes["average"] and attributes["element"] == "i8"
        halves = narrow and np.prod(_integers(attributes["kernel"])) <= _HALF_WINDOW
        knobs = {"vectors": (4, 2, 1)}
        return tuple(Variant(name, knobs) for name in (("halves", "channels") if halves else ("channels",)))

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        halves = schedule.variant == "halves"
        return _write(workload, int(schedule["vectors"]), halves)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        result, kernel = _integers(workload.attributes["result"]), _integers(workload.attributes["kernel"])
        outputs = float(np.prod(result))
        return {
            "outputs": outputs,
            "reads": outputs * float(np.prod(kernel)),
            "vectors": float(schedule["vectors"]),
            "halves": float(schedule.variant == "halves"),
        }


def _match_pool(op: ir.Operation) -> Workload | None:
    if op.name not in ("tosa.max_pool2d", "tosa.avg_pool2d"):
        return None
    element = str(element_type(op.operands[0]))
    kernel, stride, pad = (ints_of(op, name) for name in ("kernel", "stride", "pad"))
    zeros = constants_after_first(op)
    if element not in _WIDTHS or zeros is None or (zeros and any(pad)):
        return None
    constants = {}
    if zeros:
        # The spec's reciprocal_scale (1.0, AVG_POOL2D).
        count = kernel[0] * kernel[1]
        k = (count - 1).bit_length()
        multiplier, shift = np.array((((1 << 30) + 1) << k) // count), np.array(30 + k)
        constants = _constants(multiplier, shift, count * int(zeros[0].item()), zeros[1])
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
    if not (one_channel and geometry.columns >= LANES if columns else weights.shape[3] == 1):
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


def _write(workload: Workload, vectors: int, halves: bool) -> KernelSource:
    attributes = workload.attributes
    element, result_element = str(attributes["element"]), str(attributes["result_element"])
    average = bool(attributes["average"])
    batch, height, width, channels = shape = _integers(attributes["shape"])
    _, rows, columns, _ = result = _integers(attributes["result"])
    kernel, stride, pad = (_integers(attributes[name]) for name in ("kernel", "stride", "pad"))
    fn = Function("kernel", [memref(shape, element)], [memref(result, result_element)])
    lanes = 8 if halves else LANES if average else 128 // _WIDTHS[element]
    averaging = _Halves if halves else _Average
    pool = averaging(element, result_element, workload.constants) if average else _Maximum(element, lanes)
    groups = _groups(channels, lanes, vectors)
    with fn.loop(batch) as n, fn.loop(rows) as y, fn.loop(columns) as x:
        y_range = _window(fn, y, stride[0], pad[0], kernel[0], height)
        x_range = _window(fn, x, stride[1], pad[2], kernel[1], width)
        for first, repeat, counts in groups:
            with fn.loop(first + repeat * sum(counts), sum(counts), first) as channel:
                at = [fn.binary("arith.addi", channel, fn.constant(lanes * i), "index") for i in range(len(counts))]
                sums = _reduce(fn, pool, n, y_range, x_range, at, counts, memref(shape, element))
                for value, place, count in zip(sums, at, counts, strict=True):
                    done = pool.finish(fn, value)
                    kind = f"vector<{lanes}x{result_element}>"
                    store_lanes(
                        fn, done, "%out0", memref(result, result_element), f"{n}, {y}, {x}, {place}", kind, count
                    )
    return named(KernelSource("kernel", "mlir", str(fn)), "pool")


def _reduce(
    fn: Function,
    pool: _Maximum | _Average,
    n: str,
    y_range: tuple[str, str],
    x_range: tuple[str, str],
    at: Sequence[str],
    counts: Sequence[int],
    kind: str,
) -> list[str]:
    """Walk over the window; one accumulator per vector of channels."""
    initial = [(pool.initial(fn), pool.accumulator) for _ in at]
    with fn.reduction(initial, start=y_range[0], stop=y_range[1]) as outer:
        inner_initial = [(name, pool.accumulator) for name in outer.carried]
        with fn.reduction(inner_initial, start=x_range[0], stop=x_range[1]) as inner:
            inner.carried = [
                pool.step(
                    fn,
                    carried,
                    load_lanes(fn, "%in0", kind, f"{n}, {outer.index}, {inner.index}, {c}", pool.loaded, count),
                )
                for carried, c, count in zip(inner.carried, at, counts, strict=True)
            ]
        outer.carried = inner.results
    return outer.results


def _window(fn: Function, index: str, stride: int, pad: int, kernel: int, extent: int) -> tuple[str, str]:
    """The input rows (or columns) from, to that output `index` covers, without padding."""
    scaled = fn.binary("arith.muli", index, fn.constant(stride), "index")
    first = fn.binary("arith.subi", scaled, fn.constant(pad), "index")
    last = fn.binary("arith.addi", first, fn.constant(kernel), "index")
    low = fn.binary("arith.maxsi", first, fn.constant(0), "index")
    return low, fn.binary("arith.minsi", last, fn.constant(extent), "index")


def _groups(channels: int, lanes: int, vectors: int) -> list[tuple[int, int, list[int]]]:
    """(first channel, repetitions, lanes of each vector) that cover all channels."""
    step = lanes * vectors
    whole, rest = divmod(channels, step)
    groups = [(0, whole, [lanes] * vectors)] if whole else []
    if rest:
        counts = [lanes] * (rest // lanes) + ([rest % lanes] if rest % lanes else [])
        groups.append((whole * step, 1, counts))
    return groups


class _Maximum:
    """The maximum in the element's own width."""

    def __init__(self, element: str, lanes: int) -> None:
        self.loaded = self.accumulator = f"vector<{lanes}x{element}>"
        self._lowest = -(1 << (_WIDTHS[element] - 1))

    def initial(self, fn: Function) -> str:
        return fn.constant(self._lowest, self.accumulator)

    def step(self, fn: Function, carried: str, loaded: str) -> str:
        return fn.binary("arith.maxsi", carried, loaded, self.accumulator)

    def finish(self, fn: Function, value: str) -> str:
        return value


class _Average:
    """The sum in int32, scaled and rounded once (spec 1.0, apply_scale_32)."""

    accumulator = ACCUMULATOR

    def __init__(self, element: str, result_element: str, constants: Mapping[str, np.ndarray]) -> None:
        self.loaded, self.result_element = f"vector<4x{element}>", result_element
        highest = (1 << (_WIDTHS[result_element] - 1)) - 1
        offset, zero_point = (int(constants[name].item()) for name in ("offset", "zero_point"))
        multiplier, shift = (int(constants[name].item()) for name in ("multiplier", "shift"))
        self._scale = Requantization(multiplier, shift, offset, zero_point, -highest - 1, highest)

    def initial(self, fn: Function) -> str:
        return fn.constant(0, ACCUMULATOR)

    def step(self, fn: Function, carried: str, loaded: str) -> str:
        wide = fn.op(f"arith.extsi {loaded} : {self.loaded} to {ACCUMULATOR}")
        return fn.binary("arith.addi", carried, wide, ACCUMULATOR)

    def finish(self, fn: Function, value: str) -> str:
        scaled = self._scale.apply(fn, value)
        return fn.op(f"arith.trunci {scaled} : {ACCUMULATOR} to vector<4x{self.result_element}>")


class _Halves(_Average):
    """The same of int8, summed in int16: even and odd lanes are the low and the high half of four int32."""

    accumulator = "vector<8xi16>"

    def __init__(self, element: str, result_element: str, constants: Mapping[str, np.ndarray]) -> None:
        super().__init__(element, result_element, constants)
        self.loaded = f"vector<8x{element}>"

    def initial(self, fn: Function) -> str:
        return fn.constant(0, self.accumulator)

    def step(self, fn: Function, carried: str, loaded: str) -> str:
        wide = fn.op(f"arith.extsi {loaded} : {self.loaded} to {self.accumulator}")
        return fn.binary("arith.addi", carried, wide, self.accumulator)

    def finish(self, fn: Function, value: str) -> str:
        half, low_half = fn.constant(16, ACCUMULATOR), fn.constant(0xFFFF, ACCUMULATOR)
        pairs = fn.op(f"vector.bitcast {value} : {self.accumulator} to {ACCUMULATOR}")
        raised = fn.binary("arith.shli", pairs, half, ACCUMULATOR)
        even, odd = (
            self._scale.apply(fn, fn.binary("arith.shrsi", lanes, half, ACCUMULATOR)) for lanes in (raised, pairs)
        )
        low = fn.binary("arith.andi", even, low_half, ACCUMULATOR)
        both = fn.binary("arith.ori", low, fn.binary("arith.shli", odd, half, ACCUMULATOR), ACCUMULATOR)
        halves = fn.op(f"vector.bitcast {both} : {ACCUMULATOR} to {self.accumulator}")
        if self.result_element == "i16":
            return halves
        return fn.op(f"arith.trunci {halves} : {self.accumulator} to {self.loaded}")


def _integers(value: object) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return value
