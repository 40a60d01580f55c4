"""Bilinear RESIZE of int8 with its RESCALE on MVE: rows are blended first, then the columns of what results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.mve import declarations, round_up, with_symbol
from tosaic.backends.cortex_m.kernels.mve_i16 import PRELUDE_I16
from tosaic.backends.cortex_m.kernels.mve_match import (
    Epilogue,
    constants_after_first,
    dtype_of,
    is_chain,
    match_epilogue,
    numbers,
    workload,
)
from tosaic.backends.cortex_m.kernels.params import Params
from tosaic.backends.cortex_m.nest.joins import Average
from tosaic.backends.target import Core
from tosaic.support.attributes import enum_of
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir, shape_of
from tosaic.support.values import is_argument
from tosaic.tuner.space import Schedule, Variant

_LANES = 8
_MOST_WEIGHT = 255
"""Sums of int8 with weights of so much in all fit into int16."""
_MOST_OFFSET = (1 << 16) - 1


@FAMILIES.register
class Resize(KernelFamily):
    """Images (N, H, W, C) between whose pixels others are blended, in sums that fit into sixteen bits.

    Variant `channels` reads neighbors as vectors of their channels, `columns` gathers eight results' neighbors, which
    suits few channels.
    """

    name = "resize"

    def match(self, function: ir.Operation) -> Workload | None:
        ops = computing_ops(function)
        if len(ops) != 2 or not is_argument(ops[0].operands[0]) or not is_chain(ops, function):
            return None
        op, rescale = ops
        if op.name != "tosa.resize" or enum_of(op, "mode") != "BILINEAR" or dtype_of(op.operands[0]) != np.int8:
            return None
        operands, epilogue = constants_after_first(op), match_epilogue([rescale], 1)
        if operands is None or epilogue is None or not _is_uniform(rescale):
            return None
        scale, offset, _ = (tuple(int(number) for number in numbers) for numbers in operands)
        shape, result = shape_of(op.operands[0]), shape_of(op.results[0])
        if scale[0] * scale[2] > _MOST_WEIGHT or shape[2] * shape[3] > _MOST_OFFSET:
            return None
        attributes: dict[str, object] = {"shape": shape, "result": result, "scale": scale, "offset": offset}
        return workload(self.name, attributes, _scaling(epilogue))

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        few = numbers(workload, "result")[3] < _LANES
        return tuple(Variant(name, {}) for name in (("columns", "channels") if few else ("channels", "columns")))

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        shape, result, scale, offset = (numbers(workload, name) for name in ("shape", "result", "scale", "offset"))
        params, row = Params(), shape[2] * shape[3]
        if schedule.variant == "columns":
            params.add(_neighbors(shape, result, scale, offset))
            columns = _gathered(result)
        else:
            columns = _by_channels(shape, result, scale, offset)
        batch, height, _, _ = shape
        lines = [
            *_scaled(Average.of(**workload.constants)),
            "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const void *params, void *scratch)",
            "{",
            "  int16_t *const restrict blend = scratch;",
            f"  for (int n = 0; n < {batch}; n++)",
            f"  for (int y = 0; y < {result[1]}; y++) {{",
            *(f"    {line}" for line in _at("y", scale[:2], offset[0], height)),
            f"    const int8_t *const above = in + (n * {height} + y0) * {row};",
            f"    const int8_t *const below = in + (n * {height} + y1) * {row};",
            f"    for (int i = 0; i < {row}; i += {_LANES}) {{",
            f"      const mve_pred16_t inside = vctp16q({row} - i);",
            f"      const int16x8_t v = vmulq_n_s16(vldrbq_z_s16(above + i, inside), {scale[0]} - dy);",
            "      vstrhq_s16(blend + i, vmlaq_n_s16(v, vldrbq_z_s16(below + i, inside), dy));",
            "    }",
            *(f"    {line}" for line in columns),
            "  }",
            "}",
            "",
        ]
        symbol, text = with_symbol("resize", PRELUDE_I16 + _PRELUDE + "\n".join(lines))
        return KernelSource(symbol, "c", text, bytes(params), round_up(row, _LANES) * 2)

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        result, shape = (numbers(workload, name) for name in ("result", "shape"))
        outputs = float(np.prod(result))
        gathered = outputs if schedule.variant == "columns" else 0.0
        return {"outputs": outputs, "reads": 2.0 * result[1] * shape[2] * shape[3], "gathered": gathered}


def _is_uniform(rescale: ir.Operation) -> bool:
    """Whether all channels have one scale."""
    operands = constants_after_first(rescale)
    return operands is not None and operands[0].size == 1


def _scaling(epilogue: Epilogue) -> dict[str, np.ndarray]:
    return {
        "multiplier": epilogue.multiplier,
        "shift": epilogue.shift,
        "offset": np.array(0),
        "zero_point": np.array(epilogue.zero_point),
    }


def _scaled(average: Average) -> list[str]:
    """C of `scaled`: int8 from sums in int16, rounded once (TOSA 1.0, apply_scale_32)."""
    product = f"vqdmulhq_n_s32(v, {average.multiplier})" if average.multiplier else "v"
    even, odd = (f"rounded(vmovl{lane}q_s16(v))" for lane in "bt")
    return [
        "INLINE int32x4_t rounded(int32x4_t v)",
        "{",
        *([f"  v = vshlq_n_s32(v, {average.left});"] if average.left else []),
        f"  return {f'vrshlq_n_s32({product}, {-average.right})' if average.right else product};",
        "}",
        "INLINE int16x8_t scaled(int16x8_t v)",
        "{",
        f"  v = vqaddq_n_s16(vqmovntq_s32(vqmovnbq_s32(v, {even}), {odd}), {average.zero_point});",
        "  return vminq_s16(vmaxq_s16(v, vdupq_n_s16(-128)), vdupq_n_s16(127));",
        "}",
    ]


def _at(axis: str, scale: Sequence[int], offset: int, extent: int) -> list[str]:
    """C of the two rows (or columns) around a result's, and the weight of the second (TOSA 1.0, RESIZE)."""
    numerator, denominator = scale
    at, floor = f"{axis} * {denominator} + {offset + numerator}", f"f{axis}"
    return [
        f"const int {floor} = ({at}) / {numerator} - 1, d{axis} = ({at}) % {numerator};",
        f"const int {axis}0 = {floor} < 0 ? 0 : {floor} < {extent} ? {floor} : {extent - 1};",
        f"const int {axis}1 = {floor} + 1 < {extent} ? {floor} + 1 : {extent - 1};",
    ]


def _by_channels(shape: Sequence[int], result: Sequence[int], scale: Sequence[int], offset: Sequence[int]) -> list[str]:
    _, _, width, channels = shape
    return [
        f"for (int x = 0; x < {result[2]}; x++, out += {channels}) {{",
        *(f"  {line}" for line in _at("x", scale[2:], offset[1], width)),
        f"  const int16_t *const left = blend + x0 * {channels}, *const right = blend + x1 * {channels};",
        f"  for (int c = 0; c < {channels}; c += {_LANES}) {{",
        f"    const mve_pred16_t inside = vctp16q({channels} - c);",
        f"    const int16x8_t v = vmulq_n_s16(vldrhq_z_s16(left + c, inside), {scale[2]} - dx);",
        "    vstrbq_p_s16(out + c, scaled(vmlaq_n_s16(v, vldrhq_z_s16(right + c, inside), dx)), inside);",
        "  }",
        "}",
    ]


def _gathered(result: Sequence[int]) -> list[str]:
    elements = result[2] * result[3]
    return [
        "const uint16_t *at = params;",
        f"for (int i = 0; i < {elements}; i += {_LANES}, at += {4 * _LANES}) {{",
        *(
            f"  const int16x8_t {name} = vldrhq_gather_shifted_offset_s16(blend, vldrhq_u16(at + {first * _LANES}));"
            for first, name in enumerate(("left", "right"))
        ),
        f"  const int16x8_t v = left * vldrhq_s16((const int16_t *)at + {2 * _LANES})"
        f" + right * vldrhq_s16((const int16_t *)at + {3 * _LANES});",
        f"  vstrbq_p_s16(out + i, scaled(v), vctp16q({elements} - i));",
        "}",
        f"out += {elements};",
    ]


def _neighbors(shape: Sequence[int], result: Sequence[int], scale: Sequence[int], offset: Sequence[int]) -> np.ndarray:
    """uint16 (groups of 8 results of a row, 4, 8): where the left and the right neighbor lie, and their weights."""
    _, _, width, channels = shape
    at = np.arange(result[2]) * scale[3] + offset[1]
    floor, weight = np.divmod(at, scale[2])
    fields = []
    for column in (floor, floor + 1):
        fields.append((column.clip(0, width - 1)[:, None] * channels + np.arange(channels)).reshape(-1))
    fields += [np.repeat(scale[2] - weight, channels), np.repeat(weight, channels)]
    count = round_up(result[2] * channels, _LANES)
    padded = [np.pad(field, (0, count - len(field))) for field in fields]
    return np.stack(padded).reshape(4, -1, _LANES).transpose(1, 0, 2).astype(np.uint16)


_PRELUDE = declarations("""\
int16x8_t vldrbq_z_s16(const int8_t *, mve_pred16_t)
uint16x8_t vldrhq_u16(const uint16_t *)
int16x8_t vldrhq_gather_shifted_offset_s16(const int16_t *, uint16x8_t)
int16x8_t vmulq_n_s16(int16x8_t, int16_t)
int16x8_t vmlaq_n_s16(int16x8_t, int16x8_t, int16_t)
void vstrbq_p_s16(int8_t *, int16x8_t, mve_pred16_t)
int32x4_t vmovlbq_s16(int16x8_t)
int32x4_t vmovltq_s16(int16x8_t)""")
