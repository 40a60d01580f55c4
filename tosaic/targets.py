"""The targets a user can name or give as a TOML file, and how an option changes one."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from tosaic.backends.boards import (
    ALIF_MRAM,
    ALIF_SRAM,
    DDR_ARENA,
    DDR_CONSTANTS,
    DTCM,
    ITCM,
    MPS3_AN547,
    SRAM,
    STACK,
)
from tosaic.backends.cores import find_core
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.vela import vela_sections
from tosaic.backends.target import Board, Cache, Core, Holds, Layout, Memory, Policy, Target, Uart, Writes
from tosaic.support.errors import Error, unknown_name
from tosaic.support.names import Name

ENTRY_POINTS = "tosaic.targets"
_BASELINES = ("thumbv6m", "thumbv8m.base")

_SHARED = Layout(ITCM, STACK, (SRAM, DDR_ARENA), DDR_CONSTANTS)
_OWN = (
    Target(
        "cortex-m55",
        CORTEX_M55,
        MPS3_AN547,
        Layout(ITCM, STACK, (DTCM, ALIF_SRAM, DDR_ARENA), ALIF_MRAM),
        clock=400_000_000,
    ),
    Target("corstone-300", CORTEX_M55, MPS3_AN547, _SHARED, "ethos-u55-128"),
    # Its core is a Cortex-M85. QEMU has none, so code is built for the M55, whose instructions the M85 executes.
    Target("corstone-320", CORTEX_M55, MPS3_AN547, _SHARED, "ethos-u85-256"),
)


def targets() -> dict[str, Target]:
    """Every target by name: tosaic's own, and those that installed packages name as entry points `tosaic.targets`."""
    installed = [entry.load() for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    return {target.name: target for target in (*_OWN, *installed)}


def find_target(
    name: str,
    accelerator: str | None = None,
    arena_size: int | None = None,
    constants: str | None = None,
    memory_mode: str | None = None,
    system_config: str | None = None,
    flash_size: int | None = None,
    arena: Sequence[str] = (),
    clock: int | None = None,
    npu_clock: int | None = None,
) -> Target:
    """The target called `name`, or in the TOML file `name`, changed as the other arguments ask.

    Args:
        accelerator: another NPU.
        arena_size: the most bytes that the arena may take.
        constants: the memory that holds weights and command streams, and no longer any of the arena.
        memory_mode, system_config: what Vela shall assume of the memories, by its names.
        flash_size: the most bytes that code, constants and data may take.
        arena: the memories that the arena may take, the fastest first; empty for those of the target.
        clock, npu_clock: of the core and of the NPU, in Hz.

    Raises:
        Error: no such target, accelerator, memory, mode or configuration, and the message names the nearest; or the
            file declares no target.
    """
    target = read_target(Path(name)) if name.endswith(".toml") else targets().get(name)
    if target is None:
        raise unknown_name("target", name, targets())
    if arena:
        target = replace(target, layout=replace(target.layout, arena=tuple(_memory_of(target, name) for name in arena)))
    if accelerator is not None:
        if accelerator not in ACCELERATORS:
            raise unknown_name("accelerator", accelerator, ACCELERATORS)
        reached = tuple(memory for memory in target.layout.arena if not memory.tightly_coupled)
        if not reached:
            raise Error(
                f"an NPU reaches no memory of `{target.name}`", hint="a target whose arena is not tightly coupled"
            )
        target = replace(target, accelerator=accelerator, layout=replace(target.layout, arena=reached))
    if constants is not None:
        target = replace(target, layout=with_constants_in(constants, target))
    for kind, given in (("memory mode", memory_mode), ("system configuration", system_config)):
        if given is not None and given not in vela_sections()[kind]:
            raise unknown_name(f"{kind} of Vela's", given, vela_sections()[kind])
    if memory_mode is not None:
        target = replace(target, memory_mode=memory_mode)
    if system_config is not None:
        target = replace(target, system_config=system_config)
    if arena_size is not None:
        first = target.layout.arena[0]
        limited = replace(target.layout, arena=(replace(first, size=min(first.size, arena_size)),))
        board = replace(target.board, trials=target.board.trials or replace(target.layout, arena=(first,)))
        target = replace(target, layout=limited, board=board)
    if flash_size is not None:
        target = replace(target, flash_size=flash_size)
    if clock is not None:
        target = replace(target, clock=clock)
    return target if npu_clock is None else replace(target, npu_clock=npu_clock)


def with_constants_in(name: str, target: Target) -> Layout:
    """The layout of a target with its constants in the memory `name`.

    Raises:
        Error: there is no such memory, the NPU does not reach it, or the arena has no other.
    """
    constants = _memory_of(target, name)
    arena = tuple(memory for memory in target.layout.arena if memory.name != name)
    if not arena:
        raise Error(f"`{name}` is all the memory that the arena of `{target.name}` has", hint="another memory")
    return replace(target.layout, constants=constants, arena=arena)


def _memory_of(target: Target, name: str) -> Memory:
    """The memory called `name`, which the NPU of a target reaches, too."""
    memories = {memory.name: memory for memory in target.layout.memories}
    if name not in memories:
        raise unknown_name("memory", name, memories)
    if target.accelerator and memories[name].tightly_coupled:
        raise Error(f"the NPU of `{target.name}` does not reach `{name}`", hint="a memory that is not tightly coupled")
    return memories[name]


class _CoreTable(msgspec.Struct, forbid_unknown_fields=True):
    """A core that tosaic does not know: no cycle model, no kernels but portable ones."""

    name: Name
    triple: Name
    isa: tuple[Name, ...] = ()
    float_abi: Name = "soft"


class _UartTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    driver: Name
    base: Annotated[int, msgspec.Meta(ge=0)]
    clock: Annotated[int, msgspec.Meta(gt=0)]


class _TrialsTable(msgspec.Struct, forbid_unknown_fields=True):
    """Where candidates lie: memories, each in the place of one of the target."""

    code: str
    stack: str
    arena: str
    constants: str


class _BoardTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    machine: Name | None = None
    cpu: Name | None = None
    uart: _UartTable | None = None


class _CacheTable(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(gt=0)]
    ways: Annotated[int, msgspec.Meta(gt=0)]
    line: Annotated[int, msgspec.Meta(gt=0)]
    holds: Holds = "both"
    policy: Policy = "lru"
    writes: Writes = "back"


class _MemoryTable(msgspec.Struct, forbid_unknown_fields=True):
    base: Annotated[int, msgspec.Meta(ge=0)]
    size: Annotated[int, msgspec.Meta(gt=0)]
    bytes_per_cycle: Annotated[float, msgspec.Meta(gt=0)] | None = None
    latency: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tightly_coupled: bool = False
    caches: tuple[str, ...] = ()
    line_fill: Annotated[int, msgspec.Meta(ge=0)] | None = None
    line_write_back: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _TargetFile(msgspec.Struct, forbid_unknown_fields=True):
    """The schema of a target's TOML file; `code`, `stack`, `arena` and `constants` name memories, which name caches."""

    name: Name
    core: Name | _CoreTable
    memory: dict[Name, _MemoryTable]
    code: str
    stack: str
    arena: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    constants: str
    board: _BoardTable = _BoardTable()
    cache: dict[Name, _CacheTable] = {}
    trials: _TrialsTable | None = None
    accelerator: str | None = None
    clock: Annotated[int, msgspec.Meta(gt=0)] | None = None
    npu_clock: Annotated[int, msgspec.Meta(gt=0)] | None = None


def read_target(path: Path) -> Target:
    """The target that a TOML file declares.

    Raises:
        Error: the file does not read, or its content is no target; the message names the field.
    """
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_TargetFile)
    except OSError as error:
        raise Error(f"cannot read the target `{path}`", why=error.strerror or str(error)) from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise Error(f"`{path}` declares no target", why=str(error)) from None
    if file.accelerator is not None and file.accelerator not in ACCELERATORS:
        raise unknown_name("accelerator", file.accelerator, ACCELERATORS)
    memories = _memories(file, path)

    def memory(name: str) -> Memory:
        if name not in memories:
            raise unknown_name("memory", name, memories)
        return memories[name]

    _check_apart(path, list(memories.values()))
    layout = Layout(memory(file.code), memory(file.stack), tuple(map(memory, file.arena)), memory(file.constants))
    lie, port = file.trials, file.board.uart
    trials = Layout(memory(lie.code), memory(lie.stack), (memory(lie.arena),), memory(lie.constants)) if lie else None
    uart = Uart(port.driver, port.base, port.clock) if port else None
    board = Board(file.board.machine, file.board.cpu, trials, uart)
    core = _core(file.core)
    return Target(file.name, core, board, layout, file.accelerator, clock=file.clock, npu_clock=file.npu_clock)


def _check_apart(path: Path, memories: Sequence[Memory]) -> None:
    """Refuse memories that share addresses."""
    ordered = sorted(memories, key=lambda memory: memory.base)
    for low, high in itertools.pairwise(ordered):
        if low.base + low.size > high.base:
            why = (
                f"the memory `{low.name}` ends at {low.base + low.size:#x}, and `{high.name}` begins at {high.base:#x}"
            )
            raise Error(f"`{path}` declares no target", why=why)


def _memories(file: _TargetFile, path: Path) -> dict[str, Memory]:
    try:
        caches = {name: Cache(name, **msgspec.structs.asdict(table)) for name, table in file.cache.items()}
    except ValueError as error:
        raise Error(f"`{path}` declares no target", why=str(error)) from None
    found = {}
    for name, table in file.memory.items():
        if unknown := [cache for cache in table.caches if cache not in caches]:
            raise unknown_name("cache", unknown[0], caches)
        by = tuple(caches[cache] for cache in table.caches)
        for kind in ("data", "code"):
            if sum(cache.holds in (kind, "both") for cache in by) > 1:
                raise Error(f"`{path}` declares no target", why=f"the memory `{name}` has two caches of {kind}")
        found[name] = Memory(name, **{**msgspec.structs.asdict(table), "caches": by})
    return found


def _core(given: str | _CoreTable) -> Core:
    if isinstance(given, str):
        return find_core(given)
    if given.triple.startswith(_BASELINES):
        raise Error(
            f"nothing is built for `{given.name}` yet",
            why=f"`{given.triple}` is a baseline architecture, whose instructions the runtime does not keep to",
            hint="a core of Armv7-M, Armv8-M mainline or later, from the Cortex-M3 on",
        )
    return Core(given.name, given.triple, given.isa, given.float_abi)
