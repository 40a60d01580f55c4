"""Issue of cores without vectors, by the tables of Arm's technical reference manuals and LLVM's scheduling models."""

from __future__ import annotations

import pytest

from tosaic.backends.cores import cores, find_core
from tosaic.backends.simulators.cycle_model import decoder, issue_cycles

LOADS = "ldr r0, [r1]|2 / ldr r2, [r1, #4]|2 / ldr r3, [r1, #8]|2 / adds r4, #1|2"
CHASED = "ldr r0, [r1]|2 / ldr r2, [r0]|2"
STORED = "str r0, [r1]|2 / ldr r2, [r3]|2"
SEVERAL = "ldm r0!, {r1, r2, r3, r4}|2"
PRODUCTS = "mla r0, r1, r2, r0|4 / mla r3, r1, r2, r3|4"
LONG = "smull r0, r1, r2, r3|4"
HALVES = "smlad r0, r1, r2, r0|4 / ldr r3, [r4]|2 / smlad r5, r1, r6, r5|4 / ldr r7, [r4, #4]|2"
USED = "ldr r0, [r1]|2 / adds r0, r0, r2|2"
PAIR = "ldrd r0, r1, [r2]|4"


@pytest.mark.parametrize(
    ("core", "text", "cycles"),
    [
        ("cortex-m4", LOADS, 5),  # in a row one each, and the first one more
        ("cortex-m4", CHASED, 4),  # not where the second needs what the first loads
        ("cortex-m4", STORED, 2),
        ("cortex-m4", SEVERAL, 5),
        ("cortex-m4", PAIR, 3),
        ("cortex-m4", PRODUCTS, 2),
        ("cortex-m4", LONG, 1),
        ("cortex-m4", HALVES, 6),
        ("cortex-m4", "vfma.f32 s0, s1, s2|4 / vldr s3, [r0]|4", 5),
        ("cortex-m3", PRODUCTS, 4),
        ("cortex-m3", LONG, 4),
        ("cortex-m0plus", LOADS, 7),
        ("cortex-m0plus", SEVERAL, 5),
        ("cortex-m0plus", "muls r0, r1, r0|2", 1),
        ("cortex-m33", LOADS, 4),
        ("cortex-m33", USED, 3),  # a cycle late
        ("cortex-m33", SEVERAL, 4),
        ("cortex-m7", HALVES, 2),  # one product and one load a cycle
        ("cortex-m7", PRODUCTS, 2),
        ("cortex-m7", "adds r0, #1|2 / adds r1, #1|2 / adds r2, #1|2", 2),
        ("cortex-m7", USED, 2),
        ("cortex-m7", "str r0, [r1]|2 / str r2, [r1, #4]|2", 2),
        ("cortex-m7", PAIR + " / adds r4, #1|2", 2),  # it issues alone
        ("cortex-m55", "add.w r0, r1, r2|4 / vadd.i8 q0, q1, q2|4", 2),
        ("cortex-m85", "add.w r0, r1, r2|4 / vadd.i8 q0, q1, q2|4", 1),
        ("cortex-m85", "vadd.i8 q0, q1, q2|4 / vmul.i8 q3, q4, q5|4 / vsub.i8 q6, q4, q5|4", 3),
    ],
)
def test_rules(core, text, cycles):
    pipeline = find_core(core).pipeline
    assert pipeline is not None
    instructions = []
    for part in text.split(" / "):
        code, size = part.split("|")
        mnemonic, _, operands = code.partition(" ")
        instructions.append(decoder(pipeline)(mnemonic, operands, int(size)))
    assert issue_cycles(instructions, pipeline) == cycles


def test_every_core_has_timings():
    assert {name for name, core in cores().items() if core.pipeline is None} == set()
