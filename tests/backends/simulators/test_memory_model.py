"""What each memory is asked for, to the byte, and what the core waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.simulators.memory_model import Requests, Traffic, traffic
from tosaic.backends.target import Memory

TCM = Memory("tcm", 0x2000_0000, 64 << 10, bytes_per_cycle=8, latency=0)
SRAM = Memory("sram", 0x2100_0000, 1 << 20, bytes_per_cycle=8, latency=32)
FLASH = Memory("flash", 0x6000_0000, 1 << 20, bytes_per_cycle=0.5, latency=10)


@pytest.fixture
def asked(qemu, build):
    """Bytes read, bytes written and jumps in SRAM of assembly with r1 and r2 in it, 64 KiB apart."""

    def asked(assembly: str) -> tuple[int, int, int]:
        setup = "movw r1, #0; movt r1, #0x2100; add.w r2, r1, #0x10000; movs r0, #8; nop; nop;"
        elf = build(f"""
            __attribute__((naked, aligned(16))) static void region(void) {{
                __asm__("push {{r4, lr}}; {setup} .balign 4; dbg #1; {assembly}; .balign 4; dbg #2; pop {{r4, pc}}");
            }}
            int main(void) {{ region(); return 0; }}""")
        (cost,) = qemu.run(elf, {}, memories=(TCM, replace(SRAM, latency=1))).costs
        sram = cost.traffic[1]
        return sram.read, sram.written, sram.waits

    return asked


@pytest.mark.parametrize(
    ("assembly", "expected"),
    [
        ("nop", (0, 0, 0)),
        ("ldr r3, [r1]; ldrb r3, [r1, #4]; str r3, [r2]; strh r3, [r2, #100]", (5, 6, 1)),
        ("vldrb.u8 q0, [r1]; vldrb.u8 q1, [r1, #16]; vstrw.32 q0, [r2]", (32, 16, 1)),
        ("ldr r3, [r1]; ldr r3, [r1, #32]; ldr r3, [r1, #68]", (12, 0, 2)),
        ("1: ldr r3, [r1], #4; ldr r3, [r2], #4; subs r0, #1; bne 1b", (64, 0, 2)),
        ("1: ldr r3, [r1], #36; subs r0, #1; bne 1b", (32, 0, 8)),
        ("1: ldr r3, [r1], #64; subs r0, #1; bne 1b; sub.w r1, #512; ldr r3, [r1]", (36, 0, 8)),
        ("1: ldr r3, [r1], #64; subs r0, #1; bne 1b; ldr r3, [r1]; sub.w r1, #512; ldr r3, [r1]", (40, 0, 10)),
    ],
)
def test_requests_are_counted_to_the_byte(asked, assembly, expected):
    assert asked(assembly) == expected


def test_only_a_memory_slower_than_the_loads_makes_the_core_wait():
    asked = Requests(read=1000, written=600, jumps=3)
    assert traffic(TCM, asked, PIPELINE) == Traffic("tcm", 1000, 600, 0)
    assert traffic(SRAM, asked, PIPELINE).waits == 3 * 32
    assert traffic(FLASH, asked, PIPELINE).waits == 1600 * 2 - 1600 // 8 + 3 * 10


def test_a_memory_of_unknown_speed_answers_at_once():
    assert traffic(Memory("ram", 0, 1), Requests(1000, 1000, 1000), PIPELINE).waits == 0


def test_the_regions_of_one_run_are_counted_apart(qemu, build):
    elf = build("""
        static int data[64] __attribute__((section(".bss.tosaic.sram")));
        int main(void) {
            for (int i = 1; i < 4; i++) {
                volatile int *at = data;
                TOSAIC_REGION_BEGIN();
                for (int j = 0; j < i; j++) at[j];
                TOSAIC_REGION_END();
            }
            return 0;
        }""")
    costs = qemu.run(elf, {}, memories=(SRAM,)).costs
    assert [cost.traffic for cost in costs] == [(Traffic("sram", 4 * i, 0, 32),) for i in (1, 2, 3)]
    assert [cost.waits for cost in costs] == [32] * 3
