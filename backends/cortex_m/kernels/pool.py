"""MAX_POOL2D and AVG_POOL2D on MVE, vectorized over the channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import declarations, shift_factors, with_symbol
from tosaic.backends.cortex_m.kernels.mve_i16 import PRELUDE_I16, widened
from tosaic.backends.cortex_m.kernels.mve_match import (
    constants_after_first,
    dtype_of,
    is_chain,
    match_window,
    numbers,
    workload,
)
from tosaic.backends.cortex_m.nest.finish import GROUP
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
        halves = narrow and np.prod(numbers(workload, "kernel")) <= _HALF_WINDOW
        knobs = {"vectors": (4, 2, 1)}
        return tuple(Variant(name, knobs) for name in (("halves", "channels") if halves else ("channels",)))

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        halves = schedule.variant == "halves"
        return _write(workload, int(schedule["vectors"]), halves)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        result, kernel = numbers(workload, "result"), numbers(workload, "kernel")
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


def _write(workload: Workload, vectors: int, halves: bool) -> KernelSource:
    attributes = workload.attributes
    element, result_element = str(attributes["element"]), str(attributes["result_element"])
    batch, height, width, channels = numbers(workload, "shape")
    _, rows, columns, _ = numbers(workload, "result")
    kernel, stride, pad = (numbers(workload, name) for name in ("kernel", "stride", "pad"))
    lanes = 8 if halves else GROUP if attributes["average"] else 128 // _WIDTHS[element]
    vector = f"int{128 // lanes}x{lanes}_t"
    source, result = f"int{_WIDTHS[element]}_t", f"int{_WIDTHS[result_element]}_t"
    if attributes["average"]:
        helpers, initial = scaled_sums(workload.constants, result_element, halves), 0
        step, done = "{0} + {1}", "scaled({0})"
    else:
        helpers, initial = [], -(1 << _WIDTHS[element] - 1)
        step, done = f"vmaxq_s{128 // lanes}({{0}}, {{1}})", "{0}"
    lines = [
        *helpers,
        f"void @SYMBOL@(const {source} *restrict in, {result} *restrict out, const void *params, void *scratch)",
        "{",
        f"  for (int n = 0; n < {batch}; n++)",
        f"  for (int y = 0; y < {rows}; y++)",
        f"  for (int x = 0; x < {columns}; x++, out += {channels}) {{",
        *_window("y", stride[0], pad[0], kernel[0], height),
        *_window("x", stride[1], pad[2], kernel[1], width),
        f"    const {source} *from = in + ((n * {height} + y0) * {width} + x0) * {channels};",
    ]
    for first, repeat, counts in _groups(channels, lanes, vectors):
        names = [f"v{number}" for number in range(len(counts))]
        lines += [
            f"    for (int c = {first}; c < {first + repeat * sum(counts)}; c += {sum(counts)}) {{",
            f"      {vector} " + ", ".join(f"{name} = vdupq_n_s{128 // lanes}({initial})" for name in names) + ";",
            f"      const {source} *row = from + c;",
            f"      for (int i = y0; i < y1; i++, row += {width * channels}) {{",
            f"        const {source} *at = row;",
            f"        for (int j = x0; j < x1; j++, at += {channels}) {{",
        ]
        for number, (name, count) in enumerate(zip(names, counts, strict=True)):
            loaded = _access("vldr", element, lanes, count, f"at + {number * lanes}")
            lines.append(f"          {name} = {step.format(name, loaded)};")
        lines += ["        }", "      }"]
        for number, (name, count) in enumerate(zip(names, counts, strict=True)):
            stored = _access("vstr", result_element, lanes, count, f"out + c + {number * lanes}", done.format(name))
            lines.append(f"      {stored};")
        lines.append("    }")
    symbol, text = with_symbol("pool", PRELUDE_I16 + _PRELUDE + "\n".join([*lines, "  }", "}", ""]))
    return KernelSource(symbol, "c", text)


def _window(index: str, stride: int, pad: int, kernel: int, extent: int) -> list[str]:
    """The input rows (or columns) from, to that an output covers, without padding."""
    first = f"{index} * {stride} - {pad}"
    low, high = f"{first} > 0 ? {first} : 0", f"{first} + {kernel} < {extent} ? {first} + {kernel} : {extent}"
    return [f"    const int {index}0 = {low}, {index}1 = {high};"]


def _groups(channels: int, lanes: int, vectors: int) -> list[tuple[int, int, list[int]]]:
    """(first channel, repetitions, lanes of each vector) that cover all channels."""
    step = lanes * vectors
    whole, rest = divmod(channels, step)
    groups = [(0, whole, [lanes] * vectors)] if whole else []
    if rest:
        counts = [lanes] * (rest // lanes) + ([rest % lanes] if rest % lanes else [])
        groups.append((whole * step, 1, counts))
    return groups


def _access(kind: str, element: str, lanes: int, count: int, *operands: str) -> str:
    """A load (`vldr`) or a store (`vstr`) of the first `count` lanes of a vector, each an `element` of memory."""
    masked = {"vldr": "z_", "vstr": "p_"}[kind] if count < lanes else ""
    inside = [f"vctp{128 // lanes}q({count})"] if masked else []
    return f"{kind}{'b' if element == 'i8' else 'h'}q_{masked}s{128 // lanes}({', '.join([*operands, *inside])})"


def scaled_sums(constants: Mapping[str, np.ndarray], element: str, halves: bool) -> list[str]:
    """C of `scaled`: an average from sums in int32, rounded once (TOSA 1.0, apply_scale_32), or from sums in int16."""
    multiplier, right, left = (
        int(field.item()) for field in shift_factors(constants["multiplier"], constants["shift"])
    )
    product = f"vqdmulhq_n_s32(v, {multiplier})"
    if multiplier.bit_count() == 1:
        product, right, left = "v", multiplier.bit_length() - 1 - int(constants["shift"].item()), 0
    offset, zero_point = (int(constants[name].item()) for name in ("offset", "zero_point"))
    low, high = -(1 << _WIDTHS[element] - 1), (1 << _WIDTHS[element] - 1) - 1
    words = [
        "INLINE int32x4_t rounded(int32x4_t v)",
        "{",
        *([f"  v = vaddq_n_s32(v, {-offset});"] if offset else []),
        *([f"  v = vshlq_n_s32(v, {left});"] if left else []),
        f"  return {f'vrshlq_n_s32({product}, {right})' if right else product};",
        "}",
    ]
    if not halves:
        moved = f"vaddq_n_s32(rounded(v), {zero_point})"
        clamped = f"vminq_s32(vmaxq_s32({moved}, vdupq_n_s32({low})), vdupq_n_s32({high}))"
        return [*words, "INLINE int32x4_t scaled(int32x4_t v)", "{", f"  return {clamped};", "}"]
    even, odd = (f"rounded(vmovl{lane}q_s16(v))" for lane in "bt")
    result = f"vqmovntq_s32(vqmovnbq_s32(v, {even}), {odd})"
    if element == "i8":
        result = f"vqaddq_n_s16({result}, {zero_point})"
        result = f"vminq_s16(vmaxq_s16({result}, vdupq_n_s16({low})), vdupq_n_s16({high}))"
    return [*words, "INLINE int16x8_t scaled(int16x8_t v)", "{", f"  return {result};", "}"]


_PRELUDE = declarations("""\
int16x8_t vldrbq_z_s16(const int8_t *, mve_pred16_t)
int32x4_t vldrbq_s32(const int8_t *)
int32x4_t vldrbq_z_s32(const int8_t *, mve_pred16_t)
int32x4_t vldrhq_s32(const int16_t *)
int32x4_t vldrhq_z_s32(const int16_t *, mve_pred16_t)
void vstrbq_p_s16(int8_t *, int16x8_t, mve_pred16_t)
int32x4_t vmovlbq_s16(int16x8_t)
int32x4_t vmovltq_s16(int16x8_t)""")
