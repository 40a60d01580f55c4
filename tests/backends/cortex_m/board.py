"""Run kernels on the simulated board for tests: many cases in one ELF, judged by all the memory they leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tosaic.backends.boards import MICROBIT, MPS3_AN547
from tosaic.backends.cores import find_core
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.cortex_m.kernel import KernelSource
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.firmware.linker_script import arena_section, linker_script
from tosaic.backends.firmware.toolchain import compile_c, link, runtime_objects
from tosaic.backends.simulators.runners.qemu import Qemu
from tosaic.backends.target import Board, Core, Layout, Memory
from tosaic.target_files.ready import find_target

_MIB = 1 << 20
_GUARD = 32


@dataclass(frozen=True)
class Bench:
    """A core on a board.

    Args:
        layout: its arena holds all cases.
        edge: where a memory of the board ends. The first input lies right below it: reading past it is a fault.
    """

    core: Core
    board: Board
    layout: Layout
    edge: int


M55 = Bench(
    CORTEX_M55,
    MPS3_AN547,
    Layout(
        code=Memory("code", 0x6000_0000, 64 * _MIB),
        stack=Memory("stack", 0x2000_0000, _MIB // 2),
        arena=(Memory("image", 0x6800_0000, 128 * _MIB),),
        constants=Memory("constants", 0x6400_0000, 64 * _MIB),
        vectors=Memory("vectors", 0, _MIB // 2),
    ),
    edge=0x2140_0000,
)
_AN386 = find_target(str(Path(__file__).parents[3] / "examples" / "targets" / "mps2-an386.toml"))
_MPS2 = replace(_AN386.layout, arena=_AN386.layout.arena[-1:])
M4 = Bench(_AN386.core, _AN386.board, _MPS2, edge=0x2040_0000)
M3 = Bench(Core("cortex-m3", "thumbv7m-none-eabi", (), "soft"), Board("mps2-an385"), _MPS2, edge=0x2040_0000)

M0 = Bench(
    find_core("cortex-m0"),
    MICROBIT,
    Layout(
        code=Memory("code", 0x2000_0000, 64 * _MIB),
        stack=Memory("stack", 0x2C00_0000, _MIB // 2),
        arena=(Memory("image", 0x3000_0000, 128 * _MIB),),
        constants=Memory("constants", 0x2400_0000, 64 * _MIB),
        vectors=Memory("vectors", 0, _MIB // 4),
    ),
    edge=0x4000_0000,
)


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs and what it must put out.

    Args:
        over: whether its output lies where its first input does.
    """

    source: KernelSource
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    name: str = ""
    libraries: Sequence[Path] = ()
    over: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a case put out, whether it wrote nothing but outputs and scratch, and the instructions of the call."""

    case: Case
    outputs: list[np.ndarray]
    inside: bool
    instructions: int

    @property
    def wrong(self) -> int:
        """Output bytes that are not as expected."""
        pairs = zip(self.outputs, self.case.expected, strict=True)
        return sum(int((_bytes(got) != _bytes(want)).sum()) for got, want in pairs)

    @property
    def exact(self) -> bool:
        return self.wrong == 0 and self.inside

    def __str__(self) -> str:
        return f"{self.case.name}: {self.wrong} wrong bytes{'' if self.inside else ', writes outside its memory'}"


def run_cases(cases: Sequence[Case], folder: Path, include: Sequence[Path] = (), bench: Bench = M55) -> list[Outcome]:
    """One outcome per case. Every kernel must compile. Outputs and scratch hold noise before each call."""
    compiled = compile_kernels([case.source for case in cases], bench.core, folder / "objects", include)
    assert not compiled.errors, next(iter(compiled.errors.values()))
    image = _Image()
    calls = [_Call(case, image) for case in cases]
    libraries = dict.fromkeys(path for case in cases for path in case.libraries)
    elf = _build(calls, len(image.data), [*compiled.objects, *libraries], folder, bench)
    qemu = Qemu(replace(bench.core, pipeline=None), bench.board)  # Nobody asks for cycles.
    ran = qemu.run(elf, {"before.bin": bytes(image.data)}).check("the board")
    before, after = (np.frombuffer(data, np.uint8) for data in (image.data, ran.files["after.bin"]))
    return [call.outcome(before, after, cost.instructions) for call, cost in zip(calls, ran.costs, strict=True)]


class _Image:
    """The memory of all cases. Buffers start at multiples of 16 and end before a guard; what is not given is noise."""

    def __init__(self) -> None:
        self._rng, self.data = np.random.default_rng(0), bytearray()

    def place(self, content: bytes | int) -> slice:
        """Where `content`, or that many bytes of noise, lies."""
        data = self._rng.bytes(content) if isinstance(content, int) else content
        start = len(self.data)
        self.data += data + self._rng.bytes(_GUARD + -len(data) % 16)
        return slice(start, start + len(data))


class _Call:
    """A case in the image."""

    def __init__(self, case: Case, image: _Image) -> None:
        self.case, start = case, len(image.data)
        self.inputs = [image.place(array.tobytes()) for array in case.inputs]
        self.outputs = self.inputs[:1] if case.over else [image.place(array.nbytes) for array in case.expected]
        self.params, self.scratch = image.place(case.source.params), image.place(case.source.scratch_bytes)
        self.span = slice(start, len(image.data))

    def write(self, name: str) -> list[str]:
        """C of a function that makes the call."""
        symbol, places = self.case.source.symbol, [*self.inputs, *self.outputs, self.params, self.scratch]
        arguments = [f"image + {place.start}" for place in places]
        at_edge = self.inputs and not self.case.over
        first = [f"  void *first = edge({arguments[0]}, {places[0].stop - places[0].start});"] if at_edge else []
        arguments[: len(first)] = ["first"] * len(first)
        return [
            f"void {symbol}({', '.join(['void *'] * len(places))});",
            f"static __attribute__((noinline)) void {name}(void) {{",
            *first,
            f"  TOSAIC_REGION_BEGIN(); {symbol}({', '.join(arguments)}); TOSAIC_REGION_END();",
            "}",
        ]

    def outcome(self, before: np.ndarray, after: np.ndarray, instructions: int) -> Outcome:
        outputs = [
            np.frombuffer(after[place].tobytes(), array.dtype).reshape(array.shape)
            for place, array in zip(self.outputs, self.case.expected, strict=True)
        ]
        rest = np.arange(self.span.start, self.span.stop)
        for place in (*self.outputs, self.scratch):
            rest = rest[(rest < place.start) | (rest >= place.stop)]
        return Outcome(self.case, outputs, np.array_equal(before[rest], after[rest]), instructions)


def _build(calls: Sequence[_Call], size: int, objects: Sequence[Path], folder: Path, bench: Bench) -> Path:
    names = [f"call_{number}" for number in range(len(calls))]
    section = arena_section(bench.layout.arena[0])
    lines = [
        "#include <string.h>",
        '#include "markers.h"',
        '#include "semihosting.h"',
        f'static uint8_t image[{size}] __attribute__((section("{section}"), aligned(16)));',
        "static __attribute__((unused)) void *edge(const void *input, unsigned size)",
        f"{{ return memcpy((char *){bench.edge:#x} - (size + 15) / 16 * 16, input, size); }}",
        *(line for name, call in zip(names, calls, strict=True) for line in call.write(name)),
        "int main(void) {",
        '  host_file before = host_open("before.bin", HOST_READ);',
        "  if (host_read(before, image, sizeof image) != sizeof image) return 1;",
        *(f"  {name}();" for name in names),
        '  host_file after = host_open("after.bin", HOST_WRITE);',
        "  if (host_write(after, image, sizeof image) != sizeof image) return 2;",
        "  host_close(after);",
        "  return 0;",
        "}",
    ]
    source, script, elf = folder / "main.c", folder / "board.ld", folder / "board.elf"
    source.write_text("\n".join(lines) + "\n")
    script.write_text(linker_script(bench.layout))
    compile_c(source, source.with_suffix(".o"), bench.core)
    link([source.with_suffix(".o"), *runtime_objects(bench.core), *objects], script, elf, bench.core)
    return elf


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8)
