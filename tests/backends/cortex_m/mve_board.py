"""Run kernels on the simulated Cortex-M55 for tests: many cases in one ELF, outputs compared on the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.linker_script import linker_script
from tosaic.backends.simulators import qemu
from tosaic.backends.simulators.cycle_model import CycleModel
from tosaic.backends.target import Memory, Target

_TARGET = Target(
    "board",
    CORTEX_M55,
    None,
    code=Memory("code", 0x6000_0000, 0x0400_0000),
    stack=Memory("dtcm", 0x2000_0000, 0x0008_0000),
    arena=(Memory("sram", 0x2100_0000, 0x0020_0000),),
    constants=Memory("ddr", 0x6400_0000, 0x0800_0000),
)
_VECTORS = Memory("itcm", 0, 0x0008_0000)
_GUARD = 32
_MEMORY_END = 0x2140_0000
_FILL = 0x5A


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs and what it must put out."""

    source: KernelSource
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    name: str = ""
    libraries: Sequence[Path] = field(default=())


@dataclass(frozen=True)
class Outcome:
    """`wrong` output bytes, whether memory beyond outputs and scratch stayed whole, and the cost of one call."""

    wrong: int
    inside: bool
    instructions: int
    cycles: int

    @property
    def exact(self) -> bool:
        return self.wrong == 0 and self.inside


def run_cases(cases: Sequence[Case], folder: Path, include: Sequence[Path] = (), cycles: bool = False) -> list[Outcome]:
    """One outcome per case. Every kernel must compile."""
    compiled = compile_kernels([case.source for case in cases], CORTEX_M55, folder / "objects", include)
    assert not compiled.errors, next(iter(compiled.errors.values()))
    (folder / "board.ld").write_text(linker_script(_TARGET, vectors=_VECTORS))
    (folder / "data.S").write_text(_data(cases, folder))
    (folder / "main.c").write_text(_main(cases))
    toolchain.compile_c(folder / "main.c", folder / "main.o", CORTEX_M55)
    toolchain.compile_c(folder / "data.S", folder / "data.o", CORTEX_M55)
    libraries = dict.fromkeys(path for case in cases for path in case.libraries)
    objects = [*toolchain.runtime_objects(CORTEX_M55), folder / "main.o", folder / "data.o", *compiled.objects]
    toolchain.link([*objects, *libraries], folder / "board.ld", folder / "board.elf", CORTEX_M55)
    execution = qemu.run(folder / "board.elf", folder=folder)
    lines = [line.split() for line in execution.console.splitlines()]
    assert len(lines) == len(cases), execution.console[-500:]
    model = CycleModel(folder / "board.elf", execution.blocks) if cycles else None
    return [
        Outcome(int(wrong, 16), guard == "0x00000000", region.instructions, model.cycles(region) if model else 0)
        for (wrong, guard), region in zip(lines, execution.regions, strict=True)
    ]


def _data(cases: Sequence[Case], folder: Path) -> str:
    lines = ['.section .tosaic.constants,"a"']
    for number, case in enumerate(cases):
        blobs = {f"in{i}": array.tobytes() for i, array in enumerate(case.inputs)}
        blobs |= {f"want{i}": array.tobytes() for i, array in enumerate(case.expected)}
        blobs["params"] = case.source.params
        for name, blob in blobs.items():
            label = f"case{number}_{name}"
            (folder / label).write_bytes(blob)
            lines += [".balign 16", f".global {label}", f"{label}:", f'.incbin "{folder / label}"']
    return "\n".join([*lines, ""])


def _main(cases: Sequence[Case]) -> str:
    """One call of each case through a table. The first input ends where memory does: reading past it is a fault."""
    largest = max(array.nbytes for case in cases for array in case.expected) + _GUARD
    scratch = max(case.source.scratch_bytes for case in cases) + _GUARD
    declared, rows = {}, []
    for number, case in enumerate(cases):
        assert len(case.expected) == 1 and len(case.inputs) in (1, 2)
        labels = [f"case{number}_in{i}" for i in range(len(case.inputs))]
        declared |= {label: f"extern const char {label}[];" for label in [*labels, f"case{number}_want0"]}
        declared[f"case{number}_params"] = f"extern const char case{number}_params[];"
        declared[case.source.symbol] = f"void {case.source.symbol}();"
        inputs = ", ".join([*labels, "0"][:2])
        rows.append(
            f"  {{(void *){case.source.symbol}, {len(labels)}, {{{inputs}}}, case{number}_params, case{number}_want0, "
            f"{case.inputs[0].nbytes}, {case.expected[0].nbytes}, {case.source.scratch_bytes}}},"
        )
    newline = "\n"
    return f"""\
#include <string.h>
#include "semihosting.h"
#include "markers.h"
{newline.join(declared.values())}
static const struct {{
  void *kernel; int inputs; const char *in[2], *params, *want; int in_size, size, scratch;
}} cases[] = {{
{newline.join(rows)}
}};
#define ARENA __attribute__((section(".tosaic.arena.sram"), aligned(16)))
static char out[{largest}] ARENA, scratch[{scratch}] ARENA;
static int damage(const char *p)
{{ int n = 0; for (int i = 0; i < {_GUARD}; i++) n += p[i] != {_FILL}; return n; }}
int main(void)
{{
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {{
    memset(out, {_FILL}, sizeof out);
    memset(scratch, {_FILL}, sizeof scratch);
    void *kernel = cases[i].kernel;
    char *a = (char *){_MEMORY_END:#x} - (cases[i].in_size + 15) / 16 * 16;
    memcpy(a, cases[i].in[0], cases[i].in_size);
    const void *b = cases[i].in[1], *params = cases[i].params;
    int two = cases[i].inputs == 2;
    TOSAIC_REGION_BEGIN();
    if (two)
      ((void (*)(const void *, const void *, void *, const void *, void *))kernel)(a, b, out, params, scratch);
    else
      ((void (*)(const void *, void *, const void *, void *))kernel)(a, out, params, scratch);
    TOSAIC_REGION_END();
    int wrong = 0;
    for (int k = 0; k < cases[i].size; k++)
      wrong += out[k] != cases[i].want[k];
    host_print_hex(wrong);
    host_print(" ");
    host_print_hex(damage(out + cases[i].size) + damage(scratch + cases[i].scratch));
    host_print("\\n");
  }}
  return 0;
}}
"""
