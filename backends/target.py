"""What a target is: a core, a board with its memories, perhaps an NPU, and what goes where. All of it is data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tosaic.support.names import Name

Holds = Literal["data", "code", "both"]
Policy = Literal["lru", "round-robin", "random"]
Writes = Literal["back", "through"]
NpuPort = Literal["sram", "ext"]
Pipe = Literal["alu", "load-store", "load", "store", "branch", "int", "mul", "system", "either", "none"]
Issue = Literal["beats", "in-order"]


@dataclass(frozen=True)
class Cache:
    """A set-associative cache between the core and memories: a level-1 cache, a flash accelerator, an XIP cache.

    Args:
        name: how reports call it.
        size: bytes.
        ways: lines of a set.
        line: bytes of a line.
        holds: what is looked up in it: what loads and stores ask for, what the core executes, or both.
        policy: which line of a full set is replaced: the least recently used, the oldest, or a random one.
        writes: `back` allocates a line on a store and writes it to memory when it is replaced; `through` writes each
            store to memory and allocates nothing.
    """

    name: Name
    size: int
    ways: int
    line: int
    holds: Holds = "both"
    policy: Policy = "lru"
    writes: Writes = "back"

    def __post_init__(self) -> None:
        """Check the geometry.

        Raises:
            ValueError: a line is no power of two of at least 4 bytes, or the sets are no power of two.
        """
        sets, rest = divmod(self.size, max(1, self.ways * self.line))
        if self.line < 4 or self.line & (self.line - 1):
            raise ValueError(f"a line of the cache `{self.name}` has {self.line} bytes, no power of two from 4 on")
        if self.ways < 1 or rest or sets < 1 or sets & (sets - 1):
            of = f"{self.ways} x {self.line} B"
            raise ValueError(f"the cache `{self.name}` of {self.size} bytes has no power of two of sets of {of}")

    @property
    def sets(self) -> int:
        """Where a line may lie, each of as many lines as there are ways."""
        return self.size // (self.ways * self.line)


@dataclass(frozen=True)
class Memory:
    """One memory as the Cortex-M sees it.

    Args:
        name: how reports and linker scripts call it.
        base: its address.
        size: bytes.
        bytes_per_cycle: what a long sequential read brings in a cycle of the core; None where nobody has said.
        latency: cycles until the first byte of such a read.
        tightly_coupled: whether it is the core's own, which an NPU reaches at `npu_base` or not at all.
        caches: those that the core reaches it through, at most one for data and one for code.
        line_fill: cycles that the core waits until a line is filled; None for the latency and the bytes of a line.
        line_write_back: cycles that it waits when a line is written back; None for as long as a fill.
        clock: of its bus, in Hz, which its speeds scale with where the core's clock is another; None for the core's.
        npu_base: its address for an NPU; None for the core's.
        npu_port: the port of an NPU that reaches it: `sram` (M0 of U55 and U65) or `ext` (M1); None for `sram` where
            it is the arena's fastest, else `ext`.
        reserved: bytes behind `size` that others need, each with the name of who.
    """

    name: Name
    base: int
    size: int
    bytes_per_cycle: float | None = None
    latency: int | None = None
    tightly_coupled: bool = False
    caches: tuple[Cache, ...] = ()
    line_fill: int | None = None
    line_write_back: int | None = None
    clock: int | None = None
    npu_base: int | None = None
    npu_port: NpuPort | None = None
    reserved: tuple[tuple[str, int], ...] = ()

    @property
    def reached_by_npu(self) -> bool:
        """Whether an NPU reaches it."""
        return not self.tightly_coupled or self.npu_base is not None

    @property
    def npu_address(self) -> int:
        """Where an NPU that reaches it finds it."""
        return self.base if self.npu_base is None else self.npu_base

    @property
    def data_cache(self) -> Cache | None:
        """The cache of what loads and stores ask for."""
        return next((cache for cache in self.caches if cache.holds != "code"), None)

    @property
    def code_cache(self) -> Cache | None:
        """The cache of what the core executes."""
        return next((cache for cache in self.caches if cache.holds != "data"), None)


class Timing(NamedTuple):
    """`pipe` is held for `occupancy` cycles, results are ready after `latency`. Pipe `either` is `int` or `mul`."""

    pipe: Pipe
    occupancy: int
    latency: int


_PLAIN = Timing("alu", 1, 1)


@dataclass(frozen=True)
class Pipeline:
    """The timing of a core with in-order issue, for `simulators.cycle_model` and `simulators.memory_model`.

    Args:
        scalar, vector: timings by mnemonic (a regular expression on it, with neither type suffix nor, for vectors,
            predication); the first match wins.
        taken_branch: cycles to refill the front of the pipeline.
        bytes_per_cycle: what loads and stores move as fast as they issue; only a slower memory makes the core wait.
        issue: the rules by which instructions issue, a file each of `simulators`: `beats` of vectors that overlap, or
            one behind the other (`in_order`).
        transfer: cycles of a load or store of several registers beside those of its words, and words in a cycle.
        chained: cycles that a load saves right behind another load or store, on whose result it does not wait.
        width: instructions that issue in one cycle. Of a pipe's there are as many as `pipes` says, else one; what is on
            the pipe `system`, or holds its pipe longer, issues alone.
        pipes: pipes that there are several of, with their number.
        vector_immediate, lane_insert, lane_extract, shifted_operand: timings that operands decide.
        loop_entry: extra cycles of the first `le` of a low-overhead loop, which executes as a branch.
        offsets_ahead: cycles before its issue at which a gather or scatter takes its offsets.
        into_interleaving_store: least latency of a computed vector that an interleaving store takes.
        store_to_load: a load that would issue so many cycles after a vector's store issues one later.
    """

    scalar: tuple[tuple[str, Timing], ...]
    taken_branch: int
    bytes_per_cycle: int
    vector: tuple[tuple[str, Timing], ...] = ()
    issue: Issue = "in-order"
    transfer: tuple[int, int] = (1, 1)
    chained: int = 0
    width: int = 1
    pipes: tuple[tuple[Pipe, int], ...] = ()
    vector_immediate: Timing = _PLAIN
    lane_insert: Timing = _PLAIN
    lane_extract: Timing = _PLAIN
    shifted_operand: Timing = _PLAIN
    loop_entry: int = 0
    offsets_ahead: int = 0
    into_interleaving_store: int = 0
    store_to_load: int = 0

    def __hash__(self) -> int:
        """Of a few numbers: there are few pipelines, and results are remembered by them very often."""
        return hash((self.issue, self.width, self.taken_branch, len(self.scalar), len(self.vector)))

    def __post_init__(self) -> None:
        """Raise ValueError where a pattern is no regular expression, or an instruction may match none."""
        for timings, any_of_them in ((self.vector, "v"), (self.scalar, "")):
            for pattern, _ in timings:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(f"`{pattern}` is no regular expression: {error}") from None
            if (timings or not any_of_them) and not (timings and re.match(timings[-1][0], any_of_them)):
                raise ValueError("the last timing of a list must match every mnemonic")


@dataclass(frozen=True)
class Core:
    """A Cortex-M core and how code is built for it.

    Args:
        name: clang's and gcc's `-mcpu` name, e.g. `cortex-m55` or `cortex-m33+nofp`.
        triple: LLVM target triple.
        isa: extensions that kernels may use: `dsp`, `fp`, `mve`, `mve.fp`.
        float_abi: `hard`, `softfp` or `soft`.
        pipeline: what iterations executed instructions into cycles; None where the core has no cycle model.
    """

    name: Name
    triple: Name
    isa: tuple[Name, ...]
    float_abi: Name
    pipeline: Pipeline | None = None

    @property
    def mve(self) -> bool:
        """Whether the core has the M-profile Vector Extension on integers."""
        return "mve" in self.isa

    @property
    def baseline(self) -> bool:
        """Whether the core has a baseline architecture, whose instructions have 16 bits but for a few."""
        return self.triple.startswith(("thumbv6m", "thumbv8m.base"))


@dataclass(frozen=True)
class Layout:
    """Which memory holds what.

    Args:
        code: vectors, code and read-only C data.
        stack: stack and C data.
        arena: memories the activation arena may use, fastest first.
        constants: weights and command streams.
        vectors: where the vectors lie if not with the code.
    """

    code: Memory
    stack: Memory
    arena: tuple[Memory, ...]
    constants: Memory
    vectors: Memory | None = None

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Every memory once, in the order of use."""
        used = (self.code, self.stack, *self.arena, self.constants, *((self.vectors,) if self.vectors else ()))
        return tuple(dict.fromkeys(used))

    def mapped(self, change: Callable[[Memory], Memory]) -> Layout:
        """The layout with each memory changed, but for the vectors'."""
        arena = tuple(map(change, self.arena))
        return Layout(change(self.code), change(self.stack), arena, change(self.constants), self.vectors)


@dataclass(frozen=True)
class Uart:
    """A serial port as the monitor drives it.

    Args:
        driver: a file of `backends/bench/uarts`.
        base: address of its registers.
        clock: what its divider divides, in Hz.
    """

    driver: Name
    base: int
    clock: int


@dataclass(frozen=True)
class Board:
    """What a firmware runs on.

    Args:
        machine: QEMU's name of it (`-M`); None where QEMU has none, and another stands in for it.
        cpu: QEMU's name of the core (`-cpu`); None takes the machine's own.
        trials: where batches of candidate kernels lie; None takes the target's layout.
        uart: the serial port of the monitor (`backends/bench`); None where nobody has said.
    """

    machine: Name | None = None
    cpu: Name | None = None
    trials: Layout | None = None
    uart: Uart | None = None


@dataclass(frozen=True)
class Npu:
    """One of the NPUs of a chip.

    Args:
        name: what the user types after `--accelerator`.
        accelerator: as Vela names it, e.g. `ethos-u55-128`.
        clock: in Hz; None where nobody has said.
        registers: their address; None for that of Arm's reference system.
        memory_mode, system_config: how Vela sees the memories; None as is usual for the accelerator.
    """

    name: Name
    accelerator: Name
    clock: int | None = None
    registers: int | None = None
    memory_mode: Name | None = None
    system_config: Name | None = None


@dataclass(frozen=True)
class Target:
    """A compilation target.

    Args:
        name: what the user types, e.g. `corstone-300`.
        accelerator: the NPU as Vela names it, e.g. `ethos-u55-128`; None without an NPU.
        memory_mode, system_config: how Vela sees the memories; None as is usual for the accelerator.
        vela_config: sections of Vela's configuration beside those of Arm's file, as text.
        flash_size: the most bytes that code, constants and data may take; None for what their memories hold.
        clock, npu_clock: of the core and of the NPU, in Hz; None where nobody has said.
        npu_registers: the address of the NPU's registers; None for that of Arm's reference system.
        npus: those that the chip has, one of which is its `accelerator`, where its file names them.
        clocks: those that the core can have, by name, the usual one first.
    """

    name: Name
    core: Core
    board: Board
    layout: Layout
    accelerator: Name | None = None
    memory_mode: Name | None = None
    system_config: Name | None = None
    flash_size: int | None = None
    clock: int | None = None
    npu_clock: int | None = None
    vela_config: str = ""
    npu_registers: int | None = None
    npus: tuple[Npu, ...] = ()
    clocks: tuple[tuple[Name, int], ...] = ()

    @property
    def npu(self) -> Npu | None:
        """The NPU that is used; it has its accelerator's name."""
        if self.accelerator is None:
            return None
        of_it = (self.npu_clock, self.npu_registers, self.memory_mode, self.system_config)
        return Npu(self.accelerator, self.accelerator, *of_it)

    def using(self, npu: Npu) -> Target:
        """The target with another NPU in use."""
        return replace(
            self,
            accelerator=npu.accelerator,
            npu_clock=npu.clock,
            npu_registers=npu.registers,
            memory_mode=npu.memory_mode,
            system_config=npu.system_config,
        )

    def npu_port(self, memory: Memory) -> NpuPort:
        """The port of the NPU that reaches one of the target's memories."""
        return memory.npu_port or ("sram" if memory.base == self.layout.arena[0].base else "ext")

    def milliseconds(self, cycles: float | None, npu_cycles: int = 0) -> float | None:
        """What cycles of the core and then of the NPU take; None where they, or their clock, are not known."""
        if cycles is None or (cycles and self.clock is None) or (npu_cycles and self.npu_clock is None):
            return None
        return 1000 * (cycles / (self.clock or 1) + npu_cycles / (self.npu_clock or 1))

    @property
    def trials(self) -> Layout:
        """Where batches of candidates lie on the board itself, each memory as fast as the one that it stands for.

        Tensors and scratch stand for what lies in the arena's first memory.
        """
        lie = self.board.trials
        if lie is None:
            return self.layout
        return replace(
            lie,
            code=_in_place_of(self.layout.code, lie.code),
            stack=_in_place_of(self.layout.stack, lie.stack),
            arena=tuple(_in_place_of(self.layout.arena[0], memory) for memory in lie.arena),
            constants=_in_place_of(self.layout.constants, lie.constants),
        )


def _in_place_of(memory: Memory, lies: Memory) -> Memory:
    return replace(memory, base=lies.base, size=lies.size)
