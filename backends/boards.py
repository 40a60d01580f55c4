"""The boards that QEMU has and tosaic's own targets stand on."""

from __future__ import annotations

from dataclasses import replace

from tosaic.backends.target import Board, Cache, Layout, Memory, Uart

KIB, MIB = 1024, 1024 * 1024

# Level-1 caches as in Arm's Cortex-M55 Technical Reference Manual: lines of 32 bytes, 2 ways of code, 4 of data, which
# are allocated on a store and written back. 32 KiB each, as the chip has that `cortex-m55` stands for.
M55_CODE = Cache("icache", 32 * KIB, 2, 32, "code")
M55_DATA = Cache("dcache", 32 * KIB, 4, 32, "data")
M55_CACHES = (M55_CODE, M55_DATA)

# The SSE-300 map of MPS3 AN547, which the Corstone-300 FVP shares. The NPU cannot reach the tightly coupled memories,
# which answer within the load's cycle (Arm Cortex-M55 Technical Reference Manual). SRAM and DDR are as fast as the two
# ports of Arm's `vela.ini`, section Ethos_U55_High_End_Embedded: 64 bits a cycle, scaled by 1 and by 1/8.
ITCM = Memory("itcm", 0x0000_0000, 512 * KIB, bytes_per_cycle=8, latency=0, tightly_coupled=True)
STACK = Memory("stack", 0x2000_0000, 64 * KIB, bytes_per_cycle=8, latency=0, tightly_coupled=True)
DTCM = Memory("dtcm", 0x2001_0000, 448 * KIB, bytes_per_cycle=8, latency=0, tightly_coupled=True)
SRAM = Memory("sram", 0x2100_0000, 4 * MIB, bytes_per_cycle=8, latency=32, caches=M55_CACHES, npu_port="sram")
DDR_ARENA = Memory("ddr", 0x6000_0000, 64 * MIB, bytes_per_cycle=1, latency=64, caches=M55_CACHES, npu_port="ext")
DDR_CONSTANTS = replace(DDR_ARENA, name="ddr-constants", base=0x6400_0000, size=192 * MIB)

# The same map with the speeds of an Alif Ensemble E8, whose high-performance core is a Cortex-M55 with 32 KiB caches.
# A line of its SRAM takes 42 cycles to fill or to write back: fitted to the eight layers that `benchmarks/silicon.py`
# names (pytorch/executorch issue 17651). A line of its MRAM takes 150: an estimate, since one layer alone asks for it.
ALIF_SRAM = Memory("sram", 0x2100_0000, 4 * MIB, 8, 38, caches=M55_CACHES, line_fill=42, line_write_back=42)
ALIF_MRAM = Memory("mram", 0x6400_0000, 192 * MIB, 1, 118, caches=M55_CACHES, line_fill=150, line_write_back=150)

# Trials lie in the big memory but for their vectors: speed in QEMU is the same, and any batch fits.
MPS3_AN547 = Board(
    "mps3-an547",
    trials=Layout(
        code=Memory("code", 0x6000_0000, 64 * MIB),
        stack=Memory("stack", 0x2000_0000, 512 * KIB),
        arena=(Memory("memory", 0x7000_0000, 256 * MIB),),
        constants=Memory("constants", 0x6400_0000, 192 * MIB),
        vectors=Memory("vectors", 0x0000_0000, 512 * KIB),
    ),
    uart=Uart("cmsdk", 0x5930_3000, 25_000_000),
)

# A Cortex-M0 whose memories the simulator makes as large as batches need.
MICROBIT = Board(
    "microbit",
    trials=Layout(
        code=Memory("code", 0x2000_0000, 64 * MIB),
        stack=Memory("stack", 0x2C00_0000, MIB // 2),
        arena=(Memory("memory", 0x3000_0000, 256 * MIB),),
        constants=Memory("constants", 0x2400_0000, 128 * MIB),
        vectors=Memory("vectors", 0x0000_0000, 256 * KIB),
    ),
    uart=Uart("microbit", 0x4000_2000, 16_000_000),
)
