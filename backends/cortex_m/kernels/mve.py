"""What the MVE kernels in C share: the prelude, and how a kernel gets its symbol."""

from __future__ import annotations

import hashlib

VECTOR = 16
"""Bytes of an MVE vector, which are also its int8 lanes."""

_INTRINSICS = """\
int8x16_t vldrbq_s8(const int8_t *)
int8x16_t vldrbq_z_s8(const int8_t *, mve_pred16_t)
void vstrbq_s8(int8_t *, int8x16_t)
void vstrbq_p_s8(int8_t *, int8x16_t, mve_pred16_t)
mve_pred16_t vctp8q(uint32_t)
int8x16_t vdupq_n_s8(int8_t)"""


def _declaration(intrinsic: str) -> str:
    """C that declares an intrinsic of MVE, given its prototype."""
    name = intrinsic.partition("(")[0].split()[-1]
    return f"ALIAS(__builtin_arm_mve_{name}) {intrinsic};\n"


INLINE = "#define INLINE static inline __attribute__((always_inline))\n"

# What arm_mve.h would declare, which clang takes longer to read than a kernel to compile.
PRELUDE = f"""\
#include <stdint.h>
{INLINE}#define ALIAS(builtin) static inline __attribute__((__clang_arm_builtin_alias(builtin)))
#define VECTOR(lanes) __attribute__((__neon_vector_type__(lanes), __clang_arm_mve_strict_polymorphism))
typedef VECTOR(16) int8_t int8x16_t;
typedef uint16_t mve_pred16_t;
""" + "".join(map(_declaration, _INTRINSICS.splitlines()))

PORTABLE = f"#include <stdint.h>\n#include <string.h>\n{INLINE}"
"""The same for cores without MVE."""


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def with_symbol(kind: str, text: str) -> tuple[str, str]:
    """(symbol, text) with `@SYMBOL@` in the text replaced by a symbol made of `kind` and the text itself."""
    symbol = f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return symbol, text.replace("@SYMBOL@", symbol)
