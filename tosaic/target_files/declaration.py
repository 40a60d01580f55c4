"""A target file read: the target that it declares, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tosaic.backends.target import Board, Cache, Layout, Memory, Npu, Target, Uart
from tosaic.target_files.contradictions import contradictions
from tosaic.target_files.parts import core_of, vela_config_of
from tosaic.target_files.problems import Problem, violations
from tosaic.target_files.schema import MemoryTable, TargetFile
from tosaic.target_files.source import load


@dataclass(frozen=True)
class Declaration:
    """A target and what is said about it.

    Args:
        vendor, title: who makes it, and what it is.
        sources: where its numbers come from.
        unchecked: keys of its file whose numbers nobody could check.
    """

    target: Target
    vendor: str = ""
    title: str = ""
    sources: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def declaration(path: Path) -> Declaration:
    """What a target file declares.

    Raises:
        Error: it does not read, or declares no target; the message has the line, and the nearest right thing.
    """
    found, problems = examine(path)
    if found is None:
        raise problems[0].error(len(problems) - 1)
    return found


def examine(path: Path) -> tuple[Declaration | None, list[Problem]]:
    """What a target file declares, or all that is wrong with it.

    Raises:
        Error: it does not read, or is no TOML.
    """
    source = load(path)
    try:
        file = msgspec.convert(source.table, TargetFile)
    except msgspec.ValidationError as error:
        return None, violations(source) or [Problem(source.place(()), str(error))]
    problems = [Problem(source.place(key), what, hint) for key, what, hint in contradictions(file, source)]
    if problems:
        return None, problems
    return Declaration(_target(file), file.vendor, file.title, file.sources, file.unchecked), []


def _target(file: TargetFile) -> Target:
    clocks = file.clock if isinstance(file.clock, dict) else {}
    clock = file.clock if isinstance(file.clock, int) else next(iter(clocks.values()), None)
    memories = {name: _memory(name, table, file, clock) for name, table in file.memory.items()}
    stack = memories[file.stack]
    if file.stack_size is not None:
        left = stack.size - file.stack_size
        memories[file.stack] = replace(stack, size=left)
        seen = None if stack.npu_base is None else stack.npu_base + left
        stack = replace(
            stack, name=f"{stack.name}-stack", base=stack.base + left, size=file.stack_size, npu_base=seen, reserved=()
        )
    arena = tuple(memories[name] for name in file.arena)
    npus = tuple(Npu(name, **msgspec.structs.asdict(table)) for name, table in file.npu.items())
    npu = _usual_npu(file, npus)
    if npu:
        arena = tuple(memory for memory in arena if memory.reached_by_npu)
    target = Target(
        file.name,
        core_of(file.core),
        _board(file, memories),
        Layout(memories[file.code], stack, arena, memories[file.constants]),
        flash_size=file.flash_size,
        clock=clock,
        vela_config=vela_config_of(file.vela_config),
        npus=npus,
        clocks=tuple(clocks.items()),
    )
    return target.using(npu) if npu else target


def _usual_npu(file: TargetFile, npus: Sequence[Npu]) -> Npu | None:
    if npus:
        return next(npu for npu in npus if file.accelerator in (None, npu.name))
    if file.accelerator is None:
        return None
    of_it = (file.npu_clock, file.npu_registers, file.memory_mode, file.system_config)
    return Npu(file.accelerator, file.accelerator, *of_it)


def _board(file: TargetFile, memories: Mapping[str, Memory]) -> Board:
    lie, port, trials = file.trials, file.board.uart, None
    if lie:
        arena = (memories[lie.arena],)
        trials = Layout(memories[lie.code], memories[lie.stack], arena, memories[lie.constants])
    uart = Uart(port.driver, port.base, port.clock) if port else None
    return Board(file.board.machine, file.board.cpu, trials, uart)


def _memory(name: str, table: MemoryTable, file: TargetFile, clock: int | None) -> Memory:
    speed, latency = table.bytes_per_cycle, table.latency
    if table.wait_states is not None and table.width is not None:
        speed, latency = table.width / (table.wait_states + 1), 0
    memory = Memory(
        name,
        table.base,
        table.left,
        bytes_per_cycle=speed,
        latency=latency,
        tightly_coupled=table.tightly_coupled,
        caches=tuple(Cache(cache, **msgspec.structs.asdict(file.cache[cache])) for cache in table.caches),
        line_fill=table.line_fill,
        line_write_back=table.line_write_back,
        clock=table.clock,
        npu_base=table.npu_base,
        npu_port=table.npu_port or ("sram" if name == file.arena[0] else "ext"),
        reserved=tuple(table.reserved.items()),
    )
    return at_clock(memory, memory.clock, clock)


def at_clock(memory: Memory, before: int | None, after: int | None) -> Memory:
    """A memory with a clock of its own, its speeds in cycles of another clock than before."""
    if memory.clock is None or before is None or after is None:
        return memory
    factor = after / before

    def cycles(count: int | None) -> int | None:
        return None if count is None else round(count * factor)

    return replace(
        memory,
        bytes_per_cycle=None if memory.bytes_per_cycle is None else memory.bytes_per_cycle / factor,
        latency=cycles(memory.latency),
        line_fill=cycles(memory.line_fill),
        line_write_back=cycles(memory.line_write_back),
    )
