"""What of a target file a schema cannot say: names of what is not there, numbers that exclude each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from tosaic.backends.npus import accelerators, sections
from tosaic.backends.target import Cache
from tosaic.support.errors import Error, nearest
from tosaic.target_files.parts import core_of, vela_config_of
from tosaic.target_files.schema import TargetFile
from tosaic.target_files.source import Key, Source

_OF_ONE_NPU = ("npu_clock", "npu_registers", "memory_mode", "system_config")
Finding = tuple[Key, str, str]
"""A key, what is wrong with it, and a hint."""


def contradictions(file: TargetFile, source: Source) -> Iterator[Finding]:
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
        core_of(file.core)
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
            hint = nearest(cache, file.cache) if file.cache else "declare [cache.NAME]"
            yield key, f"there is no cache `{cache}`", hint
        for kind in ("data", "code"):
            if not unknown and sum(file.cache[cache].holds in (kind, "both") for cache in memory.caches) > 1:
                yield key, f"the memory `{name}` has two caches of {kind}", "one of data, one of code"


def _wrong_memories(file: TargetFile) -> Iterator[Finding]:
    for name, memory in file.memory.items():
        key = ("memory", name)
        if sum(memory.reserved.values()) >= memory.size:
            yield (*key, "reserved"), f"others need all of the memory `{name}`", ""
        if (memory.wait_states is None) != (memory.width is None):
            yield key, f"the memory `{name}` has one of `wait_states` and `width`", "both, or neither"
        if memory.wait_states is not None and (memory.bytes_per_cycle, memory.latency) != (None, None):
            yield (*key, "wait_states"), f"the memory `{name}` has two speeds", "leave out bytes_per_cycle and latency"
        if memory.clock is not None and file.clock is None:
            yield (*key, "clock"), f"the memory `{name}` has a clock, and the core has none", "clock = HZ at the top"
    if file.stack_size is not None and file.stack in file.memory and file.stack_size >= file.memory[file.stack].left:
        yield ("stack_size",), f"the stack takes all of the memory `{file.stack}`", "leave stack_size out"
    ordered = sorted(file.memory.items(), key=lambda item: item[1].base)
    for (low, below), (high, above) in itertools.pairwise(ordered):
        if (end := below.base + below.size) > above.base:
            what = f"the memory `{low}` ends at {end:#x}, and `{high}` begins at {above.base:#x}"
            yield ("memory", high, "base"), what, ""


def _wrong_npus(file: TargetFile) -> Iterator[Finding]:
    of_all = accelerators()
    known = file.npu or of_all
    if file.accelerator is not None and file.accelerator not in known:
        kind = "NPU" if file.npu else "accelerator"
        yield ("accelerator",), f"there is no {kind} `{file.accelerator}`", nearest(file.accelerator, known)
    for name, table in file.npu.items():
        if table.accelerator not in of_all:
            what = f"there is no accelerator `{table.accelerator}`"
            yield ("npu", name, "accelerator"), what, nearest(table.accelerator, of_all)
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
    kinds = sorted({file.accelerator or "", *(table.accelerator for table in file.npu.values())})
    for name in file.arena:
        port = file.memory[name].npu_port if name in file.memory else None
        if npu := next((each for each in kinds if each in of_all and port in of_all[each].reads_only), None):
            what = f"{npu} only reads the memory `{name}` of the arena, through its port {port}"
            yield ("memory", name, "npu_port"), what, "another memory for the arena"


def _wrong_configurations(file: TargetFile) -> Iterator[Finding]:
    try:
        known = sections(vela_config_of(file.vela_config))
    except Error as error:
        yield ("vela_config",), error.what, error.why
        return
    for key, kind in (("memory_mode", "memory mode"), ("system_config", "system configuration")):
        named: list[tuple[Key, str | None]] = [((key,), getattr(file, key))]
        named += [(("npu", name, key), getattr(table, key)) for name, table in file.npu.items()]
        for place, name in named:
            if name is not None and name not in known[kind]:
                yield place, f"there is no {kind} of Vela's `{name}`", nearest(name, known[kind])
