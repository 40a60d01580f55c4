"""What the MVE kernels in C share: the prelude, per-channel requantization, and how a kernel gets its symbol."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

VECTOR = 16
"""Bytes of an MVE vector, which are also its int8 lanes."""

_INTRINSICS = """\
int8x16_t vldrbq_s8(const int8_t *)
int8x16_t vldrbq_z_s8(const int8_t *, mve_pred16_t)
int32x4_t vldrwq_s32(const int32_t *)
int8x16_t vldrbq_gather_offset_s8(const int8_t *, uint8x16_t)
int8x16_t vldrbq_gather_offset_z_s8(const int8_t *, uint8x16_t, mve_pred16_t)
int32x4_t vshlq_n_s32(int32x4_t, int)
int32x4_t vldrbq_gather_offset_s32(const int8_t *, uint32x4_t)
int16x8_t vldrbq_gather_offset_z_s16(const int8_t *, uint16x8_t, mve_pred16_t)
int32x4_t vldrwq_gather_offset_s32(const int32_t *, uint32x4_t)
void vstrbq_s8(int8_t *, int8x16_t)
void vstrbq_p_s8(int8_t *, int8x16_t, mve_pred16_t)
void vstrbq_s16(int8_t *, int16x8_t)
void vstrbq_s32(int8_t *, int32x4_t)
void vstrbq_p_s32(int8_t *, int32x4_t, mve_pred16_t)
void vstrbq_scatter_offset_s32(int8_t *, uint32x4_t, int32x4_t)
void vstrbq_scatter_offset_p_s32(int8_t *, uint32x4_t, int32x4_t, mve_pred16_t)
void vst4q_s8(int8_t *, int8x16x4_t)
mve_pred16_t vctp8q(uint32_t)
mve_pred16_t vctp16q(uint32_t)
mve_pred16_t vctp32q(uint32_t)
int8x16_t vpselq_s8(int8x16_t, int8x16_t, mve_pred16_t)
int8x16_t vdupq_n_s8(int8_t)
int32x4_t vdupq_n_s32(int32_t)
uint16x8_t vidupq_n_u16(uint32_t, int)
uint32x4_t vidupq_n_u32(uint32_t, int)
int8x16_t vuninitializedq_s8(void)
int16x8_t vuninitializedq_s16(void)
int8x16_t vreinterpretq_s8_s32(int32x4_t)
int32x4_t vreinterpretq_s32_s8(int8x16_t)
uint8x16_t vreinterpretq_u8_s8(int8x16_t)
uint32x4_t vreinterpretq_u32_s32(int32x4_t)
uint32x4_t vdupq_n_u32(uint32_t)
uint32x4_t vandq_u32(uint32x4_t, uint32x4_t)
int32_t vmladavq_s8(int8x16_t, int8x16_t)
int32_t vmladavaq_s8(int32_t, int8x16_t, int8x16_t)
int32_t vaddvaq_s8(int32_t, int8x16_t)
uint16x8_t vmulq_n_u16(uint16x8_t, uint16_t)
uint32x4_t vmulq_n_u32(uint32x4_t, uint32_t)
uint32x4_t vaddq_n_u32(uint32x4_t, uint32_t)
int32x4_t vaddq_s32(int32x4_t, int32x4_t)
int32x4_t vaddq_n_s32(int32x4_t, int32_t)
int16x8_t vqaddq_n_s16(int16x8_t, int16_t)
int32x4_t vqdmulhq_s32(int32x4_t, int32x4_t)
int32x4_t vqdmulhq_n_s32(int32x4_t, int32_t)
int32x4_t vrshlq_s32(int32x4_t, int32x4_t)
int32x4_t vrshlq_n_s32(int32x4_t, int32_t)
int32x4_t vshlq_s32(int32x4_t, int32x4_t)
int32x4_t vshlq_r_s32(int32x4_t, int32_t)
int8x16_t vqmovnbq_s16(int8x16_t, int16x8_t)
int8x16_t vqmovntq_s16(int8x16_t, int16x8_t)
int16x8_t vqmovnbq_s32(int16x8_t, int32x4_t)
int16x8_t vqmovntq_s32(int16x8_t, int32x4_t)
int8x16_t vmaxq_s8(int8x16_t, int8x16_t)
int8x16_t vminq_s8(int8x16_t, int8x16_t)
int32x4_t vmaxq_s32(int32x4_t, int32x4_t)
int32x4_t vminq_s32(int32x4_t, int32x4_t)"""


def declaration(intrinsic: str) -> str:
    """C that declares an intrinsic of MVE, given its prototype."""
    name = intrinsic.partition("(")[0].split()[-1]
    return f"ALIAS(__builtin_arm_mve_{name}) {intrinsic};"


# What arm_mve.h would declare, which clang takes longer to read than a kernel to compile.
PRELUDE = """\
#include <stdint.h>
#define INLINE static inline __attribute__((always_inline))
#define ALIAS(builtin) static inline __attribute__((__clang_arm_builtin_alias(builtin)))
#define VECTOR(lanes) __attribute__((__neon_vector_type__(lanes), __clang_arm_mve_strict_polymorphism))
typedef VECTOR(16) int8_t int8x16_t;
typedef VECTOR(16) uint8_t uint8x16_t;
typedef VECTOR(8) int16_t int16x8_t;
typedef VECTOR(8) uint16_t uint16x8_t;
typedef VECTOR(4) int32_t int32x4_t;
typedef VECTOR(4) uint32_t uint32x4_t;
typedef struct { int8x16_t val[4]; } int8x16x4_t;
typedef uint16_t mve_pred16_t;
""" + "".join(f"{declaration(line)}\n" for line in _INTRINSICS.splitlines())

# VQMOVNB/T narrow into even and odd lanes: two rounds of it put accumulator 4v + i of a block into byte 4i + rank(v).
_BLOCK_ORDER = [4 * i + first for first in (0, 2, 1, 3) for i in range(4)]


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def accumulator_order(channels: int) -> np.ndarray:
    """The channel behind each accumulator: int32 (round_up(channels, 4),), past the end for padding.

    Whole blocks of 16 channels lie as `Requantizer` narrows them; the rest, and its padding, lies in order.
    """
    whole = channels // VECTOR
    blocks = [VECTOR * block + lane for block in range(whole) for lane in _BLOCK_ORDER]
    return np.array([*blocks, *range(VECTOR * whole, round_up(channels, 4))], np.int32)


def shift_factors(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(multiplier, right, left) as int32 of a RESCALE (TOSA 1.0 apply_scale_32, SINGLE_ROUND) for MVE.

    `(value * multiplier + (1 << (shift - 1))) >> shift` is VSHL by `left`, VQDMULH by `multiplier`, VRSHL by `right`
    (not above zero). The spec demands `|value| < 1 << (shift - 1)`, so the left shift cannot overflow.
    """
    left = np.maximum(0, 32 - shift.astype(np.int32))
    return multiplier.astype(np.int32), 31 - shift.astype(np.int32) - left, left


def requantization_table(
    multiplier: np.ndarray, shift: np.ndarray, order: np.ndarray, bias: np.ndarray | None, with_left: bool
) -> np.ndarray:
    """int32 (groups of 4 accumulators, fields, 4): [bias,] multiplier, right[, left], as `Requantizer` reads it.

    Args:
        multiplier: int32 (channels,).
        shift: int8 (channels,).
        order: the channel behind each accumulator; channels past the end get zeros.
        bias: int32 (channels,) where the requantization adds it.
        with_left: whether the kernel shifts left first.
    """
    fields = list(shift_factors(multiplier, shift))
    if not with_left:
        fields.pop()
    if bias is not None:
        fields.insert(0, bias.astype(np.int32))
    table = np.stack([reorder(field, order) for field in fields])
    return table.reshape(len(fields), -1, 4).transpose(1, 0, 2)


def lookup_order(table: np.ndarray) -> np.ndarray:
    """A TABLE of 256 int8 in the order of its index read as uint8, for gathers by the bytes of a vector."""
    return np.roll(table, 128)


def reorder(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`values[order]` along the first axis, zero where `order` points past the end."""
    missing = max(0, int(order.max()) + 1 - len(values))
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])[order]


@dataclass(frozen=True)
class Requantizer:
    """C of a function that requantizes rows of accumulators:

        void requantize(const int32_t *acc, const int32_t *table, const int8_t *lookup, const int32_t *range,
                        int8_t *out)

    It writes `rows` dense rows of int8 channels from rows of int32 accumulators in `accumulator_order`.
    `range` is {zero point, low, high}; `table` is a `requantization_table`; `lookup` is in `lookup_order`.

    Args:
        channels: channels of a row.
        row_stride: int32 elements between rows of `acc`.
        rows: how many rows.
        share: how many rows read the table together.
        bias: whether the table has the bias, to add.
        left: whether it has left shifts.
        lookup: whether the results go through `lookup`.
    """

    channels: int
    row_stride: int
    rows: int
    share: int
    bias: bool
    left: bool
    lookup: bool

    @property
    def text(self) -> str:
        blocks, rest = divmod(self.channels, VECTOR)
        lines = [
            "INLINE void requantize(const int32_t *acc, const int32_t *table, const int8_t *lookup,",
            "                       const int32_t *range, int8_t *restrict out)",
            "{",
            "  const int32_t zero = range[0], low = range[1], high = range[2];",
        ]
        if blocks:
            lines.append("  const int8x16_t low8 = vdupq_n_s8(low), high8 = vdupq_n_s8(high);")
        if rest:
            lines.append("  const int32x4_t low32 = vdupq_n_s32(low), high32 = vdupq_n_s32(high);")
        for first in range(0, self.rows, self.share):
            members = range(first, min(first + self.share, self.rows))
            if blocks:
                lines += self._whole_blocks(members, blocks)
            for start in range(blocks * VECTOR, self.channels, 4):
                lines += self._four_channels(members, start)
        return "\n".join([*lines, "}", ""])

    @property
    def _fields(self) -> list[str]:
        return ["bias"] * self.bias + ["multiplier", "right"] + ["left"] * self.left

    def _whole_blocks(self, members: range, blocks: int) -> list[str]:
        """All blocks of 16 channels of the rows `members`."""
        group = 4 * len(self._fields)
        body = [f"const int32_t *t = table + block * {4 * group}, *a = acc + block * 16;"]
        for quarter in range(4):
            half, place = ("even", "odd")[quarter // 2], "bt"[quarter % 2]
            body += ["{", *self._load_factors(f"t + {quarter * group}")]
            for row in members:
                value = self._scaled(f"a + {row * self.row_stride + quarter * 4}")
                old = f"{half}{row}" if place == "t" else "vuninitializedq_s16()"
                body.append(f"  {half}{row} = vqmovn{place}q_s32({old}, {value});")
            body.append("}")
        for row in members:
            body += [
                f"even{row} = vqaddq_n_s16(even{row}, zero); odd{row} = vqaddq_n_s16(odd{row}, zero);",
                f"int8x16_t b{row} = vqmovntq_s16(vqmovnbq_s16(vuninitializedq_s8(), even{row}), odd{row});",
                f"b{row} = vminq_s8(vmaxq_s8(b{row}, low8), high8);",
            ]
            if self.lookup:
                body.append(f"b{row} = vldrbq_gather_offset_s8(lookup, vreinterpretq_u8_s8(b{row}));")
            body.append(f"vstrbq_s8(out + block * 16 + {row * self.channels}, b{row});")
        return [
            f"  for (int block = 0; block < {blocks}; block++) {{",
            f"    int16x8_t {', '.join(f'even{row}, odd{row}' for row in members)};",
            *(f"    {line}" for line in body),
            "  }",
        ]

    def _four_channels(self, members: range, start: int) -> list[str]:
        """Up to four channels from `start` on of the rows `members`."""
        lines = ["  {", *(f"  {line}" for line in self._load_factors(f"table + {start * len(self._fields)}"))]
        count = min(4, self.channels - start)
        for row in members:
            value = self._scaled(f"acc + {row * self.row_stride + start}")
            value = f"vminq_s32(vmaxq_s32(vaddq_n_s32({value}, zero), low32), high32)"
            if self.lookup:
                entry = f"vandq_u32(vreinterpretq_u32_s32({value}), vdupq_n_u32(255))"
                value = f"vldrbq_gather_offset_s32(lookup, {entry})"
            store = f"vstrbq_s32(@, {value});" if count == 4 else f"vstrbq_p_s32(@, {value}, vctp32q({count}));"
            lines.append("    " + store.replace("@", f"out + {row * self.channels + start}"))
        return [*lines, "  }"]

    def _load_factors(self, table: str) -> list[str]:
        return [f"  const int32x4_t {name} = vldrwq_s32({table} + {4 * i});" for i, name in enumerate(self._fields)]

    def _scaled(self, accumulators: str) -> str:
        """The expression of four requantized accumulators, before the zero point."""
        value = f"vldrwq_s32({accumulators})"
        if self.bias:
            value = f"vaddq_s32({value}, bias)"
        if self.left:
            value = f"vshlq_s32({value}, left)"
        return f"vrshlq_s32(vqdmulhq_s32({value}, multiplier), right)"


def with_symbol(kind: str, text: str) -> tuple[str, str]:
    """(symbol, text) with `@SYMBOL@` in the text replaced by a symbol made of `kind` and the text itself."""
    symbol = f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return symbol, text.replace("@SYMBOL@", symbol)
