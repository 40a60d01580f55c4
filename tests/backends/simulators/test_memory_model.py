"""What each memory is asked for, to the byte and the line, and what the core waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tosaic.backends.cores.cortex_m55 import PIPELINE
from tosaic.backends.simulators.memory_model import Requests, Traffic, traffic
from tosaic.backends.target import Cache, Memory, Policy

DATA = Cache("dcache", 1024, 4, 32, "data")
TCM = Memory("tcm", 0x2000_0000, 64 << 10, bytes_per_cycle=8, latency=0)
SRAM = Memory("sram", 0x2100_0000, 1 << 20, bytes_per_cycle=8, latency=32, caches=(DATA,))
FLASH = Memory("flash", 0x6000_0000, 1 << 20, bytes_per_cycle=0.5, latency=10)


@pytest.fixture
def asked(qemu, build):
    """What assembly asks of a memory, with r1 and r2 in SRAM, 64 KiB apart, and r0 = 8."""

    def asked(assembly: str, memory: Memory) -> Traffic:
        setup = "movw r1, #0; movt r1, #0x2100; add.w r2, r1, #0x10000; movs r0, #8; nop; nop;"
        elf = build(f"""
            __attribute__((naked, aligned(16))) static void region(void) {{
                __asm__("push {{r4, lr}}; {setup} mov r9, r9; {assembly}; mov r10, r10; pop {{r4, pc}}");
            }}
            int main(void) {{ region(); return 0; }}""")
        (cost,) = qemu.run(elf, {}, memories=(TCM, memory)).costs
        return cost.traffic[1]

    return asked


@pytest.mark.parametrize(
    ("assembly", "read", "written", "filled", "written_back"),
    [
        ("nop", 0, 0, 0, 0),
        ("ldr r3, [r1]; ldrb r3, [r1, #4]; str r3, [r2]; strh r3, [r2, #100]", 5, 6, 3, 0),
        ("vldrb.u8 q0, [r1]; vldrb.u8 q1, [r1, #16]; vstrw.32 q0, [r2]", 32, 16, 2, 0),
        ("ldr r3, [r1, #30]", 4, 0, 2, 0),
        ("1: ldr r3, [r1], #4; ldr r3, [r2], #4; subs r0, #1; bne 1b", 64, 0, 2, 0),
        ("1: ldr r3, [r1], #64; subs r0, #1; bne 1b; sub.w r1, r1, #512; ldr r3, [r1]", 36, 0, 8, 0),
        # five lines of one set, of which the cache has four: the least recently used goes, and comes again
        ("movs r0, #5; 1: str r3, [r1]; add.w r1, r1, #256; subs r0, #1; bne 1b; sub.w r1, r1, #1280; ldr r3, [r1]",
         4, 20, 6, 2),
        ("movs r0, #4; 1: str r3, [r1]; add.w r1, r1, #256; subs r0, #1; bne 1b; sub.w r1, r1, #1024; ldr r3, [r1]; "
         "ldr r3, [r1, #1024]; ldr r3, [r1]", 12, 16, 5, 1),
    ],
)  # fmt: skip
def test_requests_are_counted_to_the_byte_and_the_line(asked, assembly, read, written, filled, written_back):
    found = asked(assembly, SRAM)
    assert (found.read, found.written, found.filled, found.written_back) == (read, written, filled, written_back)
    assert found.waits == 36 * (filled + written_back)


def test_a_cache_that_writes_through_allocates_nothing_on_a_store(asked):
    through = replace(SRAM, caches=(replace(DATA, writes="through"),))
    found = asked("str r3, [r1]; ldr r3, [r1]; str r3, [r1]; ldr r3, [r1]", through)
    assert (found.read, found.written, found.filled, found.written_back) == (8, 8, 1, 0)


def test_without_a_cache_each_further_word_is_asked_for(asked):
    found = asked(
        "ldr r3, [r1]; ldrb r3, [r1, #4]; ldr r3, [r1, #8]; ldr r3, [r1]; str r3, [r1]", replace(SRAM, caches=())
    )
    assert (found.filled, found.written_back, found.waits) == (3, 0, 3 * 32)


def test_lines_that_are_filled_and_written_back_have_prices_of_their_own():
    asked, own = Requests(1000, 600, filled=3, written_back=2), replace(SRAM, line_fill=42, line_write_back=17)
    found = traffic(own, asked, PIPELINE)
    assert (found.fill_waits, found.write_waits, found.fetch_waits, found.waits) == (126, 34, 0, 160)
    assert traffic(SRAM, asked, PIPELINE).waits == 5 * (32 + 32 // 8)


def test_only_a_memory_slower_than_the_loads_makes_the_core_wait():
    asked = Requests(read=1000, written=600, filled=125)
    assert traffic(TCM, asked, PIPELINE) == Traffic("tcm", 1000, 600, 125)
    assert traffic(FLASH, asked, PIPELINE).waits == 125 * (10 + 16 - 1) + 600 * 2 - 600 // 8


def test_a_memory_of_unknown_speed_answers_at_once():
    assert traffic(Memory("ram", 0, 1), Requests(1000, 1000, 1000, 1000, 1000), PIPELINE).waits == 0


def test_the_regions_of_one_run_are_counted_apart_and_share_the_caches(qemu, build):
    elf = build("""
        static int data[64] __attribute__((section(".bss.tosaic.sram")));
        int main(void) {
            for (int i = 1; i < 4; i++) {
                volatile int *at = data;
                TOSAIC_REGION_BEGIN();
                for (int j = 0; j < 8 * i; j++) at[j];
                TOSAIC_REGION_END();
            }
            return 0;
        }""")
    costs = qemu.run(elf, {}, memories=(SRAM,)).costs
    (found,) = zip(*(cost.traffic for cost in costs), strict=True)
    assert [(each.read, each.filled) for each in found] == [(32, 1), (64, 1), (96, 1)]
    assert [cost.waits for cost in costs] == [36] * 3


def test_a_marker_empties_the_caches_and_what_follows_warms_them(qemu, build):
    elf = build("""
        static int data[64] __attribute__((section(".bss.tosaic.sram")));
        int main(void) {
            volatile int *at = data;
            for (int i = 0; i < 3; i++) {
                if (i) __asm__ volatile("mov r11, r11");
                if (i) at[8 * i] = 0;
                TOSAIC_REGION_BEGIN();
                at[0]; at[8]; at[16];
                TOSAIC_REGION_END();
            }
            return 0;
        }""")
    costs = qemu.run(elf, {}, memories=(SRAM,)).costs
    assert [(cost.traffic[0].read, cost.traffic[0].filled) for cost in costs] == [(12, 3), (12, 2), (12, 2)]


def test_code_is_fetched_through_its_cache(qemu, build):
    """A loop of 200 instructions of four bytes: 25 lines, all of them again where the cache has fewer."""
    body = "add.w r3, r3, #1; " * 200
    elf = build(f"""
        __attribute__((naked, aligned(32))) static void region(void) {{
            __asm__("push {{r4, lr}}; movs r0, #10; mov r9, r9; 1: {body} subs r0, #1; bne 1b; .balign 4;"
                    "mov r10, r10; pop {{r4, pc}}");
        }}
        int main(void) {{ region(); return 0; }}""")

    def fetched(size: int, policy: Policy = "lru") -> int:
        memory = Memory("itcm", 0, 512 << 10, 8, 10, caches=(Cache("icache", size, 2, 32, "code", policy),))
        (cost,) = qemu.run(elf, {}, memories=(memory,)).costs
        (found,) = cost.traffic
        assert found.fetch_waits == found.waits == 14 * found.fetched
        return found.fetched

    assert 25 <= fetched(4096) <= 27
    assert 250 <= fetched(512) <= 270
    assert fetched(512, "round-robin") == fetched(512)
    assert 100 <= fetched(512, "random") < 250


@pytest.mark.parametrize(
    ("geometry", "message"),
    [((1024, 4, 24), "24 bytes, no power of two"), ((1000, 4, 32), "of 1000 bytes has no power of two of sets"),
     ((3072, 4, 32), "sets of 4 x 32 B"), ((64, 4, 32), "sets of 4 x 32 B")],
)  # fmt: skip
def test_a_cache_that_cannot_be(geometry, message):
    with pytest.raises(ValueError, match=message):
        Cache("dcache", *geometry)


def test_caches_that_are_emptied_within_a_region_are_written_back(qemu, build):
    elf = build("""
        static int data[64] __attribute__((section(".bss.tosaic.sram")));
        int main(void) {
            volatile int *at = data;
            TOSAIC_REGION_BEGIN();
            at[0] = 1; at[8] = 1; at[16];
            __asm__ volatile("mov r11, r11");
            at[0];
            TOSAIC_REGION_END();
            at[8] = 1;
            TOSAIC_REGION_BEGIN();
            at[8];
            TOSAIC_REGION_END();
            return 0;
        }""")
    costs = qemu.run(elf, {}, memories=(SRAM,)).costs
    assert [(cost.traffic[0].filled, cost.traffic[0].written_back) for cost in costs] == [(4, 2), (1, 0)]
