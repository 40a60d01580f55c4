"""DEPTHWISE_CONV2D on int16 activations in MVE: eight channels a vector, products of 32 bits in even and odd lanes.

Where there is padding, the input rows behind one row of outputs are first copied to scratch memory between zeros, so
that borders need no code of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import COPY, VECTOR, reorder, requantization_table, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_i16 import (
    INT16,
    PRELUDE_I16,
    is_wide,
    match_epilogue_i16,
    scaled,
    widened,
)
from tosaic.backends.cortex_m.kernels.mve_match import Geometry, constants_after_first, is_chain, match_window, workload
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Choice, Schedule, Variant

_LANES = VECTOR // INT16.itemsize
# The products of even lanes come first.
_LANE_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
_MOST_TAPS = 64


@FAMILIES.register
class DepthwiseI16(KernelFamily):
    """DEPTHWISE_CONV2D, int16 times constant int8, one output per channel, sums that fit int32, RESCALE to int16,
    optional CLAMP; zero points 0.

    Knob of variant `channels`: `pixels` is how many neighboring outputs share one reading of the weights.
    """

    name = "depthwise_conv2d_i16"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if not ops or ops[0].name != "tosa.depthwise_conv2d" or not is_chain(ops, function):
            return None
        geometry, operands = match_window(ops[0], INT16), constants_after_first(ops[0])
        if geometry is None or operands is None or operands[2].any() or operands[0].shape[3] != 1:
            return None
        weights = operands[0].reshape(-1, geometry.channels).T
        bias = np.broadcast_to(operands[1], (geometry.channels,))
        epilogue = match_epilogue_i16(ops[1:], geometry.channels)
        if epilogue is None or weights.shape[1] > _MOST_TAPS or is_wide(weights, bias):
            return None
        attributes = {**vars(geometry), "left": epilogue.form != "right", "clamped": epilogue.clamped}
        return workload(self.name, attributes, {"weights": weights, "bias": bias, **epilogue.constants})

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        geometry = Geometry.of(workload.attributes)

        def legal(knobs: Mapping[str, Choice]) -> bool:
            return int(knobs["pixels"]) <= geometry.columns

        pixels = (1, 2, 3) if geometry.columns % 2 else (2, 1, 3)
        return (Variant("channels", {"pixels": pixels}, legal),)

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        geometry = Geometry.of(workload.attributes)
        left, clamped = bool(workload.attributes["left"]), bool(workload.attributes["clamped"])
        text = _kernel(geometry, int(schedule["pixels"]), left, clamped)
        symbol, text = with_symbol("depthwise_i16", PRELUDE_I16 + text)
        return KernelSource(symbol, "c", text, _pack(workload, left), _strip_bytes(geometry))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        geometry, pixels = Geometry.of(workload.attributes), int(schedule["pixels"])
        rows, taps = geometry.batch * geometry.rows, geometry.kernel[0] * geometry.kernel[1]
        turns = rows * -(-geometry.channels // _LANES) * -(-geometry.columns // pixels)
        return {
            "macs": float(geometry.pixels * geometry.channels * taps),
            "turns": float(turns),
            "multiplies": float(2 * turns * pixels * taps),
            "loads": float(turns * (pixels + 1) * taps),
            "copied": float(rows * geometry.kernel[0] * geometry.width * geometry.channels * any(geometry.pad)),
            "pixels": float(pixels),
        }


def _strip_bytes(geometry: Geometry) -> int:
    """Bytes of the padded input rows behind one row of outputs, 0 without padding."""
    return geometry.kernel[0] * _row_bytes(geometry) if any(geometry.pad) else 0


def _row_bytes(geometry: Geometry) -> int:
    """Bytes of a padded input row."""
    return (geometry.pad[2] + geometry.width + geometry.pad[3]) * geometry.channels * INT16.itemsize


def _pack(workload: Workload, left: bool) -> bytes:
    """{zero point, low, high, 0}; the factors, then the weights of all blocks of eight channels, tap by tap."""
    constants = workload.constants
    blocks = -(-len(constants["bias"]) // _LANES)
    order = np.arange(blocks)[:, None] * _LANES + _LANE_ORDER
    scale, shift = widened(constants["multiplier"], constants["shift"])
    padded = reorder(constants["weights"], np.arange(blocks * _LANES))
    params = Params()
    params.add(np.append(constants["range"], 0).astype(np.int32))
    params.add(requantization_table(scale, shift, order.ravel(), constants["bias"], left))
    params.add(padded.reshape(blocks, _LANES, -1).transpose(0, 2, 1))
    return bytes(params)


def _kernel(geometry: Geometry, pixels: int, left: bool, clamped: bool) -> str:
    size, channels, taps = INT16.itemsize, geometry.channels, geometry.kernel[0] * geometry.kernel[1]
    blocks, group = -(-channels // _LANES), (3 + left) * 2 * 4
    (down, right), row_bytes = geometry.stride, geometry.width * channels * size
    whole, last = channels // _LANES, geometry.columns - pixels
    padded = any(geometry.pad)
    window = ["const int8_t *window = strip;"] if padded else [f"const int8_t *window = in + row * {down * row_bytes};"]
    block = [
        f"for (int p = 0; p < {round_up(geometry.columns, pixels)}; p += {pixels}) {{",
        f"  const int x = p < {last} ? p : {last};",
        f"  outputs@(window + c * {VECTOR} + x * {right * channels * size}, w, table, low, high,",
        f"           o + c * {_LANES} + x * {channels});",
        "}",
        f"w += {taps * _LANES};",
        f"table += {group};",
    ]
    walk = []
    if whole:
        walk += [f"for (int c = 0; c < {whole}; c++) {{", *(f"  {line.replace('@', '')}" for line in block), "}"]
    if whole < blocks:
        walk += [f"const int c = {whole};", *(line.replace("@", "_rest") for line in block)]
    table_bytes = blocks * group * 4
    lines = [
        *(_outputs(geometry, pixels, left, clamped, "", 0) if whole else []),
        *(_outputs(geometry, pixels, left, clamped, "_rest", channels % _LANES) if whole < blocks else []),
        *(f"{COPY}\n{_CLEAR}".splitlines() if padded else []),
        "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
        "              int8_t *restrict strip)",
        "{",
        "  const int32_t *range = (const int32_t *)params;",
        "  const int16x8_t low = vdupq_n_s16(range[1]), high = vdupq_n_s16(range[2]);",
        "  int16_t *o = (int16_t *)out;",
        *([f"  clear(strip, {_strip_bytes(geometry)});"] if padded else []),
        f"  for (int image = 0; image < {geometry.batch}; image++, in += {geometry.height * row_bytes})",
        f"  for (int row = 0; row < {geometry.rows}; row++, o += {geometry.columns * channels}) {{",
        *(f"    {line}" for line in (_fill(geometry) if padded else [])),
        *(f"    {line}" for line in window),
        f"    const int32_t *table = (const int32_t *)(params + {VECTOR});",
        f"    const int8_t *w = params + {VECTOR + table_bytes};",
        *(f"    {line}" for line in walk),
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


def _fill(geometry: Geometry) -> list[str]:
    """C that copies the input rows behind the outputs of `row` to the strip."""
    row_bytes, start = (columns * geometry.channels * INT16.itemsize for columns in (geometry.width, geometry.pad[2]))
    return [
        f"for (int ky = 0; ky < {geometry.kernel[0]}; ky++) {{",
        f"  const int y = row * {geometry.stride[0]} - {geometry.pad[0]} + ky * {geometry.dilation[0]};",
        f"  int8_t *to = strip + ky * {_row_bytes(geometry)} + {start};",
        f"  if ((unsigned)y < {geometry.height})",
        f"    copy(to, in + y * {row_bytes}, {row_bytes});",
        "  else",
        f"    clear(to, {row_bytes});",
        "}",
    ]


def _outputs(geometry: Geometry, pixels: int, left: bool, clamped: bool, suffix: str, rest: int) -> list[str]:
    """C of `outputs`: `pixels` neighboring outputs of eight channels, or of the last `rest`."""
    size = INT16.itemsize
    rows_apart = _row_bytes(geometry) * (1 if any(geometry.pad) else geometry.dilation[0])
    pixel = geometry.channels * size
    lines = [
        f"INLINE void outputs{suffix}(const int8_t *in, const int8_t *w, const int32_t *table,",
        "                    int16x8_t low, int16x8_t high, int16_t *restrict o)",
        "{",
        *([f"  const mve_pred16_t inside = vctp16q({rest});"] if rest else []),
        "  int32x4_t " + ", ".join(f"even{i}, odd{i}" for i in range(pixels)) + ";",
    ]
    for tap, (ky, kx) in enumerate(itertools.product(*map(range, geometry.kernel))):
        lines += ["  {", f"    const int16x8_t f = vldrbq_s16(w + {tap * _LANES});"]
        for i in range(pixels):
            at = ky * rows_apart + (kx * geometry.dilation[1] + i * geometry.stride[1]) * pixel
            address = f"(const int16_t *)(in + {at})"
            load = f"vldrhq_z_s16({address}, inside)" if rest else f"vldrhq_s16({address})"
            lines.append(f"    const int16x8_t x{i} = {load};")
            for half, place in (("even", "b"), ("odd", "t")):
                product = f"vmull{place}q_int_s16(x{i}, f)"
                lines.append(f"    {half}{i} = {f'vaddq_s32({half}{i}, {product})' if tap else product};")
        lines.append("  }")
    lines.append("  int16x8_t " + ", ".join(f"r{i}" for i in range(pixels)) + ";")
    fields = ["bias", "multiplier", "right", *(["left"] if left else [])]
    for first, (half, place) in zip((0, len(fields)), (("even", "b"), ("odd", "t")), strict=True):
        lines.append("  {")
        for number, field in enumerate(fields):
            lines.append(f"    const int32x4_t {field} = vldrwq_s32(table + {4 * (first + number)});")
        for i in range(pixels):
            value, into = (
                scaled(f"vaddq_s32({half}{i}, bias)", left),
                "vuninitializedq_s16()" if place == "b" else f"r{i}",
            )
            lines.append(f"    r{i} = vqmovn{place}q_s32({into}, {value});")
        lines.append("  }")
    for i in range(pixels):
        value, to = f"vminq_s16(vmaxq_s16(r{i}, low), high)" if clamped else f"r{i}", f"o + {i * geometry.channels}"
        lines.append(f"  vstrhq_p_s16({to}, {value}, inside);" if rest else f"  vstrhq_s16({to}, {value});")
    return [*lines, "}"]


_CLEAR = """\
INLINE void clear(int8_t *to, int bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16)
    vstrbq_p_s8(to, vdupq_n_s8(0), vctp8q(bytes));
}"""
