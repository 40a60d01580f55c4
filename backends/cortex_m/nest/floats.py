"""What nests of floats share: sums that stay in vector registers, and C around the block that adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosaic.backends.cortex_m.kernels.mve import COPY, PRELUDE, declaration
from tosaic.backends.cortex_m.nest.assembly import VECTORS, assembly
from tosaic.backends.cortex_m.nest.block import BlockInstruction, InstructionBlock, ordered
from tosaic.backends.target import Pipeline

LANES = 4
"""f32 lanes of a vector."""

MOST_SUMS = 6
"""Vectors of sums; two of the eight are left for what is multiplied."""

_INTRINSICS = """\
float32x4_t vldrwq_f32(const float *)
float32x4_t vdupq_n_f32(float)
void vstrwq_f32(float *, float32x4_t)
void vstrwq_p_f32(float *, float32x4_t, mve_pred16_t)
float32x4_t vldrwq_z_f32(const float *, mve_pred16_t)"""

PRELUDE_F32 = "\n".join(
    [
        PRELUDE + "typedef VECTOR(4) float float32x4_t;",
        *map(declaration, _INTRINSICS.splitlines()),
        COPY,
        # NaN stays NaN, as mode PROPAGATE has it: nothing is greater, but MVE's `lt`, which clang may choose, holds.
        "INLINE float32x4_t clamped(float32x4_t x, float low, float high)",
        "{",
        '  __asm__("vmrs lr, p0\\nvpt.f32 gt, %q1, %q0\\nvmovt %q0, %q1\\n"',
        '          "vpt.f32 gt, %q0, %q2\\nvmovt %q0, %q2\\nvmsr p0, lr"',
        '          : "+w"(x) : "w"(vdupq_n_f32(low)), "w"(vdupq_n_f32(high)) : "lr");',
        "  return x;",
        "}",
        "",
    ]
)


def block(
    code: Sequence[BlockInstruction],
    after: Sequence[BlockInstruction],
    turns: int,
    pointers: Sequence[str],
    sums: Sequence[str],
    scalars: Mapping[str, str],
    pipeline: Pipeline | None,
) -> list[str]:
    """C of a statement that runs `code` `turns` times, then `after`.

    Args:
        pointers, sums: C variables that it changes.
        scalars: the general register of each name that holds an element.
    """
    registers = {**{p: f"%[{p}]" for p in pointers}, **{s: f"%q[{s}]" for s in sums}, **scalars}
    free = VECTORS[len(sums) :]
    turn = ordered(InstructionBlock(tuple(code), registers, free), pipeline).turn if turns else ()
    leave = ordered(InstructionBlock(tuple(after), registers, free), pipeline).turn if after else ()
    used = [register for register in scalars.values() if any(register in line for line in (*turn, *leave))]
    return assembly((), turn, leave, turns, pointers, (), used, (), free, sums)
