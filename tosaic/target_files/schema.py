"""What may stand in a target file: one definition, from which files are read and the JSON schema is made."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tosaic.backends.target import Holds, NpuPort, Policy, Writes
from tosaic.support.names import Name

Address = Annotated[int, Meta(ge=0, lt=2**32)]
Bytes = Annotated[int, Meta(gt=0)]
Hertz = Annotated[int, Meta(gt=0)]
Cycles = Annotated[int, Meta(ge=0)]


def _key(text: str) -> Meta:
    return Meta(description=text)


class TargetTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a target file."""


class CoreTable(TargetTable, kw_only=True):
    """A core that tosaic does not know: no cycle model, no kernels but portable ones and CMSIS-NN's."""

    name: Annotated[Name, _key("clang's and gcc's `-mcpu` name")]
    triple: Annotated[Name, _key("LLVM target triple")]
    isa: Annotated[tuple[Name, ...], _key("extensions: dsp, fp, mve, mve.fp")] = ()
    float_abi: Annotated[Name, _key("hard, softfp or soft")] = "soft"


class UartTable(TargetTable, kw_only=True):
    """The serial port of the monitor, for trials on the board."""

    driver: Annotated[Name, _key("a driver that tosaic has: cmsdk, microbit")]
    base: Annotated[Address, _key("address of its registers")]
    clock: Annotated[Hertz, _key("what its divider divides, in Hz")]


class TrialsTable(TargetTable, kw_only=True):
    """Where candidates lie on the board itself: memories, each in the place of one of the target."""

    code: Annotated[str, _key("in place of the code's")]
    stack: Annotated[str, _key("in place of the stack's")]
    arena: Annotated[str, _key("in place of the arena's first")]
    constants: Annotated[str, _key("in place of the constants'")]


class BoardTable(TargetTable, kw_only=True):
    """What QEMU and a bench know of it."""

    machine: Annotated[Name, _key("QEMU's machine, where it has one with these memories")] | None = None
    cpu: Annotated[Name, _key("QEMU's name of the core; without it, the machine's own")] | None = None
    uart: UartTable | None = None


class CacheTable(TargetTable, kw_only=True):
    """A cache between the core and memories, which is on: your start-up code turns it on."""

    size: Annotated[Bytes, _key("bytes")]
    ways: Annotated[int, Meta(gt=0, description="lines of a set")]
    line: Annotated[Bytes, _key("bytes of a line")]
    holds: Annotated[Holds, _key("data, code, or both")] = "both"
    policy: Annotated[Policy, _key("which line is replaced")] = "lru"
    writes: Annotated[Writes, _key("stores stay in it (back), or go to memory and allocate nothing (through)")] = "back"


class MemoryTable(TargetTable, kw_only=True):
    """A memory as the core sees it. Speeds are in cycles of `clock`, or of the core's without it."""

    base: Annotated[Address, _key("its address")]
    size: Annotated[Bytes, _key("bytes")]
    reserved: Annotated[dict[str, Bytes], _key("bytes at its end that others need, by who needs them")] = {}
    tightly_coupled: Annotated[bool, _key("the core's own; an NPU reaches it at npu_base or not at all")] = False
    bytes_per_cycle: Annotated[float, Meta(gt=0, description="what a long read in order brings a cycle")] | None = None
    latency: Annotated[Cycles, _key("cycles until the first byte")] | None = None
    wait_states: Annotated[Cycles, _key("cycles that each read of `width` bytes waits, in their place")] | None = None
    width: Annotated[Bytes, _key("bytes of a read, beside wait_states")] | None = None
    clock: Annotated[Hertz, _key("of its bus, in Hz")] | None = None
    caches: Annotated[tuple[str, ...], _key("those that the core reaches it through")] = ()
    line_fill: Annotated[Cycles, _key("cycles to fill a line; without it, the latency and the bytes")] | None = None
    line_write_back: Annotated[Cycles, _key("cycles to write a line back; without it, as a fill")] | None = None
    npu_base: Annotated[Address, _key("its address for the NPU, where that is another")] | None = None
    npu_port: (
        Annotated[NpuPort, _key("the NPU's port: sram (M0) or ext (M1); without it, the arena's first has sram")] | None
    ) = None

    @property
    def left(self) -> int:
        """Bytes that others leave."""
        return self.size - sum(self.reserved.values())


class NpuTable(TargetTable, kw_only=True):
    """One of several NPUs; `--accelerator` takes its name."""

    accelerator: Annotated[str, _key("as Vela names it, e.g. ethos-u55-128")]
    clock: Annotated[Hertz, _key("in Hz")] | None = None
    registers: Annotated[Address, _key("the address of its registers")] | None = None
    memory_mode: Annotated[Name, _key("a memory mode of Vela's")] | None = None
    system_config: Annotated[Name, _key("a system configuration of Vela's")] | None = None


class TargetFile(TargetTable, kw_only=True):
    """A target file. Code, stack, arena and constants name memories, which name caches."""

    name: Annotated[Name, _key("what `--target` takes")]
    title: Annotated[str, _key("what it is, in a few words")] = ""
    vendor: Annotated[str, _key("who makes it")] = ""
    sources: Annotated[tuple[str, ...], _key("where the numbers come from")] = ()
    unchecked: Annotated[tuple[str, ...], _key("keys whose numbers nobody checked: memory.flash.latency")] = ()
    extends: Annotated[str, _key("a ready target, or a file beside this one, that has the other keys")] = ""
    core: Annotated[Name | CoreTable, _key("a core by name, less what it lacks (cortex-m33+nofp), or a table")]
    clock: (
        Annotated[Hertz | dict[Name, Hertz], _key("of the core in Hz; or several by name, the usual one first")] | None
    ) = None
    code: Annotated[str, _key("the memory of vectors, code and read-only C data")]
    stack: Annotated[str, _key("the memory of the stack and C data")]
    stack_size: Annotated[Bytes, _key("bytes of it, at its end, for them alone; without it, all")] | None = None
    arena: Annotated[tuple[str, ...], Meta(min_length=1, description="the memories of the arena, the fastest first")]
    constants: Annotated[str, _key("the memory of weights and command streams")]
    flash_size: Annotated[Bytes, _key("the most bytes that code, constants and data may take")] | None = None
    accelerator: Annotated[str, _key("the NPU as Vela names it, or the name of an [npu] table")] | None = None
    npu_clock: Annotated[Hertz, _key("of the NPU, in Hz")] | None = None
    npu_registers: Annotated[Address, _key("the address of the NPU's registers")] | None = None
    memory_mode: Annotated[Name, _key("a memory mode of Vela's")] | None = None
    system_config: Annotated[Name, _key("a system configuration of Vela's")] | None = None
    vela_config: Annotated[str, _key("a file beside this one with sections of Vela's configuration")] = ""
    memory: Annotated[dict[Name, MemoryTable], Meta(min_length=1, description="memories by name")]
    cache: Annotated[dict[Name, CacheTable], _key("caches by name")] = {}
    npu: Annotated[dict[Name, NpuTable], _key("NPUs by name, where there are several")] = {}
    board: BoardTable = msgspec.field(default_factory=BoardTable)
    trials: TrialsTable | None = None


@cache
def json_schema() -> dict[str, Any]:
    """The JSON schema of target files."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A target of tosaic's"}
    made = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(TargetFile)))  # tuples are lists there
    return schema | _without_null(made)


def _without_null(schema: Any) -> Any:
    """The same without the null that TOML has not."""
    if isinstance(schema, list):
        return [_without_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(part) for key, part in schema.items() if not (key == "default" and part is None)}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        return {key: part for key, part in kept.items() if key != "anyOf"} | choices[0]
    return kept | ({"anyOf": choices} if choices else {})
