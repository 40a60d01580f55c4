"""What the MVE kernels in C share: the prelude, the factors of a RESCALE, and how a kernel gets its symbol."""

from __future__ import annotations

import hashlib

import numpy as np

VECTOR = 16
"""Bytes of an MVE vector, which are also its int8 lanes."""
NARROWED = [4 * i + first for first in (0, 2, 1, 3) for i in range(4)]
"""VQMOVNB and VQMOVNT narrow into even and odd lanes: two rounds of them bring these of sixteen sums to bytes."""

_INTRINSICS = """\
int8x16_t vldrbq_s8(const int8_t *)
int8x16_t vldrbq_z_s8(const int8_t *, mve_pred16_t)
int32x4_t vldrwq_s32(const int32_t *)
int8x16_t vldrbq_gather_offset_z_s8(const int8_t *, uint8x16_t, mve_pred16_t)
int32x4_t vshlq_n_s32(int32x4_t, int)
void vstrbq_s8(int8_t *, int8x16_t)
void vstrbq_p_s8(int8_t *, int8x16_t, mve_pred16_t)
void vst4q_s8(int8_t *, int8x16x4_t)
mve_pred16_t vctp8q(uint32_t)
int8x16_t vpselq_s8(int8x16_t, int8x16_t, mve_pred16_t)
int8x16_t vdupq_n_s8(int8_t)
int32x4_t vdupq_n_s32(int32_t)
int8x16_t vreinterpretq_s8_s32(int32x4_t)
int32x4_t vreinterpretq_s32_s8(int8x16_t)"""


def declaration(intrinsic: str) -> str:
    """C that declares an intrinsic of MVE, given its prototype."""
    name = intrinsic.partition("(")[0].split()[-1]
    return f"ALIAS(__builtin_arm_mve_{name}) {intrinsic};"


def declarations(intrinsics: str) -> str:
    """C that declares intrinsics of MVE, given their prototypes, one a line."""
    return "".join(f"{declaration(line)}\n" for line in intrinsics.splitlines())


# What arm_mve.h would declare, which clang takes longer to read than a kernel to compile.
PRELUDE = """\
#include <stdint.h>
#define INLINE static inline __attribute__((always_inline))
#define ALIAS(builtin) static inline __attribute__((__clang_arm_builtin_alias(builtin)))
#define VECTOR(lanes) __attribute__((__neon_vector_type__(lanes), __clang_arm_mve_strict_polymorphism))
typedef VECTOR(16) int8_t int8x16_t;
typedef VECTOR(16) uint8_t uint8x16_t;
typedef VECTOR(4) int32_t int32x4_t;
typedef VECTOR(4) uint32_t uint32x4_t;
typedef struct { int8x16_t val[4]; } int8x16x4_t;
typedef uint16_t mve_pred16_t;
""" + declarations(_INTRINSICS)

COPY = """\
INLINE void copy(int8_t *to, const int8_t *from, int bytes)
{
  for (; bytes > 0; bytes -= 16, to += 16, from += 16) {
    const mve_pred16_t inside = vctp8q(bytes);
    vstrbq_p_s8(to, vldrbq_z_s8(from, inside), inside);
  }
}"""


PORTABLE_COPY = """\
#include <stdint.h>
#include <string.h>
#define INLINE static inline __attribute__((always_inline))
static void copy(int8_t *to, const int8_t *from, int bytes)
{
  memcpy(to, from, bytes);
}
"""
"""The same for cores without MVE."""


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def shift_factors(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(multiplier, right, left) as int32 of a RESCALE (TOSA 1.0 apply_scale_32, SINGLE_ROUND) for MVE.

    `(value * multiplier + (1 << (shift - 1))) >> shift` is VSHL by `left`, VQDMULH by `multiplier`, VRSHL by `right`
    (not above zero). The spec demands `|value| < 1 << (shift - 1)`, so the left shift cannot overflow.
    """
    left = np.maximum(0, 32 - shift.astype(np.int32))
    return multiplier.astype(np.int32), 31 - shift.astype(np.int32) - left, left


def lookup_order(table: np.ndarray) -> np.ndarray:
    """A TABLE of 256 int8 in the order of its index read as uint8, for gathers by the bytes of a vector."""
    return np.roll(table, 128)


def with_symbol(kind: str, text: str) -> tuple[str, str]:
    """(symbol, text) with `@SYMBOL@` in the text replaced by a symbol made of `kind` and the text itself."""
    symbol = f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return symbol, text.replace("@SYMBOL@", symbol)
