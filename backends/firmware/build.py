"""Build the firmware of a program: sources, objects, `libmodel.a`, and `model.elf` for the simulators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.backends.cortex_m.toolchain import compile_kernels
from tosaic.backends.ethos_u.accelerators import find_accelerator
from tosaic.backends.firmware import toolchain
from tosaic.backends.firmware.emit import Constants, emit_header, emit_source
from tosaic.backends.firmware.linker_script import code_in_constants, linker_script
from tosaic.backends.firmware.memory_plan import MemoryPlan, Placement, check_plan, plan_memory
from tosaic.backends.firmware.program import Call, Interface, NpuCall, Program
from tosaic.backends.target import Core, Target
from tosaic.support.errors import BackendError
from tosaic.support.names import Dtype, Name
from tosaic.support.processes import run_tool
from tosaic.support.quantization import Quantization


@dataclass(frozen=True)
class Tensor:
    """An input or output as a host program needs to know it; `dtype` is numpy's name."""

    name: Name
    shape: tuple[int, ...]
    dtype: Dtype
    quantization: Quantization | None


@dataclass(frozen=True)
class CallRecord:
    """One call of the firmware: `processor` is `cpu` or `npu`, `where` the user's source line and op."""

    name: Name
    processor: str
    where: str
    params_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class PlannedBlock:
    """`size` bytes at `offset` of the arena's share of a memory, in use from call `first` to call `last`, both
    included; -1 is before the first call. `name` is a buffer's, or of the working memory of a call."""

    name: str
    memory: Name
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Firmware:
    """What was built.

    Args:
        arena_bytes: of all arena memories; `memories` has the bytes of each by name, `plan` what lies in them.
        flash_bytes: code, constants and initial data of `model.elf`.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    calls: tuple[CallRecord, ...]
    arena_bytes: int
    memories: Mapping[str, int]
    plan: tuple[PlannedBlock, ...]
    flash_bytes: int


def build_firmware(
    program: Program,
    target: Target,
    folder: Path,
    *,
    include: Sequence[Path] = (),
    libraries: Mapping[str, Path] | None = None,
) -> Firmware:
    """Write and build everything into `folder`.

    Args:
        include: header folders of C kernels.
        libraries: the archive of each support library that kernels name.

    Raises:
        OutOfMemoryError: the arena does not fit the target.
        BackendError: a kernel does not compile, or the image does not link.
    """
    program.check()
    plan = plan_memory(program, target)
    check_plan(program, plan)
    folder.mkdir(parents=True, exist_ok=True)
    _write_sources(program, plan, folder)
    objects = [*_compile_model(target, folder), *_compile_kernels(program, target, folder, include)]
    if target.accelerator and any(isinstance(call, NpuCall) for call in program.calls):
        registers = find_accelerator(target.accelerator).registers
        objects.append(toolchain.runtime_object("npu.c", target.core, f"-DTOSAIC_NPU_ADDRESS={registers:#x}u"))
    archives = _archives(program, libraries or {})
    _archive(folder / "libmodel.a", objects, archives)
    _link_elf(program, target, folder)
    firmware = Firmware(
        inputs=tuple(_tensor(program, interface) for interface in program.inputs),
        outputs=tuple(_tensor(program, interface) for interface in program.outputs),
        calls=tuple(_call_record(call) for call in program.calls),
        arena_bytes=plan.arena_bytes,
        memories={memory.name: used for memory, used in zip(plan.memories, plan.used, strict=True)},
        plan=tuple(_planned(placement, plan) for placement in plan.placements.values()),
        flash_bytes=_flash_bytes(folder / "model.elf"),
    )
    (folder / "memory_plan.txt").write_text(plan.table() + "\n")
    return firmware


def simulator_objects(folder: Path, core: Core, has_npu: bool) -> list[Path]:
    """What the ELF of a build folder is linked from: the simulator's `main`, the runtime, `libmodel.a`."""
    objects = [*toolchain.runtime_objects(core), folder / "objects" / "simulator_main.o"]
    if has_npu:
        objects.append(toolchain.runtime_object("npu_bridge.c", core))
    return [*objects, folder / "libmodel.a"]


def _write_sources(program: Program, plan: MemoryPlan, folder: Path) -> None:
    constants = Constants()
    emit_source(program, plan, constants)  # the first pass collects the constants that the text declares
    (folder / "model.c").write_text(emit_source(program, plan, constants))
    (folder / "model.h").write_text(emit_header(program))
    (folder / "constants.s").write_text(constants.assembly())
    for header in ("tosaic.h", "markers.h"):
        (folder / header).write_bytes((toolchain.SOURCES / header).read_bytes())
    for kernel in program.kernels():
        for part in (*kernel.parts, kernel):
            (folder / "kernels").mkdir(exist_ok=True)
            suffix = {"c": ".c", "mlir": ".mlir"}[part.language]
            (folder / "kernels" / f"{part.symbol}{suffix}").write_text(part.text)
    (folder / "constants").mkdir(exist_ok=True)
    for name, data in constants.blocks.items():
        (folder / "constants" / f"{name}.bin").write_bytes(data)


def _compile_model(target: Target, folder: Path) -> list[Path]:
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    toolchain.compile_c(folder / "model.c", objects / "model.o", target.core)
    toolchain.compile_c(folder / "constants.s", objects / "constants.o", target.core, f"-Wa,-I{folder}")
    main = toolchain.SOURCES / "simulator_main.c"
    toolchain.compile_c(main, objects / "simulator_main.o", target.core, f"-I{folder}")
    return [objects / "model.o", objects / "constants.o"]


def _compile_kernels(program: Program, target: Target, folder: Path, include: Sequence[Path]) -> list[Path]:
    compiled = compile_kernels(list(program.kernels()), target.core, folder / "objects" / "kernels", include)
    for symbol, error in compiled.errors.items():
        raise BackendError(f"kernel `{symbol}` does not compile", why=error)
    return list(compiled.objects)


def _archives(program: Program, libraries: Mapping[str, Path]) -> list[Path]:
    names = dict.fromkeys(name for kernel in program.kernels() for name in kernel.libraries)
    for name in names:
        if name not in libraries:
            raise BackendError(f"a kernel needs the library `{name}`, which is not there")
    return [libraries[name] for name in names]


def _archive(archive: Path, objects: Sequence[Path], libraries: Sequence[Path]) -> None:
    """One archive of all objects and of the members of `libraries`."""
    archive.unlink(missing_ok=True)
    script = "\n".join(
        [f"create {archive}", *(f"addmod {o}" for o in objects), *(f"addlib {a}" for a in libraries), "save", "end", ""]
    )
    run_tool("arm-none-eabi-ar", ["-M"], stdin=script)


def _link_elf(program: Program, target: Target, folder: Path) -> None:
    """Code goes to the target's code memory, or beside the constants where it does not fit there."""
    objects = simulator_objects(folder, target.core, any(isinstance(call, NpuCall) for call in program.calls))
    script, elf = folder / "model.ld", folder / "model.elf"
    script.write_text(linker_script(target.layout))
    try:
        toolchain.link(objects, script, elf, target.core)
    except BackendError as error:
        if f"region `M{target.layout.code.base:08x}' overflowed" not in str(error):
            raise
        script.write_text(linker_script(code_in_constants(target.layout)))
        toolchain.link(objects, script, elf, target.core)


def _flash_bytes(elf: Path) -> int:
    text, data = run_tool("arm-none-eabi-size", [elf]).splitlines()[1].split()[:2]
    return int(text) + int(data)


def _tensor(program: Program, interface: Interface) -> Tensor:
    buffer = program.buffers[interface.buffer]
    return Tensor(interface.name, buffer.shape, buffer.dtype.name, interface.quantization)


def _planned(placement: Placement, plan: MemoryPlan) -> PlannedBlock:
    block, memory = placement.block, plan.memories[placement.memory]
    return PlannedBlock(block.name, memory.name, placement.offset, block.size, block.first, block.last)


def _call_record(call: Call) -> CallRecord:
    if isinstance(call, NpuCall):
        constant_bytes = len(call.command_stream) + len(call.constants)
        return CallRecord(call.name, "npu", call.where, constant_bytes, call.scratch_bytes + call.fast_bytes)
    return CallRecord(call.name, "cpu", call.where, len(call.kernel.params), call.kernel.scratch_bytes)
