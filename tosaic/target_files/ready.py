"""The targets a user can name or give as a TOML file, and how an option changes one."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from tosaic.backends.cores.cortex_m55 import CORE as CORTEX_M55
from tosaic.backends.npus import accelerators, find_accelerator, sections
from tosaic.backends.target import Layout, Memory, Npu, Target
from tosaic.support.errors import Error, unknown_name
from tosaic.target_files.declaration import Declaration, at_clock, declaration
from tosaic.target_files.source import ready

ENTRY_POINTS = "tosaic.target_files.ready"

_SHARED = Layout(ITCM, STACK, (SRAM, DDR_ARENA), DDR_CONSTANTS)
_OWN = (
    Declaration(
        Target(
            "cortex-m55",
            CORTEX_M55,
            MPS3_AN547,
            Layout(ITCM, STACK, (DTCM, ALIF_SRAM, DDR_ARENA), ALIF_MRAM),
            clock=400_000_000,
        ),
        "Arm",
        "Cortex-M55 with memories as fast as those of an Alif Ensemble E8",
    ),
    Declaration(
        Target("corstone-300", CORTEX_M55, MPS3_AN547, _SHARED, "ethos-u55-128"), "Arm", "Corstone-300, MPS3 AN547"
    ),
    # Its core is a Cortex-M85. QEMU has none, so code is built for the M55, whose instructions the M85 executes.
    Declaration(
        Target("corstone-320", CORTEX_M55, MPS3_AN547, _SHARED, "ethos-u85-256"),
        "Arm",
        "Corstone-320, built and run as M55 code",
    ),
)


def declarations() -> dict[str, Declaration]:
    """Every target by name: tosaic's own, its ready files, and those that installed packages name as entry points
    `tosaic.targets`."""
    return {name: declare() for name, declare in _known().items()}


def _known() -> dict[str, Callable[[], Declaration]]:
    """What declares each target, unread as yet."""
    installed = [Declaration(entry.load()) for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    files = {name: partial(declaration, file) for name, file in ready().items()}
    return {**_read(_OWN), **files, **_read(installed)}


def _read(declared: Sequence[Declaration]) -> dict[str, Callable[[], Declaration]]:
    def same(each: Declaration) -> Declaration:
        return each

    return {each.target.name: partial(same, each) for each in declared}


def find_declaration(name: str) -> Declaration:
    """The target called `name`, or in the TOML file `name`, and what is said about it.

    Raises:
        Error: no such target, and the message names the nearest; or the file declares none.
    """
    if name.endswith(".toml"):
        return declaration(Path(name))
    known = _known()
    if name not in known:
        raise unknown_name("target", name, known)
    return known[name]()


def find_target(
    name: str,
    accelerator: str | None = None,
    arena_size: int | None = None,
    constants: str | None = None,
    memory_mode: str | None = None,
    system_config: str | None = None,
    flash_size: int | None = None,
    arena: Sequence[str] = (),
    clock: int | str | None = None,
    npu_clock: int | None = None,
) -> Target:
    """The target called `name`, or in the TOML file `name`, changed as the other arguments ask.

    Args:
        accelerator: another NPU: one of the target's own by its name, or any in the place of the target's.
        arena_size: the most bytes that the arena may take.
        constants: the memory that holds weights and command streams, and of the arena only where that names it.
        memory_mode, system_config: what Vela shall assume of the memories, by its names.
        flash_size: the most bytes that code, constants and data may take.
        arena: the memories that the arena may take, the fastest first; empty for those of the target.
        clock: of the core in Hz, or the name of one of the target's clocks.
        npu_clock: of the NPU, in Hz.

    Raises:
        Error: no such target, accelerator, memory, mode, configuration or clock, and the message names the nearest; the
            file declares no target; or it has no NPU that another one could replace.
    """
    target = find_declaration(name).target
    if clock is not None:
        target = at(target, clock)
    if accelerator is not None:
        target = with_npu(target, accelerator)
    written = tuple(_written_memory(target, name) for name in arena)
    if constants is not None:
        target = replace(target, layout=with_constants_in(constants, target, shared=bool(arena)))
    if written:
        target = replace(target, layout=replace(target.layout, arena=written))
    known = sections(target.vela_config)
    for kind, given in (("memory mode", memory_mode), ("system configuration", system_config)):
        if given is not None and given not in known[kind]:
            raise unknown_name(f"{kind} of Vela's", given, known[kind])
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
    return target if npu_clock is None else replace(target, npu_clock=npu_clock)


def at(target: Target, clock: int | str) -> Target:
    """A target at another clock of its core: in Hz, or one of its own by name. Memories keep theirs.

    Raises:
        Error: it has no clock of that name.
    """
    own = dict(target.clocks)
    if isinstance(clock, str) and clock not in own:
        raise Error(f"`{target.name}` has no clock `{clock}`", hint=", ".join(own) or "a frequency, such as 480MHz")
    hertz = own[clock] if isinstance(clock, str) else clock

    layout = target.layout.mapped(lambda memory: at_clock(memory, target.clock, hertz))
    return replace(target, clock=hertz, layout=layout)


def with_npu(target: Target, name: str) -> Target:
    """A target with another NPU: one of its own, or one in the place of its own.

    Raises:
        Error: there is no such accelerator, or the target has no NPU.
    """
    if target.npu is None:
        raise Error(
            f"`{target.name}` has no NPU that another one could replace",
            hint=f"--target corstone-300 --accelerator {name}, or a TOML file with `accelerator`",
        )
    npu = next((npu for npu in target.npus if name in (npu.name, npu.accelerator)), None)
    if npu is None:
        if name not in (known := accelerators()):
            raise unknown_name("accelerator", name, [*(npu.name for npu in target.npus), *known])
        npu = _in_place_of(target.npu, name)
    return target.using(npu)


def _in_place_of(own: Npu, accelerator: str) -> Npu:
    """An NPU in the place of a target's own; another generation's memories are described otherwise."""
    other = replace(own, name=accelerator, accelerator=accelerator)
    alike = find_accelerator(accelerator).generation == find_accelerator(own.accelerator).generation
    return other if alike else replace(other, memory_mode=None, system_config=None)


def with_constants_in(name: str, target: Target, shared: bool = False) -> Layout:
    """The layout of a target with its constants in the memory `name`, which may hold a share of the arena, too.

    Raises:
        Error: there is no such memory, the NPU does not reach it, or the arena has no other.
    """
    constants = _memory_of(target, name)
    arena = tuple(memory for memory in target.layout.arena if shared or memory.name != name)
    if not arena:
        raise Error(
            f"`{name}` is all the memory that the arena of `{target.name}` has",
            hint=f"another memory; with --arena {name}, too, it holds both",
        )
    return replace(target.layout, constants=constants, arena=arena)


def _written_memory(target: Target, name: str) -> Memory:
    """The memory called `name`, which may hold an arena: one that the target's own arena, or its stack, lies in."""
    memory, written = _memory_of(target, name), (*target.layout.arena, target.layout.stack)
    if memory not in written:
        raise Error(
            f"`{name}` of `{target.name}` cannot hold the arena",
            why="the target has it for what is only read",
            hint=", ".join(each.name for each in target.layout.arena),
        )
    return memory


def _memory_of(target: Target, name: str) -> Memory:
    """The memory called `name`, which the NPU of a target reaches, too."""
    memories = {memory.name: memory for memory in target.layout.memories}
    if name not in memories:
        raise unknown_name("memory", name, memories)
    if target.accelerator and not memories[name].reached_by_npu:
        raise Error(f"the NPU of `{target.name}` does not reach `{name}`", hint="a memory that is not tightly coupled")
    return memories[name]
