"""Build the firmware of a program: sources, objects, the kit that ships, and `model.elf` for the simulators."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tosaic.backends.cortex_m.kernel import License
from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.constants import Constants
from tosaic.backends.firmware.decoder import write_generation
from tosaic.backends.firmware.emit import emit_source, emit_static
from tosaic.backends.firmware.emit_header import emit_header
from tosaic.backends.firmware.emit_selftest import emit_selftest
from tosaic.backends.firmware.kit import check_name, prefixed, write_kit
from tosaic.backends.firmware.linker_script import code_in_constants, linker_script
from tosaic.backends.firmware.memory_plan import MemoryPlan, plan_memory
from tosaic.backends.firmware.placing import PlacedBlock
from tosaic.backends.firmware.plan_check import check_plan
from tosaic.backends.firmware.program import Call, CallSequence, Interface, KernelCall, NpuCall
from tosaic.backends.firmware.records import CallRecord, Firmware, MethodRecord, ModelTensor, PlannedBlock
from tosaic.backends.firmware.stack import stack_bound
from tosaic.backends.npu import Driver
from tosaic.backends.npus import family_of, find_accelerator
from tosaic.backends.simulators.stand_in import simulation_of
from tosaic.backends.target import Core, Memory, Target
from tosaic.support.errors import BackendError, OutOfFlashError
from tosaic.support.processes import run_tool

MAIN, MAIN_AT_ONCE = "simulator_main.o", "simulator_main_at_once.o"
"""The simulator's `main`, and one that hands over at once what the model takes row by row."""


@dataclass(frozen=True)
class SelfTest:
    """Inputs, and the outputs that the firmware must give for them, to the bit."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Library:
    """A support library that kernels name: its archive, and under which licenses its code is."""

    archive: Path
    licenses: tuple[License, ...] = ()


def build_firmware(
    program: CallSequence,
    target: Target,
    folder: Path,
    *,
    name: str = "model",
    include: Sequence[Path] = (),
    libraries: Mapping[str, Library] | None = None,
    selftest: SelfTest | None = None,
    states: Sequence[np.ndarray] = (),
    plan: MemoryPlan | None = None,
    places: int | None = None,
) -> Firmware:
    """Write and build everything into `folder`; its folder `kit` is what ships.

    Args:
        name: what symbols begin with.
        include: header folders of C kernels.
        libraries: each support library that kernels name.
        selftest: what `NAME_selftest` runs; without, there is none.
        states: what each state of the program holds at first.
        plan: where everything lies; the smallest one found without it.
        places: tokens that the context of a model that generates holds; None where nothing limits it.

    Raises:
        OutOfMemoryError: the arena does not fit the target, or the image its flash.
        BackendError: a kernel does not compile, or the image does not link.
        Error: no model can be called so.
    """
    plan = _checked(program, target, name, plan)
    linked = _libraries(program, libraries or {})
    has_npu = any(isinstance(call, NpuCall) for call in program.calls)
    header = partial(emit_header, program, plan, name, tested=selftest is not None)
    _write_headers(name, header(), folder / "kit" / "include")
    _write_sources(program, plan, name, folder, selftest, states)
    _write_archives(program, target, folder, name, include, linked)
    decoder = write_generation(folder / "kit", name, program, places)
    _simulator_main(program, name, target, folder)
    _link_elf(simulator_objects(folder, name, target.core, has_npu), target, folder)
    flash_bytes = _flash_bytes(program, target, folder / "model.elf")
    stack_bytes = _stack_bytes(name, target, folder, has_npu)
    _write_headers(name, header(stack_bytes=stack_bytes), folder / "kit" / "include")
    (folder / "memory_plan.txt").write_text(plan.table() + "\n")
    return Firmware(
        name=name,
        inputs=tuple(_tensor(program, interface) for interface in program.inputs),
        outputs=tuple(_tensor(program, interface) for interface in program.outputs),
        calls=tuple(_call_record(call) for call in program.calls),
        arena_bytes=plan.arena_bytes,
        memories={memory.name: used for memory, used in zip(plan.memories, plan.used, strict=True)},
        plan=tuple(_planned(placement, plan) for placement in plan.placements.values()),
        flash_bytes=flash_bytes,
        stack_bytes=stack_bytes,
        licenses={part.of: part.spdx for library in linked for part in library.licenses},
        fed_rows=program.fed_rows,
        hop_rows=program.hop_rows,
        states=tuple(_tensor(program, state) for state in program.states),
        decoder=decoder,
        methods=tuple(MethodRecord(method.name, method.first, method.end) for method in program.methods),
    )


def _checked(program: CallSequence, target: Target, name: str, plan: MemoryPlan | None) -> MemoryPlan:
    """Where everything lies."""
    check_name(name)
    program.check()
    plan = plan or plan_memory(program, target)
    check_plan(program, plan)
    return plan


def _write_archives(
    program: CallSequence, target: Target, folder: Path, name: str, include: Sequence[Path], linked: Sequence[Library]
) -> None:
    """Compile the model and its kernels, and make the kit of them, of libraries and of the NPU's drivers."""
    objects = _compile_model(name, target, folder)
    kernels = _compile_kernels(program, target, folder, include)
    copies = prefixed(kernels, [library.archive for library in linked], name, folder / "objects" / name)
    archives, drivers = [_archive(folder / f"lib{name}.a", [*objects, *copies])], dict[str, Driver]()
    if any(isinstance(call, NpuCall) for call in program.calls):
        accelerator = target.accelerator or ""
        drivers = dict(family_of(accelerator).drivers(accelerator))
        archives += _drivers(drivers, target, folder)
    licenses = [part for library in linked for part in library.licenses]
    write_kit(folder / "kit", name, target.core, archives, drivers, licenses)


def simulator_objects(folder: Path, name: str, core: Core, has_npu: bool, main: str = MAIN) -> list[Path]:
    """What the ELF of a build folder is linked from: the simulator's `main`, the runtime, the model."""
    objects = [*toolchain.runtime_objects(core), folder / "objects" / main]
    if has_npu:
        objects.append(toolchain.runtime_object("npu_bridge.c", core))
    return [*objects, *_shipped(folder, name, has_npu)]


def _shipped(folder: Path, name: str, has_npu: bool) -> list[Path]:
    """The archives of a model with the small driver."""
    libraries = folder / "kit" / "lib"
    return [libraries / f"lib{name}.a", *([libraries / "libtosaic_npu.a"] if has_npu else [])]


def _write_headers(name: str, header: str, include: Path) -> None:
    include.mkdir(parents=True, exist_ok=True)
    (include / f"{name}.h").write_text(header)
    shutil.copy(toolchain.SOURCES / "tosaic.h", include)


def _write_sources(
    program: CallSequence,
    plan: MemoryPlan,
    name: str,
    folder: Path,
    selftest: SelfTest | None,
    states: Sequence[np.ndarray],
) -> None:
    constants, bundled = Constants(f"{name}_"), Constants(f"{name}_")
    emit_source(program, plan, name, constants, states)  # the first pass collects the constants that the text declares
    (folder / f"{name}.c").write_text(emit_source(program, plan, name, constants, states))
    (folder / f"{name}_static.c").write_text(emit_static(plan, name))
    (folder / "constants.s").write_text(constants.assembly())
    if selftest:
        symbols = [bundled.add(f"selftest_{kind}", _bytes_of(arrays)) for kind, arrays in vars(selftest).items()]
        (folder / f"{name}_selftest.c").write_text(emit_selftest(program, name, bundled, *symbols))
        (folder / "selftest.s").write_text(bundled.assembly())
    for kernel in program.kernels():
        for part in (*kernel.parts, kernel):
            (folder / "kernels").mkdir(exist_ok=True)
            suffix = {"c": ".c", "mlir": ".mlir"}[part.language]
            (folder / "kernels" / f"{part.symbol}{suffix}").write_text(part.text)
    (folder / "constants").mkdir(exist_ok=True)
    for block, data in (constants.blocks | bundled.blocks).items():
        (folder / "constants" / f"{block}.bin").write_bytes(data)


def _bytes_of(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def _compile_model(name: str, target: Target, folder: Path) -> list[Path]:
    """Each in an object of its own, so that an image holds what it uses."""
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    parts = [f"{name}.c", f"{name}_static.c", f"{name}_selftest.c", "constants.s", "selftest.s"]
    sources = [folder / part for part in parts if (folder / part).exists()]
    made = [objects / f"{source.stem}.o" for source in sources]
    for source, path in zip(sources, made, strict=True):
        found = f"-Wa,-I{folder}" if source.suffix == ".s" else f"-I{folder / 'kit' / 'include'}"
        toolchain.compile_c(source, path, target.core, found)
    return made


def _simulator_main(program: CallSequence, name: str, target: Target, folder: Path) -> None:
    macros = {
        "HEADER": f'"{name}.h"',
        "MODEL(x)": f"{name}_##x",
        "INPUTS": f"{name.upper()}_INPUTS",
        "OUTPUTS": f"{name.upper()}_OUTPUTS",
    }
    if program.fed:
        macros |= {part: f"{name.upper()}_{part}" for part in ("ROWS", "ROW_BYTES")}
    flags = [f"-I{folder / 'kit' / 'include'}", *(f"-D{key}={value}" for key, value in macros.items())]
    main, objects = toolchain.SOURCES / "simulator_main.c", folder / "objects"
    toolchain.compile_c(main, objects / MAIN, target.core, *flags)
    if program.fed:
        toolchain.compile_c(main, objects / MAIN_AT_ONCE, target.core, *flags, "-DWHOLE")


def _compile_kernels(program: CallSequence, target: Target, folder: Path, include: Sequence[Path]) -> list[Path]:
    compiled = compile_kernels(list(program.kernels()), target.core, folder / "objects" / "kernels", include)
    for symbol, error in compiled.errors.items():
        raise BackendError(f"kernel `{symbol}` does not compile", why=error)
    return list(compiled.objects)


def _libraries(program: CallSequence, libraries: Mapping[str, Library]) -> list[Library]:
    names = dict.fromkeys(name for kernel in program.kernels() for name in kernel.libraries)
    for name in names:
        if name not in libraries:
            raise BackendError(f"a kernel needs the library `{name}`, which is not there")
    return [libraries[name] for name in names]


def _drivers(drivers: Mapping[str, Driver], target: Target, folder: Path) -> list[Path]:
    """The archives of the ways to call the NPU."""
    core, usual = target.core, find_accelerator(target.accelerator or "").registers
    registers = usual if target.npu_registers is None else target.npu_registers
    memories = "".join(_row(memory, target) for memory in target.layout.memories if memory.reached_by_npu)
    chip = (f"-DTOSAIC_NPU_ADDRESS={registers:#x}u", f"-DTOSAIC_NPU_MEMORIES={memories}")
    archives = []
    for name, driver in drivers.items():
        objects = [toolchain.runtime_object(source, core, *driver.flags) for source in driver.sources]
        objects += [toolchain.runtime_object(source, core, *driver.flags, *chip) for source in driver.of_chip]
        archives.append(_archive(folder / f"libtosaic_{name}.a", objects))
    return archives


def _row(memory: Memory, target: Target) -> str:
    """A memory in the driver's table."""
    port = target.npu_port(memory).upper()
    return f"{{{memory.base:#x}u,{memory.size:#x}u,{memory.npu_address:#x}u,TOSAIC_NPU_{port}}},"


def _archive(archive: Path, objects: Sequence[Path]) -> Path:
    run_tool("llvm-ar-22", ["rcsD", archive, *objects])
    return archive


def _link_elf(objects: Sequence[Path], target: Target, folder: Path) -> None:
    """Link for the simulator: code goes to its code memory, or beside the constants where it does not fit there."""
    script, elf, layout = folder / "model.ld", folder / "model.elf", simulation_of(target).layout
    script.write_text(linker_script(layout))
    try:
        toolchain.link(objects, script, elf, target.core)
    except BackendError as error:
        if f"will not fit in region 'M{layout.code.base:08x}'" not in str(error):
            raise
        script.write_text(linker_script(code_in_constants(layout)))
        toolchain.link(objects, script, elf, target.core)


def _stack_bytes(name: str, target: Target, folder: Path, has_npu: bool) -> int | None:
    """Of an image of nothing but the model and the small driver."""
    entry, elf = f"{name}_invoke", folder / "objects" / "invoke.elf"
    toolchain.link(_shipped(folder, name, has_npu), folder / "model.ld", elf, target.core, entry=entry)
    return stack_bound(elf, entry, target.core.name)


def _flash_bytes(program: CallSequence, target: Target, elf: Path) -> int:
    """What an image takes, if the target has as much."""
    text, data = run_tool("llvm-size-22", [elf]).splitlines()[1].split()[:2]
    taken = int(text) + int(data)
    if target.flash_size is not None and taken > target.flash_size:
        raise out_of_flash(program, target.flash_size, f"it takes {taken} B")
    return taken


def out_of_flash(program: CallSequence, size: int, why: str) -> OutOfFlashError:
    """The error of a firmware that needs more flash than it may take; the message names who has most constants."""
    kernels = [call for call in program.calls if isinstance(call, KernelCall)]
    worst = max(kernels, key=lambda call: len(call.kernel.params), default=None)
    beside = f"; `{worst.name}` has {len(worst.kernel.params)} B of constants" if worst else ""
    return OutOfFlashError(
        f"the firmware needs more flash than {size} B",
        where=worst.where if worst else "",
        why=why + beside,
        hint="a larger --flash-size, or a model of fewer weights",
    )


def _tensor(program: CallSequence, interface: Interface) -> ModelTensor:
    buffer = program.buffers[interface.buffer]
    return ModelTensor(interface.name, buffer.shape, interface.dtype(buffer.dtype), interface.quantization)


def _planned(placement: PlacedBlock, plan: MemoryPlan) -> PlannedBlock:
    block, memory = placement.block, plan.memories[placement.memory]
    return PlannedBlock(block.name, memory.name, placement.offset, block.size, block.first, block.last)


def _call_record(call: Call) -> CallRecord:
    if isinstance(call, NpuCall):
        constant_bytes = len(call.command_stream) + len(call.constants)
        return CallRecord(call.name, "npu", call.where, constant_bytes, call.scratch_bytes + call.fast_bytes)
    return CallRecord(call.name, "cpu", call.where, len(call.kernel.params), call.kernel.scratch_bytes)
