"""A target file read: the target that it declares, and where its numbers come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tosaic.backends.cores import find_core
from tosaic.backends.ethos_u.accelerators import ACCELERATORS
from tosaic.backends.ethos_u.vela import checked_config, vela_sections
from tosaic.backends.target import Board, Cache, Core, Layout, Memory, Npu, Target, Uart
from tosaic.support.errors import Error, nearest
from tosaic.target_files.problems import Problem, violations
from tosaic.target_files.schema import CoreTable, MemoryTable, NpuTable, TargetFile
from tosaic.target_files.source import Key, Source, load

_OF_ONE_NPU = ("npu_clock", "npu_registers", "memory_mode", "system_config")


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
    problems = [Problem(source.place(key), what, hint) for key, what, hint in _contradictions(file, source)]
    if problems:
        return None, problems
    return Declaration(_target(file), file.vendor, file.title, file.sources, file.unchecked), []


Finding = tuple[Key, str, str]
"""A key, what is wrong with it, and a hint."""


def _contradictions(file: TargetFile, source: Source) -> Iterator[Finding]:
    """What a schema cannot say."""
    yield from _unknown_names(file)
    yield from _wrong_caches(file)
    yield from _wrong_memories(file)
    yield from _wrong_npus(file)
    for key in file.unchecked:
        if tuple(key.split(".")) not in source.places:
            yield ("unchecked",), f"`{key}` is no key of the file", "keys of tables with points: memory.flash.latency"


def _unknown_names(file: TargetFile) -> Iterator[Finding]:
    memories = [("code", file.code), ("stack", file.stack), ("constants", file.constants)]
    memories += [("arena", name) for name in file.arena]
    for key, name in memories:
        if name not in file.memory:
            yield (key,), f"there is no memory `{name}`", nearest(name, file.memory)
    for place, name in msgspec.structs.asdict(file.trials).items() if file.trials else ():
        if name not in file.memory:
            yield ("trials", place), f"there is no memory `{name}`", nearest(name, file.memory)
    try:
        _core(file.core)
    except Error as error:
        yield ("core",), error.what, error.hint


def _wrong_caches(file: TargetFile) -> Iterator[Finding]:
    for name, table in file.cache.items():
        try:
            Cache(name, **msgspec.structs.asdict(table))
        except ValueError as error:
            yield ("cache", name), str(error), ""
    for name, memory in file.memory.items():
        key = ("memory", name, "caches")
        unknown = [cache for cache in memory.caches if cache not in file.cache]
        for cache in unknown:
            yield (
                key,
                f"there is no cache `{cache}`",
                nearest(cache, file.cache) if file.cache else "declare [cache.NAME]",
            )
        for kind in ("data", "code"):
            if not unknown and sum(file.cache[cache].holds in (kind, "both") for cache in memory.caches) > 1:
                yield (
                    key,
                    f"the memory `{name}` has two caches of {kind}",
                    "one of data, one of code",
                )


def _wrong_memories(file: TargetFile) -> Iterator[Finding]:
    for name, memory in file.memory.items():
        key = ("memory", name)
        if sum(memory.reserved.values()) >= memory.size:
            yield (*key, "reserved"), f"others need all of the memory `{name}`", ""
        if (memory.wait_states is None) != (memory.width is None):
            yield (
                key,
                f"the memory `{name}` has one of `wait_states` and `width`",
                "both, or neither",
            )
        if memory.wait_states is not None and (memory.bytes_per_cycle, memory.latency) != (None, None):
            yield (*key, "wait_states"), f"the memory `{name}` has two speeds", "leave out bytes_per_cycle and latency"
        if memory.clock is not None and file.clock is None:
            yield (
                (*key, "clock"),
                f"the memory `{name}` has a clock, and the core has none",
                "clock = HZ at the top",
            )
    if file.stack_size is not None and file.stack in file.memory and file.stack_size >= _left(file.memory[file.stack]):
        yield ("stack_size",), f"the stack takes all of the memory `{file.stack}`", "leave stack_size out"
    ordered = sorted(file.memory.items(), key=lambda item: item[1].base)
    for (low, below), (high, above) in itertools.pairwise(ordered):
        if (end := below.base + below.size) > above.base:
            what = f"the memory `{low}` ends at {end:#x}, and `{high}` begins at {above.base:#x}"
            yield ("memory", high, "base"), what, ""


def _wrong_npus(file: TargetFile) -> Iterator[Finding]:
    known = file.npu or ACCELERATORS
    if file.accelerator is not None and file.accelerator not in known:
        kind = "NPU" if file.npu else "accelerator"
        yield ("accelerator",), f"there is no {kind} `{file.accelerator}`", nearest(file.accelerator, known)
    for name, table in file.npu.items():
        if table.accelerator not in ACCELERATORS:
            what = f"there is no accelerator `{table.accelerator}`"
            yield ("npu", name, "accelerator"), what, nearest(table.accelerator, ACCELERATORS)
    for key in _OF_ONE_NPU:
        if getattr(file, key) is not None and file.npu:
            yield (key,), f"`{key}` is of which NPU?", f"say it in [npu.{next(iter(file.npu))}]"
        if getattr(file, key) is not None and not file.npu and file.accelerator is None:
            yield (key,), f"there is no NPU that `{key}` could be of", 'accelerator = "ethos-u55-128"'
    yield from _wrong_configurations(file)
    if file.accelerator is None and not file.npu:
        return
    for key, name in (("constants", file.constants), ("arena", file.arena[0])):
        memory = file.memory.get(name)
        if memory and memory.tightly_coupled and memory.npu_base is None:
            hint = "a memory that is not tightly coupled, or its npu_base"
            yield (key,), f"the NPU does not reach the memory `{name}`", hint
    kinds = {file.accelerator or "", *(table.accelerator for table in file.npu.values())}
    for name in file.arena:
        if name in file.memory and file.memory[name].npu_port == "ext" and any("-u55-" in kind for kind in kinds):
            what = f"an Ethos-U55 only reads the memory `{name}` of the arena, through its port ext"
            yield ("memory", name, "npu_port"), what, "another memory for the arena"


def _wrong_configurations(file: TargetFile) -> Iterator[Finding]:
    try:
        sections = vela_sections(_vela_config(file))
    except Error as error:
        yield ("vela_config",), error.what, error.why
        return
    for key, kind in (("memory_mode", "memory mode"), ("system_config", "system configuration")):
        named: list[tuple[Key, str | None]] = [((key,), getattr(file, key))]
        named += [(("npu", name, key), getattr(table, key)) for name, table in file.npu.items()]
        for place, name in named:
            if name is not None and name not in sections[kind]:
                yield place, f"there is no {kind} of Vela's `{name}`", nearest(name, sections[kind])


def _vela_config(file: TargetFile) -> str:
    if not file.vela_config:
        return ""
    try:
        return checked_config(Path(file.vela_config).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Error(f"cannot read `{file.vela_config}`", why=why or "") from None


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
    npu, of_npu = _usual_npu(file), dict[str, Any]()
    if npu:
        arena = tuple(memory for memory in arena if memory.reached_by_npu)
        of_npu = {"accelerator": npu.accelerator, "npu_clock": npu.clock, "npu_registers": npu.registers}
        of_npu |= {"memory_mode": npu.memory_mode, "system_config": npu.system_config}
    return Target(
        file.name,
        _core(file.core),
        _board(file, memories),
        Layout(memories[file.code], stack, arena, memories[file.constants]),
        flash_size=file.flash_size,
        clock=clock,
        vela_config=_vela_config(file),
        npus=npus,
        clocks=tuple(clocks.items()),
        **of_npu,
    )


def _usual_npu(file: TargetFile) -> NpuTable | None:
    if file.npu:
        return file.npu[file.accelerator or next(iter(file.npu))]
    if file.accelerator is None:
        return None
    return NpuTable(
        accelerator=file.accelerator,
        clock=file.npu_clock,
        registers=file.npu_registers,
        memory_mode=file.memory_mode,
        system_config=file.system_config,
    )


def _board(file: TargetFile, memories: Mapping[str, Memory]) -> Board:
    lie, port, trials = file.trials, file.board.uart, None
    if lie:
        arena = (memories[lie.arena],)
        trials = Layout(memories[lie.code], memories[lie.stack], arena, memories[lie.constants])
    uart = Uart(port.driver, port.base, port.clock) if port else None
    return Board(file.board.machine, file.board.cpu, trials, uart)


def _left(table: MemoryTable) -> int:
    """Bytes that others leave."""
    return table.size - sum(table.reserved.values())


def _memory(name: str, table: MemoryTable, file: TargetFile, clock: int | None) -> Memory:
    speed, latency = table.bytes_per_cycle, table.latency
    if table.wait_states is not None and table.width is not None:
        speed, latency = table.width / (table.wait_states + 1), 0
    memory = Memory(
        name,
        table.base,
        _left(table),
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


def _core(given: str | CoreTable) -> Core:
    if isinstance(given, str):
        return find_core(given)
    return Core(given.name, given.triple, given.isa, given.float_abi)
