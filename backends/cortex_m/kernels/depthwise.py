"""DEPTHWISE_CONV2D to int8 on MVE: rows interleaved by fours, so that one gather and one VMLADAV cover a 4 x 4 patch.

A strip holds four input rows as [column][channel][4 rows]. Gathering the 32-bit words of four neighboring columns of
one channel gives a patch of 4 x 4 bytes; its VMLADAV with a vector of the kernel's weights in the right places and
zeros elsewhere is an output. A patch serves all outputs whose windows lie in it (2 x 2 for a 3 x 3 kernel of stride 1);
larger windows take several patches. Padding is written into the strips, so borders need no code of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.backends.cortex_m.kernel import FAMILIES, KernelFamily, KernelSource, Workload
from tosaic.backends.cortex_m.kernels.emit import Params
from tosaic.backends.cortex_m.kernels.mve import PRELUDE, VECTOR, lookup_order, round_up, shift_factors, with_symbol
from tosaic.backends.cortex_m.kernels.mve_match import (
    Geometry,
    constants_after_first,
    fold_zero_point,
    is_chain,
    match_epilogue,
    match_window,
    workload,
)
from tosaic.backends.target import Core
from tosaic.support.functions import computing_ops
from tosaic.support.mlir import ir
from tosaic.tuner.space import Choice, Schedule, Variant

PATCH = 4
"""Rows and columns of a patch."""

_LOOKUP = 16
_TILES = ((2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (1, 1))
_STRIPS = (1, 2, 3, 4, 6, 8, 16)
_MOST_WEIGHT_VECTORS = 24
_MOST_STRIP_BYTES = 1 << 16


@FAMILIES.register
class Depthwise(KernelFamily):
    """DEPTHWISE_CONV2D, int8 times constant int8, any multiplier, RESCALE to int8, optional CLAMP and TABLE.

    Knobs of variant `patches`: `tile` is rows x columns of outputs per patch, `strips` how many strips of input are
    packed before the channels are walked, `ahead` whether the next products are computed before the last are finished.
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
        epilogue = match_epilogue(ops[1:], channels)
        if epilogue is None:
            return None
        attributes = {
            **vars(geometry),
            "multiples": multiples,
            **epilogue.attributes,
        }
        constants = {
            "weights": weights.reshape(*geometry.kernel, channels).transpose(2, 0, 1),
            "bias": np.broadcast_to(bias, (channels,)),
            "input_zero_point": input_zero_point,
            **epilogue.constants,
        }
        return workload(self.name, attributes, constants)

    def variants(self, workload: Workload, core: Core) -> Sequence[Variant]:
        if not core.mve:
            return ()
        geometry = Geometry.of(workload.attributes)
        tiles = sorted(_TILES, key=lambda tile: Patches(geometry, *tile).gathers_per_output)
        names = tuple(f"{rows}x{columns}" for rows, columns in tiles)

        def legal(knobs: Mapping[str, Choice]) -> bool:
            patches = _patches(workload, knobs["tile"])
            return patches.legal(int(knobs["strips"])) and (not knobs["ahead"] or patches.turn < geometry.columns)

        variant = Variant("patches", {"tile": names, "strips": _STRIPS, "ahead": (True, False)}, legal)
        return (variant,) if next(variant.schedules(), None) else ()

    def generate(self, workload: Workload, schedule: Schedule, core: Core) -> KernelSource:
        patches, strips = _patches(workload, schedule["tile"]), int(schedule["strips"])
        symbol, text = with_symbol("depthwise", PRELUDE + _kernel(workload, patches, strips, bool(schedule["ahead"])))
        return KernelSource(symbol, "c", text, _pack(workload, patches), patches.scratch_bytes(strips))

    def features(self, workload: Workload, schedule: Schedule, core: Core) -> Mapping[str, float]:
        patches, strips = _patches(workload, schedule["tile"]), int(schedule["strips"])
        geometry = patches.geometry
        channels = geometry.channels * int(str(workload.attributes["multiples"]))
        groups = geometry.batch * -(-patches.strip_count // strips)
        computed = groups * strips * channels
        turns = computed * -(-geometry.columns // patches.turn)
        return {
            "macs": float(geometry.pixels * channels * geometry.kernel[0] * geometry.kernel[1]),
            "outputs": float(geometry.pixels * channels),
            "turns": float(turns),
            "gathers": float(turns * patches.per_turn * len(patches.places)),
            "multiplies": float(turns * patches.per_turn * patches.weight_vectors),
            "weights_in_registers": float(patches.weight_vectors <= 4),
            "channel_starts": float(groups * channels),
            "strip_starts": float(computed),
            "packed": float(groups * strips * patches.row_groups * PATCH * geometry.width * geometry.channels),
            "scratch": float(patches.scratch_bytes(strips)),
            "strips": float(strips),
            "ahead": float(schedule["ahead"]),
        }


@dataclass(frozen=True)
class Patches:
    """How a tile of `rows` x `columns` outputs is cut into patches of 4 x 4 input bytes."""

    geometry: Geometry
    rows: int
    columns: int

    @property
    def _extent(self) -> tuple[int, int]:
        """Input rows and columns that the tile touches."""
        down, right = self.geometry.stride
        height, width = self.geometry.span
        return (self.rows - 1) * down + height, (self.columns - 1) * right + width

    @property
    def row_groups(self) -> int:
        """Patches one above the other: each has its strip."""
        return -(-self._extent[0] // PATCH)

    @property
    def places(self) -> list[tuple[int, int]]:
        """(row group, first column) of the patches."""
        return list(itertools.product(range(self.row_groups), range(0, self._extent[1], PATCH)))

    @property
    def cells(self) -> list[tuple[int, int]]:
        """(row, column) of the tile's outputs."""
        return list(itertools.product(range(self.rows), range(self.columns)))

    @property
    def uses(self) -> list[tuple[int, int]]:
        """(cell, place) pairs in which the cell's window meets the patch: each has a weight vector, in this order."""
        probe = np.ones((1, *self.geometry.kernel), np.int8)
        pairs = itertools.product(range(len(self.cells)), range(len(self.places)))
        return [pair for pair in pairs if self._patch_weights(probe, *pair).any()]

    @property
    def weight_vectors(self) -> int:
        return len(self.uses)

    @property
    def per_turn(self) -> int:
        """Tiles in one turn of the inner loop, which requantizes four outputs."""
        return PATCH // len(self.cells)

    @property
    def turn(self) -> int:
        """Output columns of one turn."""
        return self.per_turn * self.columns

    @property
    def gathers_per_output(self) -> float:
        """The cost by which tiles are ordered: gathers, multiplies and what weights have to be loaded again."""
        reloaded = max(0, self.weight_vectors - PATCH)
        narrow = max(1.0, self.turn / self.geometry.columns) * max(1.0, self.rows / self.geometry.rows)
        return narrow * (len(self.places) + self.weight_vectors + reloaded) / len(self.cells)

    @property
    def strip_count(self) -> int:
        """Strips that cover the output of one image."""
        return -(-self.geometry.rows // self.rows)

    @property
    def strip_columns(self) -> int:
        """Columns of a strip: the padded image, and as far as the last turn gathers."""
        first = max(self.geometry.columns - self.columns, self.turn - self.columns) * self.geometry.stride[1]
        gathered = first + round_up(self._extent[1], PATCH)
        return max(gathered, self.geometry.pad[2] + self.geometry.width + self.geometry.pad[3])

    @property
    def group_bytes(self) -> int:
        """Bytes of one row group of a strip; a whole vector of four rows may spill over its end."""
        return round_up(self.strip_columns * self.geometry.channels * PATCH + PATCH * VECTOR, VECTOR)

    @property
    def strip_bytes(self) -> int:
        return self.row_groups * self.group_bytes

    def scratch_bytes(self, strips: int) -> int:
        """The strips, and one row of zero points."""
        return strips * self.strip_bytes + round_up(self.geometry.width * self.geometry.channels, VECTOR)

    def legal(self, strips: int) -> bool:
        """Whether the code and its strips stay in bounds."""
        if self.weight_vectors > _MOST_WEIGHT_VECTORS or strips > self.strip_count:
            return False
        return strips == 1 or strips * self.strip_bytes <= _MOST_STRIP_BYTES

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """int8 (channels, weight vectors, 16) of int8 (channels, kernel rows, kernel columns)."""
        return np.stack([self._patch_weights(weights, cell, place) for cell, place in self.uses], axis=1)

    def _patch_weights(self, weights: np.ndarray, cell: int, place: int) -> np.ndarray:
        """int8 (channels, 16): the weights where the window of `cell` meets patch `place`, column by column."""
        (row, column), (group, first) = self.cells[cell], self.places[place]
        (down, right), (tall, wide) = self.geometry.stride, self.geometry.dilation
        patch = np.zeros((len(weights), PATCH, PATCH), np.int8)
        for ky, kx in itertools.product(range(self.geometry.kernel[0]), range(self.geometry.kernel[1])):
            y = row * down + ky * tall - group * PATCH
            x = column * right + kx * wide - first
            if 0 <= y < PATCH and 0 <= x < PATCH:
                patch[:, x, y] = weights[:, ky, kx]
        return patch.reshape(len(weights), VECTOR)


def _patches(workload: Workload, tile: Choice) -> Patches:
    rows, columns = map(int, str(tile).split("x"))
    return Patches(Geometry.of(workload.attributes), rows, columns)


def _pack(workload: Workload, patches: Patches) -> bytes:
    """{zero point, low, high, input's zero point}, the TABLE if any, and each channel's weight vectors and factors."""
    constants = workload.constants
    bias = fold_zero_point(constants["bias"], constants["weights"], int(constants["input_zero_point"].item()))
    multiplier, right, left = shift_factors(constants["multiplier"], constants["shift"])
    factors = np.stack([bias, multiplier, right, left], axis=1).astype(np.int32)
    vectors = patches.pack_weights(constants["weights"]).reshape(len(bias), -1)
    params = Params()
    params.add(np.append(constants["range"], constants["input_zero_point"]).astype(np.int32))
    if "table" in constants:
        params.add(lookup_order(constants["table"]))
    params.add(np.concatenate([vectors, factors.view(np.int8)], axis=1))
    return bytes(params)


def _kernel(workload: Workload, patches: Patches, strips: int, ahead: bool) -> str:
    geometry = patches.geometry
    multiples = int(str(workload.attributes["multiples"]))
    channels = geometry.channels * multiples
    image_in = geometry.height * geometry.width * geometry.channels
    image_out = geometry.rows * geometry.columns * channels
    last_strip, last_row = patches.strip_count - strips, max(0, geometry.rows - patches.rows)
    lines = [
        *_pack_strip(patches),
        *_sums(patches),
        *_finish(workload, patches, channels),
        "void @SYMBOL@(const int8_t *restrict in, int8_t *restrict out, const int8_t *restrict params,",
        "              int8_t *restrict scratch)",
        "{",
        "  const int32_t *range = (const int32_t *)params;",
        f"  int8_t *zeros = scratch + {strips * patches.strip_bytes};",
        *(f"  {line}" for line in _prepare(patches, strips)),
        f"  for (int image = 0; image < {geometry.batch}; image++, in += {image_in}, out += {image_out})",
        f"  for (int group = 0; group < {patches.strip_count}; group += {strips}) {{",
        f"    const int start = group < {last_strip} ? group : {last_strip};",
        f"    for (int s = 0; s < {strips}; s++) {{",
        f"      const int row = (start + s) * {patches.rows};",
        f"      const int y = (row < {last_row} ? row : {last_row}) * {geometry.stride[0]} - {geometry.pad[0]};",
        f"      for (int g = 0; g < {patches.row_groups}; g++)",
        f"        pack(scratch + s * {patches.strip_bytes} + g * {patches.group_bytes}, in, zeros, y + g * {PATCH});",
        "    }",
        f"    const int8_t *p = params + {_LOOKUP + 256 if workload.attributes['table'] else _LOOKUP};",
        f"    for (int c = 0; c < {channels}; c++) {{",
        *(f"      const int8x16_t w{i} = vldrbq_s8(p + {i * VECTOR});" for i in range(patches.weight_vectors)),
        f"      const int32_t *factors = (const int32_t *)(p + {patches.weight_vectors * VECTOR});",
        "      const int32_t bias = factors[0], multiplier = factors[1], right = factors[2], left = factors[3];",
        f"      p += {(patches.weight_vectors + 1) * VECTOR};",
        f"      const int8_t *strip = scratch + {'c' if multiples == 1 else f'c / {multiples}'} * {PATCH};",
        f"      for (int s = 0; s < {strips}; s++, strip += {patches.strip_bytes}) {{",
        f"        const int row = (start + s) * {patches.rows};",
        f"        int8_t *o = out + (row < {last_row} ? row : {last_row}) * {geometry.columns * channels} + c;",
        *(f"        {line}" for line in _row_of_turns(patches, channels, ahead)),
        "      }",
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


def _prepare(patches: Patches, strips: int) -> list[str]:
    """Write the padding that stays: the row of zero points, and the columns left and right of the image."""
    geometry = patches.geometry
    if not any(geometry.pad):
        return []
    pixel = geometry.channels * PATCH
    right = (geometry.pad[2] + geometry.width) * pixel
    lines = ["const int8x16_t zero = vdupq_n_s8(range[3]);"]
    fills = [("zeros", 0, geometry.width * geometry.channels, "1", "0")]
    count, step = str(strips * patches.row_groups), str(patches.group_bytes)
    fills += [("scratch", 0, geometry.pad[2] * pixel, count, step)]
    fills += [("scratch", right, geometry.pad[3] * pixel, count, step)]
    for base, first, size, times, distance in fills:
        if size:
            lines += [
                f"for (int i = 0; i < {times}; i++)",
                f"  for (int k = {first}; k < {first + size}; k += 16)",
                f"    vstrbq_s8({base} + i * {distance} + k, zero);",
            ]
    return lines


def _pack_strip(patches: Patches) -> list[str]:
    """C of `pack`: interleave input rows y..y+3 behind the left padding; rows outside the image are zero points."""
    geometry = patches.geometry
    row_bytes = geometry.width * geometry.channels
    whole, rest = divmod(row_bytes, VECTOR)
    lines = [
        "INLINE void pack(int8_t *restrict to, const int8_t *in, const int8_t *zeros, int y)",
        "{",
        f"  to += {geometry.pad[2] * geometry.channels * PATCH};",
    ]
    for row in range(PATCH):
        lines.append(
            f"  const int8_t *r{row} = (unsigned)(y + {row}) < {geometry.height} ? "
            f"in + (y + {row}) * {row_bytes} : zeros;"
        )
    loads = ", ".join(f"vldrbq_s8(r{row})" for row in range(PATCH))
    advance = ", ".join(f"r{row} += 16" for row in range(PATCH))
    lines += [
        f"  for (int i = 0; i < {whole}; i++, {advance}, to += 64)",
        f"    vst4q_s8(to, (int8x16x4_t){{{{{loads}}}}});",
    ]
    if rest:
        right = f"vldrbq_z_s8(@, vctp8q({rest}))"
        if geometry.pad[3]:
            right = f"vpselq_s8({right}, vdupq_n_s8(*zeros), vctp8q({rest}))"
        loads = ", ".join(right.replace("@", f"r{row}") for row in range(PATCH))
        lines.append(f"  vst4q_s8(to, (int8x16x4_t){{{{{loads}}}}});")
    return [*lines, "}"]


def _sums(patches: Patches) -> list[str]:
    """C of `sums`: the products of one turn, four outputs of one channel."""
    geometry = patches.geometry
    pixel = geometry.channels * PATCH
    weights = ", ".join(f"int8x16_t w{i}" for i in range(patches.weight_vectors))
    lines = [
        f"INLINE int32x4_t sums(const int8_t *x, {weights})",
        "{",
        f"  const uint32x4_t columns = vmulq_n_u32(vidupq_n_u32(0, 1), {pixel});",
    ]
    sums = []
    for tile in range(patches.per_turn):
        for place, (group, first) in enumerate(patches.places):
            at = group * patches.group_bytes + (first + tile * patches.columns * geometry.stride[1]) * pixel
            lines.append(
                f"  const int8x16_t x{tile}_{place} = vreinterpretq_s8_s32("
                f"vldrwq_gather_offset_s32((const int32_t *)x, vaddq_n_u32(columns, {at})));"
            )
        for cell in range(len(patches.cells)):
            terms = [(vector, place) for vector, (user, place) in enumerate(patches.uses) if user == cell]
            (vector, place), *others = terms
            total = f"vmladavq_s8(x{tile}_{place}, w{vector})"
            for vector, place in others:
                total = f"vmladavaq_s8({total}, x{tile}_{place}, w{vector})"
            sums.append(total)
    return [*lines, f"  return (int32x4_t){{{', '.join(sums)}}};", "}"]


def _finish(workload: Workload, patches: Patches, channels: int) -> list[str]:
    """C of `finish`: requantize the sums of one turn and store them."""
    geometry = patches.geometry
    lines = [
        "INLINE void finish(int32x4_t v, int8_t *o, const int32_t *range,",
        "                   int32_t bias, int32_t multiplier, int32_t right, int32_t left)",
        "{",
        "  v = vaddq_n_s32(v, bias);",
    ]
    if workload.attributes["form"] != "right":
        lines.append("  v = vshlq_r_s32(v, left);")
    lines.append("  v = vaddq_n_s32(vrshlq_n_s32(vqdmulhq_n_s32(v, multiplier), right), range[0]);")
    if workload.attributes["clamped"]:
        lines.append("  v = vminq_s32(vmaxq_s32(v, vdupq_n_s32(range[1])), vdupq_n_s32(range[2]));")
    else:
        lines.append("  const int16x8_t half = vqmovnbq_s32(vuninitializedq_s16(), v);")
        lines.append("  v = vreinterpretq_s32_s8(vqmovnbq_s16(vuninitializedq_s8(), half));")
    if workload.attributes["table"]:
        lines.append("  const uint32x4_t entry = vandq_u32(vreinterpretq_u32_s32(v), vdupq_n_u32(255));")
        lines.append(f"  v = vldrbq_gather_offset_s32((const int8_t *)range + {_LOOKUP}, entry);")
    outputs = [
        (row, tile * patches.columns + column) for tile in range(patches.per_turn) for row, column in patches.cells
    ]
    inside = [row < geometry.rows and column < geometry.columns for row, column in outputs]
    offsets = ", ".join(str((row * geometry.columns + column) * channels) for row, column in outputs)
    if all(inside):
        lines.append(f"  vstrbq_scatter_offset_s32(o, (uint32x4_t){{{offsets}}}, v);")
    else:
        mask = sum(0xF << 4 * lane for lane, kept in enumerate(inside) if kept)
        lines.append(f"  vstrbq_scatter_offset_p_s32(o, (uint32x4_t){{{offsets}}}, v, {mask:#x});")
    return [*lines, "}"]


def _row_of_turns(patches: Patches, channels: int, ahead: bool) -> list[str]:
    """Turns along a row; a last one that would pass its end starts earlier and repeats outputs.

    Args:
        ahead: whether a turn's products are computed before the turn before it is finished, which hides latencies.
    """
    geometry = patches.geometry
    weights = ", ".join(f"w{i}" for i in range(patches.weight_vectors))
    whole, rest = divmod(geometry.columns, patches.turn)
    if whole == 0:
        whole, rest = 1, 0
    step = patches.turn * channels
    x_step = patches.turn * geometry.stride[1] * geometry.channels * PATCH
    x_back, back = x_step // patches.turn * (patches.turn - rest), channels * (patches.turn - rest)

    def sums(x: str) -> str:
        return f"sums({x}, {weights})"

    def finish(value: str, o: str) -> str:
        return f"finish({value}, {o}, range, bias, multiplier, right, left);"

    lines = ["const int8_t *x = strip;"]
    if not ahead:
        lines.append(f"for (int t = 0; t < {whole}; t++, x += {x_step}, o += {step})")
        lines.append(f"  {finish(sums('x'), 'o')}")
        if rest:
            lines.append(finish(sums(f"x - {x_back}"), f"o - {back}"))
        return lines
    lines += [
        f"int32x4_t v = {sums('x')};",
        f"for (int t = 1; t < {whole}; t++, o += {step}) {{",
        f"  x += {x_step};",
        f"  const int32x4_t next = {sums('x')};",
        f"  {finish('v', 'o')}",
        "  v = next;",
        "}",
    ]
    if not rest:
        return [*lines, finish("v", "o")]
    last = [f"const int32x4_t last = {sums(f'x + {x_step - x_back}')};", finish("v", "o")]
    return [*lines, *last, finish("last", f"o + {step - back}")]
