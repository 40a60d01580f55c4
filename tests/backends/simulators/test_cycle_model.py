"""The scoreboard against LLVM's own analyser on inner loops, and its rules on hand-made code."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.simulators.cycle_model import CycleModel, decoder, issue_cycles
from tosaic.support.errors import BackendError

ROUNDS = 100
LOOPS = {
    "register-blocked int8 GEMM, 3x2": (
        "vldrb.u8 q3,[r8],#16; vmladava.s8 r0,q0,q3; vldrb.u8 q4,[r8],#16; vmladava.s8 r4,q1,q3; vmladava.s8 r6,q2,q3;"
        "vmladava.s8 r2,q0,q4; vldrb.u8 q0,[r1],#16; vmladava.s8 r10,q1,q4; vldrb.u8 q1,[r3],#16;"
        "vmladava.s8 r12,q2,q4; vldrb.u8 q2,[r5],#16"
    ),
    "dot products with weight sum": (
        "vldrb.u8 q0,[r8],#16; vaddva.s8 r0,q0; vldrb.u8 q1,[r1],#16; vmladava.s8 r2,q0,q1; vldrb.u8 q2,[r3],#16;"
        "vmladava.s8 r4,q0,q2"
    ),
    "requantize four lanes": (
        "vldrw.u32 q0,[r1],#16; vldrw.u32 q1,[r8],#16; vqrdmulh.s32 q0,q0,q1; vldrw.u32 q2,[r3],#16;"
        "vrshl.s32 q0,q0,q2; vadd.i32 q0,q0,r4; vmax.s32 q0,q0,q6; vmin.s32 q0,q0,q7; vstrb.32 q0,[r5],#4"
    ),
    "scalar multiply and accumulate": "ldr r0,[r1],#4; ldr r2,[r3],#4; mul r0,r0,r2; add r4,r4,r0; adds r5,#1",
}


@pytest.fixture
def measured_cycles(qemu):
    return lambda elf: [cost.cycles for cost in qemu.run(elf, {}).costs]


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS.keys())
def test_loops_agree_with_llvm_mca(qemu, build, body):
    llvms = replace(PIPELINE, into_interleaving_store=0, store_to_load=0)
    qemu = replace(qemu, core=replace(qemu.core, pipeline=llvms))
    lines = [line.strip() for line in body.split(";")]
    text = "\\n".join(lines)
    elf = build(f"""
        __attribute__((naked)) static void loop(void) {{
            __asm__("push {{r4-r11, lr}}\\n movw r1, #0\\n movt r1, #0x2100\\n mov r3, r1\\n mov r5, r1\\n"
                    "mov r8, r1\\n mov lr, #{ROUNDS}\\n mov r9, r9\\n dls lr, lr\\n 1:\\n {text}\\n le lr, 1b\\n"
                    "mov r10, r10\\n"
                    "pop {{r4-r11, pc}}");
        }}
        int main(void) {{ loop(); return 0; }}""")
    analyzed = subprocess.run(
        ["llvm-mca-22", "--mtriple=thumbv8.1m.main", "-mcpu=cortex-m55", f"-iterations={ROUNDS}"],
        input=".thumb\n" + "\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (expected,) = map(int, re.findall(r"Total Cycles:\s+(\d+)", analyzed))
    assert qemu.run(elf, {}).costs[0].cycles == pytest.approx(expected + PIPELINE.loop_entry, abs=0.04 * expected)


def test_taken_branches_cost_a_refill(measured_cycles, build):
    elf = build("""
        int main(void) {
            __asm__ volatile("movs r0, #100\\n mov r9, r9\\n 1: subs r0, #1\\n bne 1b\\n mov r10, r10" ::: "r0", "cc");
            return 0;
        }""")
    # `subs` and `bne` issue together: 1 cycle a round, and 99 of the 100 branches are taken.
    assert measured_cycles(elf) == [100 + 99 * PIPELINE.taken_branch]


def test_regions_between_markers_of_one_block(measured_cycles, build):
    elf = build("""
        int main(void) {
            __asm__ volatile("mov r9, r9\\n mov r10, r10");
            __asm__ volatile("movs r0, #1\\n mov r9, r9\\n ldr.w r1, [sp]\\n add.w r1, r1, r1\\n"
                             "mov r10, r10" ::: "r0", "r1");
            return 0;
        }""")
    assert measured_cycles(elf) == [0, 3]  # the load's result is a cycle late


def test_equal_runs_give_equal_cycles(measured_cycles, build):
    elf = build("""
        #include <string.h>
        char data[1000];
        int main(void) { TOSAIC_REGION_BEGIN(); memset(data, 3, 999); TOSAIC_REGION_END(); return data[998] - 3; }""")
    assert measured_cycles(elf) == measured_cycles(elf)


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("adds r0, #1|2 / adds r1, #1|2", 1),  # a pair
        ("adds r0, #1|2 / adds r0, #1|2", 2),  # no pair: one needs the other
        ("add.w r0, r0, #1|4 / add.w r1, r1, #1|4", 2),  # wide instructions do not pair
        ("vadd.i8 q0, q1, q2|4 / vmul.i8 q3, q4, q5|4", 2),  # different pipes overlap
        ("vadd.i8 q0, q1, q2|4 / vsub.i8 q3, q4, q5|4", 3),  # one pipe is busy for two cycles
        ("vldrb.u8 q0, [r0, q1]|4 / vldrb.u8 q2, [r1]|4", 9),  # a gather of sixteen bytes holds the load pipe
        ("udiv r0, r1, r2|4 / add.w r3, r0, r3|4", 9),
        ("vadd.i32 q0, q1, q2|4 / vldrw.u32 q3, [r0, q0]|4", 6),  # offsets are needed four cycles ahead
        ("vadd.i8 q0, q4, q5|4 / vstrb.8 q0, [r0]|4", 2),  # a result is stored at once
        ("vadd.i8 q0, q4, q5|4 / vst40.8 {q0, q1, q2, q3}, [r0]|4", 4),  # but for an interleaving store
        ("vldrb.u8 q0, [r1]|4 / vst40.8 {q0, q1, q2, q3}, [r0]|4", 3),  # which takes what was loaded as soon as any
        ("vstrb.8 q0, [r0]|4 / vldrb.u8 q1, [r1]|4", 4),  # a load two cycles after a store
        ("vstrb.8 q0, [r0]|4 / vadd.i8 q2, q3, q4|4 / vmul.i8 q5, q6, q7|4 / vldrb.u8 q1, [r1]|4", 4),  # and later
    ],
)
def test_rules(text, cycles):
    instructions = []
    for part in text.split(" / "):
        code, size = part.split("|")
        mnemonic, _, operands = code.partition(" ")
        instructions.append(decoder(PIPELINE)(mnemonic, operands, int(size)))
    assert issue_cycles(instructions, PIPELINE) == cycles


def test_a_file_that_is_no_elf(tmp_path):
    (tmp_path / "bad.elf").write_text("not an ELF")
    with pytest.raises(BackendError, match=r"`llvm-objdump-22` failed\n.*bad\.elf"):
        CycleModel(tmp_path / "bad.elf", {}, "cortex-m55", PIPELINE)


def test_equal_code_costs_the_same_wherever_it_lies(measured_cycles, build):
    kernel = (
        "movs r0, #50; 1: vldrb.u8 q0, [r1]; vmul.i8 q1, q0, q0; vadd.i8 q2, q1, q0; adds r2, #1; vstrb.8 q2, [r1];"
        "cmp r0, #25; beq 2f; vmladava.s8 r12, q2, q2; mul r3, r2, r2; 2: udiv r3, r3, r2; subs r0, #1; bne 1b; bx lr"
    )
    places = range(940, 1030, 2)  # before, across and behind the end of one of QEMU's pages
    copies = "".join(
        f".balign 1024; .rept {place // 2}; nop; .endr; .thumb_func; at_{place}: {kernel};" for place in places
    )
    declared = ", ".join(f"at_{place}(char *)" for place in places)
    calls = " ".join(f"call(data, at_{place});" for place in places)
    elf = build(f"""
        __asm__(".text; {copies} .balign 4");
        void {declared};
        __attribute__((naked, noinline, aligned(32))) static void call(
                __attribute__((unused)) char *data, __attribute__((unused)) void (*kernel)(char *)) {{
            __asm__("push {{r4, lr}}; mov r4, r1;"
                    "mov r1, r0; movs r2, #1; nop; mov r9, r9; blx r4; mov r10, r10; pop {{r4, pc}}");
        }}
        static char data[16];
        int main(void) {{ {calls} return 0; }}""")
    cycles = measured_cycles(elf)
    assert len(cycles) == len(places) and len(set(cycles)) == 1
