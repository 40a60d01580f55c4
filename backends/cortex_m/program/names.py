"""Names of loops and buffers: those that the language, C and the printer leave free."""

from __future__ import annotations

import keyword
import re

from tosaic.backends.cortex_m.program.ops import OPS

# fmt: off
_C = (
    "asm", "auto", "case", "char", "const", "default", "do", "double", "enum", "extern", "float", "goto", "inline",
    "int", "long", "register", "restrict", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile",
)
# fmt: on
_PRINTED = ("params", "scratch", "packed", "INLINE", "INT32_MAX", "INT32_MIN")
_HELPERS = {name for op in OPS.values() for name in re.findall(r"(\w+)\(", op.c + op.helper)}
_INTERPRETED = ("OPS", "arrays", "call", "fits", "mul", "run", "single", "working")
_TAKEN = frozenset((*keyword.kwlist, *_C, *_PRINTED, *_HELPERS, *_INTERPRETED))
_FREE = re.compile(r"(?![tp]\d+$)[A-Za-z](_?[A-Za-z0-9])*")


def is_free(name: str) -> bool:
    """Whether a loop or a buffer may have a name.

    `t0` and `p0` are registers of a block, `S__0` is a register of `S`, and `x_` counts the iterations of an early `x`.
    """
    return name not in _TAKEN and _FREE.fullmatch(name) is not None
