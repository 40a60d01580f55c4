"""Run many kernels in one ELF under QEMU and read back what they computed and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.firmware.linker_script import arena_section, linker_script
from tosaic.backends.firmware.toolchain import compile_c, link, runtime_objects
from tosaic.backends.simulators.qemu import run
from tosaic.backends.target import Memory, Target
from tosaic.support.mlir import element_type, functions, ir, numpy_dtype, shape_of

_ARENA = Memory("arena", 0x6800_0000, 128 << 20)
_TARGET = Target(
    "test-bench",
    CORTEX_M55,
    None,
    code=Memory("code", 0x6000_0000, 64 << 20),
    stack=Memory("stack", 0x2000_0000, 512 << 10),
    arena=(_ARENA,),
    constants=Memory("constants", 0x6400_0000, 64 << 20),
)
_VECTORS = Memory("vectors", 0x0, 512 << 10)


@dataclass(frozen=True)
class Trial:
    """A kernel, its input arrays, and the (shape, dtype) of its outputs."""

    kernel: KernelSource
    inputs: Sequence[np.ndarray]
    outputs: Sequence[tuple[tuple[int, ...], np.dtype]]


@dataclass(frozen=True)
class Result:
    outputs: list[np.ndarray]
    instructions: int


def outputs_of(module: ir.Module) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shapes and dtypes of what `main` returns."""
    block = functions(module)["main"].regions[0].blocks[0]
    return [(shape_of(v), numpy_dtype(element_type(v))) for v in block.operations[len(block.operations) - 1].operands]


def run_trials(trials: Sequence[Trial], folder: Path) -> list[Result]:
    """Build one ELF of all trials and run it once. Outputs and scratch hold noise before each call."""
    compiled = compile_kernels([trial.kernel for trial in trials], CORTEX_M55, folder / "objects")
    assert not compiled.errors, compiled.errors
    memory = bytearray()
    rng = np.random.default_rng(0)

    def place(data: bytes) -> int:
        memory.extend(bytes(-len(memory) % 16))
        offset = len(memory)
        memory.extend(data)
        return offset

    calls, results = [], []
    for trial in trials:
        places = [place(np.ascontiguousarray(array).tobytes()) for array in trial.inputs]
        for shape, dtype in trial.outputs:
            places.append(place(rng.bytes(int(np.prod(shape)) * dtype.itemsize)))
            results.append((places[-1], shape, dtype))
        places.append(place(trial.kernel.params))
        calls.append((trial.kernel.symbol, places))
    scratch = place(rng.bytes(max(trial.kernel.scratch_bytes for trial in trials)))
    (folder / "memory.bin").write_bytes(memory)
    elf = _build(calls, scratch, len(memory), compiled.objects, folder)
    execution = run(elf, folder=folder)
    assert execution.exit_code == 0, execution.console
    after = (folder / "after.bin").read_bytes()
    arrays = iter([np.frombuffer(after, dtype, int(np.prod(shape)), at).reshape(shape) for at, shape, dtype in results])
    return [
        Result([next(arrays) for _ in trial.outputs], region.instructions)
        for trial, region in zip(trials, execution.regions, strict=True)
    ]


def _build(
    calls: Sequence[tuple[str, list[int]]], scratch: int, size: int, objects: Sequence[Path], folder: Path
) -> Path:
    lines = [
        '#include "markers.h"',
        '#include "semihosting.h"',
        f'static uint8_t memory[{size}] __attribute__((section("{arena_section(_ARENA)}"), aligned(16)));',
    ]
    for symbol, count in {symbol: len(places) + 1 for symbol, places in calls}.items():
        lines.append(f"void {symbol}({', '.join(['void *'] * count)});")
    for i, (symbol, places) in enumerate(calls):
        arguments = ", ".join(f"memory + {place}" for place in [*places, scratch])
        lines.append(f"static __attribute__((noinline)) void call_{i}(void) {{")
        lines.append(f"    TOSAIC_REGION_BEGIN(); {symbol}({arguments}); TOSAIC_REGION_END();")
        lines.append("}")
    lines += [
        "int main(void) {",
        '    host_file before = host_open("memory.bin", HOST_READ);',
        "    if (host_read(before, memory, sizeof memory) != sizeof memory) return 1;",
    ]
    lines += [f"    call_{i}();" for i in range(len(calls))]
    lines += [
        '    host_file after = host_open("after.bin", HOST_WRITE);',
        "    if (host_write(after, memory, sizeof memory) != sizeof memory) return 2;",
        "    host_close(after);",
        "    return 0;",
        "}",
    ]
    source, script, elf = folder / "main.c", folder / "bench.ld", folder / "bench.elf"
    source.write_text("\n".join(lines) + "\n")
    script.write_text(linker_script(_TARGET, vectors=_VECTORS))
    compile_c(source, source.with_suffix(".o"), CORTEX_M55)
    link([source.with_suffix(".o"), *runtime_objects(CORTEX_M55), *objects], script, elf, CORTEX_M55)
    return elf
